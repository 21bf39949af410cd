//! btrfs: the scan by the kernel's own calls.
//!
//! Owns the reading of a mounted btrfs: its chunks, its free space, and every file of every subvolume and snapshot with
//! the extents that they share. Never decides where data goes.

mod address;
mod admission;
mod balance;
mod chunks;
mod extents;
mod file_system;
mod files;
mod free;
mod gather;
mod items;
mod line;
mod model;
mod names;
mod picture;
mod roots;
pub mod scan;
mod sharing;
mod swap;
pub mod tail;
mod trees;
mod trimming;
mod units;
mod volume;

pub use address::{Address, SubvolumeId};
pub use extents::{DataExtent, DataExtents};
pub(crate) use file_system::Btrfs;
pub use model::{BtrfsGeometry, BtrfsScan, Chunk, ChunkKind, FreeSpaceSource, Owner, OwnerTraits, Profile, Subvolume};
pub use names::{FilePath, Names, names};
pub use sharing::SharingSets;
pub use units::unfit;
pub use volume::BtrfsVolume;
