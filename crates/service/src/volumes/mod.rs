//! The volumes of the machine: which there are, what they are called, and when they come and go.
//!
//! Owns the choice of what is looked after: writable ext4, XFS and btrfs on block devices. Never keeps anything of a volume
//! open.

mod identity;
mod table;
mod watch;

pub use identity::{Identity, InodeChunks, format_uuid, identify};
pub use table::{Change, Found, changes, find};
pub use watch::{MountTable, is_visible};
