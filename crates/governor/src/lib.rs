//! Lets background work use what others leave of a device.
//!
//! Owns the observation of devices and machine (counters, pressure, power), the attribution of I/O, and the policy that
//! decides when the next chunk may be moved. Never moves data, and knows no file systems. If something cannot be
//! observed, it decides by the remaining signals, and reports this.

mod account;
mod arrivals;
mod attribution;
mod behind;
mod below;
mod disk;
mod duty;
mod governor;
mod law;
mod machine;
mod neighbour;
mod own;
mod pace;
mod stack;

pub use account::{Account, Balance, Bounds, Completed, Promise, Requests, SYNC, Times, Work};
pub use arrivals::{Arrivals, Asked, Refused};
pub use attribution::{Attribution, Own, Share};
pub use below::Signals;
pub use disk::{DiskKind, DiskPolicy, Disks};
pub use duty::{Duty, MinProgress, NoDuty, NoMinProgress};
pub use governor::{Governor, Latency, Loads, Observed};
pub use law::{Law, Pause, Rules, Signs};
pub use neighbour::{Detector, Finding};
pub use pace::{Pace, UnknownPace};
pub use stack::{Device, devices_below};
