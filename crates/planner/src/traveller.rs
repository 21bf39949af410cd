//! A unit on its way to its target, as the schedule sees it: pieces that arrive one by one.

use crate::plan::Why;
use crate::unit::{Piece, UnitIndex, fragments};
use longrun_layout::Extent;

/// A unit on its way.
pub(crate) struct Traveller {
    pub(crate) unit: UnitIndex,
    pub(crate) target: u64,
    /// Present position, as pieces with their offset from the target's start, ascending.
    pub(crate) pieces: Vec<(u64, Piece)>,
    /// Blocks of the target that are neither available nor already held in place.
    pub(crate) waiting: u64,
    /// Blocks that are not in place.
    pub(crate) away: u64,
    pub(crate) size: u64,
    /// How many files lie in its blocks.
    pub(crate) owners: u64,
    /// Fragments saved per move of the whole.
    pub(crate) gain: u64,
    pub(crate) why: Why,
    pub(crate) done: bool,
}

/// Orders ready units: the most fragments per block first (0 is first).
pub(crate) fn rank(gain: u64, size: u64) -> u64 {
    let per_block = (gain << 24) / size.max(1);
    u64::MAX - per_block
}

pub(crate) fn piece_length(pieces: &[(u64, Piece)], at: usize) -> u64 {
    pieces.get(at).map_or(0, |(_, p)| p.length)
}

impl Traveller {
    /// All of its target.
    pub(crate) fn place(&self) -> Extent {
        Extent::new(self.target, self.size)
    }

    /// How many blocks of its target lie in an extent.
    pub(crate) fn share_of(&self, extent: Extent) -> u64 {
        self.place().intersection(&extent).map_or(0, |common| common.length.0)
    }

    /// The piece that holds the block of this offset.
    pub(crate) fn piece_at(&self, offset: u64) -> usize {
        self.pieces.partition_point(|(start, piece)| start + piece.length <= offset)
    }

    /// The place of the pieces beside the one at this index, and of that itself.
    pub(crate) fn place_around(&self, at: usize) -> Option<Extent> {
        let (first, _) = self.pieces.get(at.saturating_sub(1))?;
        let (last, piece) = self.pieces.get(at + 1).or_else(|| self.pieces.get(at))?;
        Some(Extent::new(self.target + first, last + piece.length - first))
    }

    /// How the unit's fragments change when the piece at index `at` is replaced by parts: (offset in the piece, length,
    /// place). Only the borders to its neighbours count, so this is independent of the number of pieces.
    pub(crate) fn delta(&self, at: usize, parts: &[(u64, u64, u64)]) -> i64 {
        let Some((_, piece)) = self.pieces.get(at) else { return 0 };
        let before = at.checked_sub(1).and_then(|i| self.pieces.get(i)).map(|(_, p)| p.end());
        let behind = self.pieces.get(at + 1).map(|(_, p)| p.at);
        let breaks = |places: &mut dyn Iterator<Item = (u64, u64)>| -> i64 {
            let mut end = before;
            let mut count = 0;
            for (start, length) in places {
                count += i64::from(end.is_some_and(|e| e != start));
                end = Some(start + length);
            }
            count + i64::from(end.is_some() && behind.is_some_and(|b| end != Some(b)))
        };
        let now = breaks(&mut std::iter::once((piece.at, piece.length)));
        let then = breaks(&mut parts.iter().map(|(_, length, place)| (*place, *length)));
        then - now
    }
}

/// Joins pieces that continue each other.
pub(crate) fn join(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.end() == piece.at && last.logical + last.length == piece.logical => {
                last.length += piece.length;
            }
            _ => joined.push(piece),
        }
    }
    debug_assert!(fragments(&joined) <= joined.len() as u64);
    joined
}
