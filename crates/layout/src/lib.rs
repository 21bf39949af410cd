//! The pure model of a volume: which file owns which physical blocks, what is free, what is immovable.
//!
//! Owns the terms (run, fragment, free-space piece, floor pieces) and the figures computed from the model. Never does
//! I/O, never reads a clock, never uses the name of a file system.

mod apply;
mod builder;
mod claims;
mod error;
mod extent;
mod extent_set;
mod file;
mod fragmentation;
mod order;
mod run;
mod sharing;
mod units;
mod volume;

pub use apply::{ApplyError, FileMove, apply_moves};
pub use builder::LayoutBuilder;
pub use error::LayoutError;
pub use extent::Extent;
pub use extent_set::ExtentSet;
pub use file::{FileId, FileIndex, FileRecord, FileView, NO_DIRECTORY, Pin};
pub use fragmentation::{Fragmentation, FragmentedFile, FreeSpace, count_fragments};
pub use order::in_order;
pub use run::{LogicalRange, PackedRun, Run};
pub use units::{BlockSize, Blocks, Bytes, InodeNumber, LogicalBlock, PhysicalBlock, grouped, shown_duration};
pub use volume::{Region, VolumeLayout, WithheldFiles};
