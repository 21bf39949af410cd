//! Judges: what filefrag, the file systems' own tools and a full dump of every file report about a volume. They do not
//! use our scan.

mod btrfs_space;
mod dump;
mod excess_space;
mod filefrag;
mod free_space;
mod freefrag;
pub mod ntfs;
mod used_space;

pub use btrfs_space::{BtrfsUsage, btrfs_usage};
pub use dump::{Dump, Entry, allocated_blocks, compare, dump, file_hash};
pub use excess_space::bytes_beyond_end;
pub use filefrag::{FileFragments, excess_of, filefrag};
pub use free_space::{free_space, longest_possible_on_xfs};
pub use freefrag::{FreeFragments, e2freefrag};
pub use used_space::used_space;
