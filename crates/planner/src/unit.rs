//! A unit: a file, or a part of one, that the plan puts into one contiguous place.

use longrun_layout::{Extent, ExtentSet, FileIndex, FileView, PhysicalBlock};
use std::collections::BTreeSet;

/// Blocks that lie as they would in one piece make a place of their own from here on: 1 MiB of 4 KiB blocks.
const PLACE: u64 = 256;

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

    /// Where its fragments with more than `most` blocks lie.
    pub(crate) fn fragments_longer_than(&self, most: u64) -> Vec<Extent> {
        let fragments = self.pieces.chunk_by(|a, b| a.end() == b.at).filter_map(|pieces| {
            Some(Extent::between(PhysicalBlock(pieces.first()?.at), PhysicalBlock(pieces.last()?.end())))
        });
        fragments.filter(|fragment| fragment.length.0 > most).collect()
    }

    /// Where the unit would have to start so that each of its pieces stays in place, in their order.
    fn starts(&self) -> impl Iterator<Item = Option<u64>> + Clone + '_ {
        self.pieces.iter().scan(0, |offset, piece| {
            let start = piece.at.checked_sub(*offset);
            *offset += piece.length;
            Some(start)
        })
    }

    /// Where the unit could start so that some of it stays in place, ascending, and how many blocks of it would: pieces that agree add up.
    pub(crate) fn places(&self) -> Vec<(u64, u64)> {
        let starts = self.starts().zip(&self.pieces);
        let mut proposals: Vec<(u64, u64)> = starts.filter_map(|(start, piece)| Some((start?, piece.length))).collect();
        proposals.sort_unstable();
        let groups = proposals.chunk_by(|a, b| a.0 == b.0);
        groups.filter_map(|group| Some((group.first()?.0, group.iter().map(|(_, length)| length).sum()))).collect()
    }

    /// The unit in parts, cut where its place changes, and around pieces whose part of the place is not in `space`. `None` when that is one
    /// part, or it lies in no place.
    pub(crate) fn by_place(&self, space: &ExtentSet) -> Option<Vec<Self>> {
        if self.fixed || self.size < 2 * PLACE || self.fragments() < 3 {
            return None;
        }
        let places: BTreeSet<u64> =
            self.places().into_iter().filter(|(_, blocks)| *blocks >= PLACE).map(|(start, _)| start).collect();
        let starts = self.starts().map(|start| start.filter(|start| places.contains(start)));
        let mut place = starts.clone().flatten().next()?;
        let (mut parts, mut begins, mut offset): (Vec<Vec<Piece>>, bool, u64) = (Vec::new(), true, 0);
        for (piece, own) in self.pieces.iter().zip(starts) {
            let is_home = own.is_some() || space.covers(Extent::new(place + offset, piece.length));
            let next = own.unwrap_or(place);
            if begins || !is_home || next != place {
                parts.push(Vec::new());
            }
            (place, begins) = (next, !is_home);
            parts.last_mut()?.push(*piece);
            offset += piece.length;
        }
        (parts.len() > 1).then(|| parts.into_iter().map(|part| self.part(part, false)).collect())
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
