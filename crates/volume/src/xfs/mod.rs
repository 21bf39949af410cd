//! XFS: the scan by the kernel's own calls, and the primitives on a mounted volume.
//!
//! Owns the operations of the kernel on a mounted XFS volume: which files may be moved ([`admission`]), allocation at a
//! chosen place ([`anchors`]), and letting a file take the blocks there ([`exchange`]). Never decides where data goes.
//!
//! Unlike on ext4, no free space is held during a pass. An allocation can choose its place, so a block is allocated
//! only when a file moves to it. Vacated blocks go back to the file system, which does not allocate them before its log
//! is written (docs/decisions/0009-xfs-is-aimed-at-not-held.md).
//!
//! Where no place can be chosen, files are put together one by one ([`files`]).

mod admission;
mod anchors;
mod claims;
mod exchange;
mod file_system;
mod files;
mod log;
mod paths;
mod reserve;
pub mod scan;
mod sharers;
mod trimming;
mod volume;

pub use anchors::withhold_anchors;
pub(crate) use file_system::Xfs;
pub use paths::names;
pub use volume::XfsVolume;
