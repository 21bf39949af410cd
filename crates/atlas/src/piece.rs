//! A piece of the volume and its owner.

use longrun_layout::{Extent, FileIndex, LogicalBlock};

/// What is to be known of a piece of a file without looking at the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// It cannot be moved.
    pub fixed: bool,
    /// Its file has more than one fragment.
    pub fragmented: bool,
    /// Other files have it, too, or its file has it twice.
    pub shared: bool,
    /// The file is a directory.
    pub directory: bool,
}

/// The owner of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No one.
    Free,
    /// A file or directory.
    File {
        /// Which.
        file: FileIndex,
        /// The block of the file that the piece begins with.
        logical: LogicalBlock,
        /// More about it.
        traits: Traits,
    },
    /// The file system: the number of a word that says what it is.
    Area(u16),
}

/// A contiguous range of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub extent: Extent,
    /// Whose.
    pub owner: Owner,
}

impl Piece {
    /// The part of it in `extent`, which is not empty and lies in it.
    #[must_use]
    pub fn part(&self, extent: Extent) -> Self {
        let owner = match self.owner {
            Owner::File { file, logical, traits } => {
                Owner::File { file, logical: logical + (extent.start - self.extent.start), traits }
            }
            other => other,
        };
        Self { extent, owner }
    }
}
