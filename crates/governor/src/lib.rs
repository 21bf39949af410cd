//! Lets background work run only while nobody else wants the device.
//!
//! Owns what is observed of a device and of the machine (counters, pressure, power), whose I/O that was, and the law by
//! which the next chunk may be moved or must wait. Never moves anything, never knows a file system; and where something
//! cannot be observed it goes by what is left, and says so.

mod arrivals;
mod attribution;
mod disk;
mod duty;
mod governor;
mod law;
mod machine;
mod neighbour;
mod own;
mod pace;
mod stack;

pub use arrivals::{Arrivals, Asked, Refused};
pub use attribution::{Attribution, Own, Share};
pub use disk::{DiskKind, DiskPolicy, Disks};
pub use duty::{Duty, NoDuty};
pub use governor::{Governor, Latency, Loads, Observed, Signals};
pub use law::{Law, Pause, Rules, Signs, Verdict};
pub use neighbour::{Detector, Finding};
pub use pace::{Pace, UnknownPace};
pub use stack::{Device, devices_below};
