//! The arrangement of a file on the device.

use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt;

/// The arrangement of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// In as few pieces as the file system allocates.
    Whole,
    /// In fragments of this size, on the device in the order of the file.
    Fragments(Bytes),
    /// In fragments of this size, on the device in any order.
    Shuffled(Bytes),
    /// In fragments of this size in any order, and then optimized.
    Optimized(Bytes),
}

impl Arrangement {
    /// The size of the fragments, and whether they are shuffled; `None` for a file that is contiguous from the beginning.
    pub(super) fn piece(self) -> Option<(Bytes, bool)> {
        match self {
            Self::Whole => None,
            Self::Fragments(piece) => Some((piece, false)),
            Self::Shuffled(piece) | Self::Optimized(piece) => Some((piece, true)),
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "whole"),
            Self::Fragments(piece) => write!(f, "{} KiB fragments", piece.0 >> 10),
            Self::Shuffled(piece) => write!(f, "{} KiB fragments, shuffled", piece.0 >> 10),
            Self::Optimized(piece) => write!(f, "{} KiB fragments, shuffled, optimized", piece.0 >> 10),
        }
    }
}
