//! The pure model of a volume: which file owns which physical blocks, what is free, what cannot move.
//!
//! Owns the vocabulary (run, fragment, free-space piece, floor pieces) and the figures computed from it.
//! Never does I/O, never reads a clock, never knows a file system by name.

mod apply;
mod claims;
mod error;
mod extent;
mod file;
mod fragmentation;
mod run;
mod sharing;
mod units;
mod volume;

pub use apply::{ApplyError, FileMove, apply_moves};
pub use error::LayoutError;
pub use extent::{Extent, ExtentSet};
pub use file::{FileId, FileIndex, FileRecord, FileView, NO_DIRECTORY, Pin};
pub use fragmentation::{Fragmentation, FragmentedFile, FreeSpace, count_fragments};
pub use run::{PackedRun, Run};
pub use units::{BlockSize, Blocks, Bytes, InodeNumber, LogicalBlock, PhysicalBlock};
pub use volume::{LayoutBuilder, Region, VolumeLayout};
