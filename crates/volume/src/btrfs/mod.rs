//! btrfs: the scan by the kernel's own calls.
//!
//! Owns what the kernel tells of a mounted btrfs: its chunks, its free space, and every file of every subvolume and snapshot
//! with the extents that they share. Never decides what goes where.

mod admission;
mod balance;
mod chunks;
mod extents;
mod files;
mod free;
mod gather;
mod items;
mod model;
mod names;
mod picture;
mod roots;
pub mod scan;
mod sharing;
mod swap;
mod trees;
mod units;
mod volume;

pub use extents::{DataExtent, DataExtents};
pub use model::{
    Address, BtrfsGeometry, BtrfsScan, Chunk, ChunkKind, FreeSpaceSource, Owner, OwnerTraits, Profile, Subvolume,
    SubvolumeId,
};
pub use names::{FilePath, Names};
pub use sharing::SharingSets;
pub use units::{picture, unfit};
pub use volume::BtrfsVolume;

pub(crate) use admission::lock_file;
