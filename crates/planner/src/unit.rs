//! A unit: a file, or a part of one, that the plan puts into one contiguous place.

use longrun_layout::{FileIndex, FileView, PhysicalBlock};

/// The position of a unit in its window.
pub(crate) type UnitIndex = usize;

/// A range of a file that is contiguous in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) logical: u64,
    /// Physical start.
    pub(crate) at: u64,
    pub(crate) length: u64,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// Something to be placed in one contiguous place.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) file: FileIndex,
    pub(crate) directory: u32,
    /// How many files lie in its blocks: each of them has its fragments.
    pub(crate) owners: u64,
    /// Blocks; the sum of its pieces.
    pub(crate) size: u64,
    /// Ascending by logical address. File holes between them are not part of the unit.
    pub(crate) pieces: Vec<Piece>,
    /// It stays where it is in this plan.
    pub(crate) fixed: bool,
}

impl Unit {
    pub(crate) fn new(file: FileIndex, directory: u32, pieces: Vec<Piece>) -> Self {
        let size = pieces.iter().map(|p| p.length).sum();
        Self { file, directory, owners: 1, size, pieces, fixed: false }
    }

    /// The whole of a file as one unit; `owners` files lie in its blocks.
    pub(crate) fn whole(file: &FileView<'_>, owners: u64) -> Self {
        let pieces =
            file.runs().map(|r| Piece { logical: r.logical.0, at: r.physical.0, length: r.length.0 }).collect();
        Self { owners, ..Self::new(file.index, file.record.directory, pieces) }
    }

    /// A part of the same file as a unit of its own.
    pub(crate) fn part(&self, pieces: Vec<Piece>, fixed: bool) -> Self {
        Self { owners: self.owners, fixed, ..Self::new(self.file, self.directory, pieces) }
    }

    pub(crate) fn fragments(&self) -> u64 {
        fragments(&self.pieces)
    }

    /// The blocks that would stay in place if the unit started at `start`.
    pub(crate) fn in_place(&self, start: u64) -> u64 {
        let mut target = start;
        let mut same = 0;
        for piece in &self.pieces {
            if piece.at == target {
                same += piece.length;
            }
            target += piece.length;
        }
        same
    }

    /// The blocks to move if the unit shall start at `start`.
    pub(crate) fn cost(&self, start: u64) -> u64 {
        self.size - self.in_place(start)
    }

    /// Whether a piece would have to move onto a part of itself: such a slide is a chain of moves with a barrier
    /// each, never worth it.
    pub(crate) fn slides(&self, start: u64) -> bool {
        let mut target = start;
        for piece in &self.pieces {
            if piece.at != target && piece.at.abs_diff(target) < piece.length {
                return true;
            }
            target += piece.length;
        }
        false
    }

    /// The first block, for ordering units by where they are now.
    pub(crate) fn first_block(&self) -> PhysicalBlock {
        PhysicalBlock(self.pieces.first().map_or(0, |p| p.at))
    }
}

/// Physically contiguous ranges among pieces that follow each other in a file.
pub(crate) fn fragments(pieces: &[Piece]) -> u64 {
    let mut count = 0;
    let mut end = None;
    for piece in pieces {
        count += u64::from(end != Some(piece.at));
        end = Some(piece.end());
    }
    count
}
