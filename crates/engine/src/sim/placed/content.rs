//! The content of blocks, as tags instead of bytes. Tags show the origin of every byte after any crash.

use crate::range_map::{RangeMap, Slide};
use longrun_layout::{Extent, LogicalBlock, PhysicalBlock};

/// The content of a block. For a range it is the content of the first block; the following blocks continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What this block held when the simulation began, wherever it has been copied since.
    Original(PhysicalBlock),
    /// What a user wrote later.
    Written {
        /// The simulated file's number.
        file: u32,
        /// The block of the file.
        logical: LogicalBlock,
        /// Counts the user's writes, so that an older one can be told.
        version: u32,
    },
    /// A write that a crash tore.
    Garbage,
}

impl Slide for Content {
    fn slide(self, by: u64) -> Self {
        match self {
            Self::Original(block) => Self::Original(PhysicalBlock(block.0 + by)),
            Self::Written { file, logical, version } => {
                Self::Written { file, logical: LogicalBlock(logical.0 + by), version }
            }
            Self::Garbage => Self::Garbage,
        }
    }
}

/// A disk: what was written since the simulation began; all other blocks hold what they held then.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    written: RangeMap<Content>,
}

impl Disk {
    pub(super) fn write(&mut self, place: Extent, content: Content) {
        self.written.assign(place, content);
    }

    pub(super) fn read(&self, place: Extent) -> Vec<(Extent, Content)> {
        let parts = self.written.parts(place).into_iter();
        parts.map(|(part, content)| (part, content.unwrap_or(Content::Original(part.start)))).collect()
    }
}
