//! The room for rewritten data: the larger free pieces, and chunks that can still be allocated.

use super::{AreaIndex, ChunkLimits, ChunkMap};
use std::collections::BTreeMap;

/// Shorter free pieces do not count as room, because data in them would be as scattered as before.
pub(super) const LEAST: u64 = 256;

/// Lengths of free pieces, the reserve respected.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// How many pieces of each length.
    pieces: BTreeMap<u64, u64>,
    /// The blocks that may be taken before the next commit.
    left: u64,
    /// Shorter pieces do not count.
    least: u64,
}

impl Room {
    /// Every free piece.
    pub(super) fn all(map: &ChunkMap, limits: &ChunkLimits) -> Self {
        Self::of(map, limits, 1)
    }

    /// The pieces that take whole files and more.
    pub(super) fn large(map: &ChunkMap, limits: &ChunkLimits) -> Self {
        Self::of(map, limits, LEAST)
    }

    fn of(map: &ChunkMap, limits: &ChunkLimits, least: u64) -> Self {
        let left = map.free_blocks().saturating_sub(limits.reserve).0;
        let mut room = Self { pieces: BTreeMap::new(), left, least };
        for piece in map.chunks.iter().flat_map(|chunk| &chunk.free) {
            room.add(piece.0);
        }
        let mut unallocated = map.unallocated.0;
        while unallocated > 0 && map.chunk_length.0 > 0 {
            let next = unallocated.min(map.chunk_length.0);
            room.add(next);
            unallocated -= next;
        }
        room
    }

    fn add(&mut self, piece: u64) {
        if piece >= self.least {
            *self.pieces.entry(piece).or_default() += 1;
        }
    }

    fn remove(&mut self, piece: u64) {
        if let Some(count) = self.pieces.get_mut(&piece) {
            *count -= 1;
            if *count == 0 {
                self.pieces.remove(&piece);
            }
        }
    }

    /// Leaves out the free pieces of an area that is to become free.
    pub(super) fn close(&mut self, map: &ChunkMap, area: AreaIndex) {
        for piece in map.areas.get(area.0 as usize).into_iter().flat_map(|area| &area.free) {
            self.remove(piece.0);
        }
    }

    /// Takes an area's free pieces in again.
    pub(super) fn open(&mut self, map: &ChunkMap, area: AreaIndex) {
        for piece in map.areas.get(area.0 as usize).into_iter().flat_map(|area| &area.free) {
            self.add(piece.0);
        }
    }

    /// The same room, of which at most half is taken, because the space that files leave is too scattered to count
    /// as room.
    pub(super) fn half(mut self) -> Self {
        self.left = self.total() / 2;
        self
    }

    /// The maximum that can be taken.
    pub(super) fn total(&self) -> u64 {
        self.pieces.iter().map(|(piece, count)| piece * count).sum::<u64>().min(self.left)
    }

    /// Takes one piece for `length` blocks out of the longest; false where none is long enough.
    pub(super) fn take(&mut self, length: u64) -> bool {
        let Some((&longest, _)) = self.pieces.last_key_value() else { return false };
        if longest < length || self.left < length {
            return false;
        }
        self.remove(longest);
        self.add(longest - length);
        self.left -= length;
        true
    }

    /// Takes the longest pieces for `length` blocks; false where that needs more than `most` of them.
    pub(super) fn take_in_pieces(&mut self, length: u64, most: u64) -> bool {
        if length > self.left {
            return false;
        }
        let (mut missing, mut needed, mut taken) = (length, 0, Vec::new());
        for (piece, count) in self.pieces.iter().rev() {
            if missing == 0 || needed > most {
                break;
            }
            let here = missing.div_ceil(*piece).min(*count);
            taken.push((*piece, here));
            needed += here;
            missing = missing.saturating_sub(here * piece);
        }
        if missing > 0 || needed > most {
            return false;
        }
        let all: u64 = taken.iter().map(|(piece, count)| piece * count).sum();
        taken.iter().for_each(|(piece, count)| (0..*count).for_each(|_| self.remove(*piece)));
        // Of the last one a part is left.
        self.add(all - length);
        self.left -= length;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_taken_from_the_longest_pieces_if_they_are_few_enough() {
        let room = Room { pieces: [(10, 3), (40, 2), (100, 1)].into(), left: 200, least: 1 };
        for (length, most, left) in [
            (100, 1, Some(vec![(10, 3), (40, 2)])),
            (101, 1, None),
            (101, 2, Some(vec![(10, 3), (39, 1), (40, 1)])),
            (180, 3, Some(vec![(10, 3)])),
            (181, 3, None),
            (195, 5, Some(vec![(5, 1), (10, 1)])),
            (201, 9, None),
        ] {
            let mut taken = room.clone();
            assert_eq!(taken.take_in_pieces(length, most), left.is_some(), "{length} in {most}");
            let expected = left.map_or(room.clone(), |pieces| Room {
                pieces: pieces.into_iter().collect(),
                left: 200 - length,
                least: 1,
            });
            assert_eq!((taken.pieces, taken.left), (expected.pieces, expected.left), "{length} in {most}");
        }
    }
}
