//! Users of the same disk outside this machine: other virtual machines, or other hosts on the same array. Their I/O is
//! not counted here. The only sign is that the disk is slow while no process on this machine uses it.

mod detector;
mod probe;
mod probers;

pub use detector::{Detector, Finding};
use probe::Prober;
pub(crate) use probers::Probers;
