//! The figures of volumes and of the service, each read in the cheapest way.

pub mod health;
mod memory;
mod own;
mod scan;
mod space;

pub use memory::{Bound, job_memory};
pub use own::{own_use, resident};
pub use scan::{Scanned, counts, is_scanned_daily, scan, written};
pub use space::look;
