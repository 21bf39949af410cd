//! XFS: the scan by the kernel's own calls, and the live primitives.
//!
//! Owns what the kernel can do for a mounted XFS volume: who may be moved ([`admission`]), allocating at a chosen place
//! ([`steering`]), and having a file take the blocks there for its own ([`exchange`]). Never decides what goes where.
//!
//! Unlike on ext4 no free space is held while a pass lasts: XFS can be told a place, so that a block is allocated just
//! when a file moves to it, and what the file leaves goes back to the file system, which hands it to nobody before its
//! log has been written (docs/decisions/0009-xfs-is-aimed-at-not-held.md).

mod admission;
mod claims;
mod exchange;
mod log;
mod paths;
mod reserve;
pub mod scan;
mod sharers;
mod steering;
mod volume;

pub use admission::unfit;
pub use paths::paths_of;
pub use volume::XfsVolume;
