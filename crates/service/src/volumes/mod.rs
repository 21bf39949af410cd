//! The volumes of the machine: which exist, their names, and when they are mounted and unmounted.
//!
//! Owns the choice of watched volumes: ext4, XFS and btrfs on block devices, mounted read-write. Never keeps anything
//! of a volume open.

mod table;
mod watch;

pub use table::{Change, Found, Sight, changes, find};
pub use watch::{MountTable, is_out_of_reach, sight};
