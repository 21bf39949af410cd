//! ext4: the raw scan, and the live primitives.

pub mod scan;
