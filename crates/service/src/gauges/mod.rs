//! Figures of volumes and of the service itself, each as cheap as it can be had.

pub mod health;
mod own;
mod scan;
mod space;

pub use own::own_use;
pub use scan::{Scanned, can_scan, scan, written};
pub use space::look;
