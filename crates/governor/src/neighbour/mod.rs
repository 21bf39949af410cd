//! Users of the same disk outside this machine: other virtual machines, other hosts on the same array. Nothing counts their
//! I/O for us; that the disk is slow while nobody here uses it is all there is to see.

mod detector;
mod probe;
mod probers;

pub use detector::{Detector, Finding};
use probe::Prober;
pub(crate) use probers::Probers;
