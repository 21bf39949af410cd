//! The map of a volume as its last scan found it, in a file: levels of detail for pictures, which file has which block,
//! and which extents a file has.
//!
//! Owns the format of that file, its writing from a [`longrun_layout::VolumeLayout`], and its reading piece by piece: a
//! reader keeps the tables of the groups in memory, at most one byte for forty extents, and reads a few groups for each question.
//! Never reads a volume, and never trusts a byte of the file: what is damaged is an error.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod error;
mod format;
mod groups;
mod piece;
mod pyramid;
mod read;
mod records;
mod sweep;
mod varint;
mod visit;
mod write;

pub use error::AtlasError;
pub use format::Summary;
pub use piece::{Owner, Piece, Traits};
pub use pyramid::{BYTES_PER_CELL, Level, levels};
pub use read::{Atlas, Place, Source};
pub use records::FileEntry;
pub use write::{Subject, encode, write};

#[cfg(test)]
mod tests;
