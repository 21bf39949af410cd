//! The service: wires prevention, mending and history together for the volumes of a machine, and tells about it.

pub mod config;
pub mod mending;
