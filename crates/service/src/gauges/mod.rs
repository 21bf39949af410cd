//! The figures of volumes and of the service, each read in the cheapest way.

pub mod health;
mod own;
mod scan;
mod space;

pub use own::own_use;
pub use scan::{Scanned, can_scan, counts, scan, written};
pub use space::look;
