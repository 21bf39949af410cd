//! ext4 that is not mounted, on a device or in an image: files, directories and extent trees are changed as they lie there.
//!
//! Owns the changes of the on-disk format: maps of files, the entries of directories, block bitmaps, descriptors, the superblock. They reach the volume by
//! transactions that a redo journal completes after a crash ([`crate::offline`]); ext4's own journal is empty then. Never decides
//! where data goes.

mod admission;
mod compaction;
mod directory;
mod groups;
mod patches;
mod state;
mod tree;
mod volume;

pub use volume::OfflineExt4;

pub(super) use admission::{KIND, check_claims, refusal};
pub(super) use compaction::foresee;
pub(super) use volume::OPTIONS;
