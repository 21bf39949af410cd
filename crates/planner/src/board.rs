//! The board: the space to fill, as slots (units that have a place) and the holes between them.
//!
//! Owns the arithmetic of places. Never decides which unit goes where.

use crate::unit::UnitIndex;
use longrun_layout::{Extent, ExtentSet};
use std::collections::{BTreeMap, BTreeSet};

/// A unit that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) unit: UnitIndex,
}

/// A stretch of holes and units large enough for another unit once the units in it have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clearing {
    pub(crate) start: u64,
    pub(crate) evict: Vec<Slot>,
}

/// Space as slots and holes. Segments never touch each other, so neighbours by address share a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    slots: BTreeMap<u64, (u64, UnitIndex)>,
    holes: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Where the last search for a clearing ended: the next one goes on from there.
    cursor: u64,
}

impl Board {
    pub(crate) fn new(segments: impl IntoIterator<Item = Extent>) -> Self {
        let mut board = Self::default();
        for segment in segments {
            board.add_hole(segment.start.0, segment.length.0);
        }
        board
    }

    /// A board in whose `space` units have their places: each with its start and its length, ascending. Those whose place does not lie
    /// in what is left of the space have none, and are not on the board. Much faster than one after the other.
    pub(crate) fn filled(space: &ExtentSet, placed: impl IntoIterator<Item = Slot>) -> Self {
        let mut placed = placed.into_iter().peekable();
        let (mut slots, mut holes) = (Vec::new(), Vec::new());
        for segment in space.iter() {
            let (mut at, end) = (segment.start.0, segment.end().0);
            while let Some(slot) = placed.next_if(|slot| slot.start < end) {
                if slot.start < at || slot.start + slot.length > end {
                    continue;
                }
                if slot.start > at {
                    holes.push((at, slot.start - at));
                }
                slots.push((slot.start, (slot.length, slot.unit)));
                at = slot.start + slot.length;
            }
            if at < end {
                holes.push((at, end - at));
            }
        }
        let by_length = holes.iter().map(|(start, length)| (*length, *start)).collect();
        Self { slots: slots.into_iter().collect(), holes: holes.into_iter().collect(), by_length, cursor: 0 }
    }

    fn add_hole(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.holes.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn take_hole(&mut self, start: u64) -> Option<u64> {
        let length = self.holes.remove(&start)?;
        self.by_length.remove(&(length, start));
        Some(length)
    }

    /// The hole that holds all of the range.
    pub(crate) fn hole_at(&self, start: u64, length: u64) -> Option<Extent> {
        let (&s, &l) = self.holes.range(..=start).next_back()?;
        (start + length <= s + l).then(|| Extent::new(s, l))
    }

    /// Gives a unit its place. The place must lie in a hole; returns false, and changes nothing, when it does not.
    pub(crate) fn occupy(&mut self, start: u64, length: u64, unit: UnitIndex) -> bool {
        let Some(hole) = self.hole_at(start, length) else { return false };
        self.take_hole(hole.start.0);
        self.add_hole(hole.start.0, start - hole.start.0);
        self.add_hole(start + length, hole.end().0 - (start + length));
        self.slots.insert(start, (length, unit));
        true
    }

    /// Takes a unit off the board; its place joins the holes beside it. Returns the joined hole.
    pub(crate) fn vacate(&mut self, start: u64) -> Option<Extent> {
        let (length, _) = self.slots.remove(&start)?;
        let (mut from, mut to) = (start, start + length);
        if let Some((&s, &l)) = self.holes.range(..start).next_back()
            && s + l == start
        {
            self.take_hole(s);
            from = s;
        }
        if let Some(l) = self.take_hole(to) {
            to += l;
        }
        self.add_hole(from, to - from);
        Some(Extent::new(from, to - from))
    }

    /// The smallest hole that takes `length` blocks.
    pub(crate) fn best_fit(&self, length: u64) -> Option<Extent> {
        self.by_length.range((length, 0)..).next().map(|(l, s)| Extent::new(*s, *l))
    }

    /// The largest hole.
    pub(crate) fn largest(&self) -> Option<Extent> {
        self.by_length.last().map(|(l, s)| Extent::new(*s, *l))
    }

    /// The smallest hole behind `after` in the order of (length, start).
    pub(crate) fn next_hole(&self, after: (u64, u64)) -> Option<Extent> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.by_length.range((Excluded(after), Unbounded)).next().map(|(l, s)| Extent::new(*s, *l))
    }

    pub(crate) fn hole_count(&self) -> usize {
        self.holes.len()
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.iter().map(|(s, (l, u))| Slot { start: *s, length: *l, unit: *u })
    }

    /// The units directly before and behind a hole.
    pub(crate) fn neighbours(&self, hole: Extent) -> [Option<Slot>; 2] {
        let before = self.slots.range(..hole.start.0).next_back().filter(|(s, (l, _))| **s + *l == hole.start.0);
        let behind = self.slots.get_key_value(&hole.end().0);
        [before, behind].map(|found| found.map(|(s, (l, u))| Slot { start: *s, length: *l, unit: *u }))
    }

    /// The holes directly before and behind a slot.
    pub(crate) fn holes_beside(&self, slot: &Slot) -> [Option<Extent>; 2] {
        let before = self.holes.range(..slot.start).next_back().filter(|(s, l)| **s + **l == slot.start);
        let behind = self.holes.get_key_value(&(slot.start + slot.length));
        [before, behind].map(|found| found.map(|(s, l)| Extent::new(*s, *l)))
    }

    /// The cheapest stretch of at least `length` blocks, made of holes and of slots whose `price` is known (`None`:
    /// must stay). Looks at no more than `patience` slots, from where the last search ended.
    pub(crate) fn cheapest_clearing(
        &mut self,
        length: u64,
        patience: usize,
        price: impl Fn(&Slot) -> Option<u64>,
    ) -> Option<Clearing> {
        let mut best: Option<(u64, u64, u64)> = None; // (price, start, end)
        let mut stretch = Stretch::default();
        let from = self.cursor;
        let upper = self.slots.range(from..).map(|(s, v)| (*s, *v));
        let lower = self.slots.range(..from).map(|(s, v)| (*s, *v));
        let mut last = from;
        for (start, (slot_length, unit)) in upper.chain(lower).take(patience) {
            if start < last {
                stretch = Stretch::default();
            }
            last = start;
            let slot = Slot { start, length: slot_length, unit };
            let hole_before = self.holes.range(..start).next_back().filter(|(s, l)| **s + **l == start);
            let joined_start = hole_before.map_or(start, |(s, _)| *s);
            if stretch.end != joined_start {
                stretch = Stretch::default();
            }
            if stretch.parts.is_empty() {
                stretch.start = joined_start;
            }
            let Some(cost) = price(&slot) else {
                stretch = Stretch::default();
                continue;
            };
            let end = start + slot_length;
            let end_with_hole = end + self.holes.get(&end).copied().unwrap_or(0);
            stretch.parts.push_back((joined_start, end, cost));
            stretch.cost += cost;
            stretch.end = end;
            // Drop slots from the front while the rest is still long enough.
            while let Some(&(_, first_end, first_cost)) = stretch.parts.front() {
                let without = stretch.parts.get(1).map_or(first_end, |p| p.0);
                if stretch.parts.len() > 1 && end_with_hole - without >= length {
                    stretch.parts.pop_front();
                    stretch.cost -= first_cost;
                    stretch.start = without;
                } else {
                    break;
                }
            }
            if end_with_hole - stretch.start >= length && best.is_none_or(|(price, ..)| stretch.cost < price) {
                best = Some((stretch.cost, stretch.start, end_with_hole));
                if stretch.cost * 8 < length {
                    break;
                }
            }
        }
        self.cursor = last;
        let (_, start, end) = best?;
        let evict = self.slots.range(start..end).map(|(s, (l, u))| Slot { start: *s, length: *l, unit: *u }).collect();
        Some(Clearing { start, evict })
    }
}

/// A growing and shrinking stretch of slots, each with the hole before it.
#[derive(Default)]
struct Stretch {
    start: u64,
    end: u64,
    cost: u64,
    /// (start of the hole before the slot, end of the slot, price).
    parts: std::collections::VecDeque<(u64, u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots `(start, length)` that do not overlap, on a board of 100 blocks.
    fn board(slots: &[(u64, u64)]) -> Board {
        let mut board = Board::new([Extent::new(0, 100), Extent::new(200, 30)]);
        for (unit, (start, length)) in slots.iter().enumerate() {
            board.occupy(*start, *length, unit);
        }
        board
    }

    /// The cheapest stretch by trying every start and end.
    fn brute(board: &Board, length: u64) -> Option<u64> {
        let slots: Vec<Slot> = board.slots().collect();
        let mut best = None;
        for (first, last) in [(0, 100), (200, 230)] {
            for start in first..last {
                let end = start + length;
                if end > last || slots.iter().any(|s| s.start < start && start < s.start + s.length) {
                    continue;
                }
                let inside = slots.iter().filter(|s| s.start < end && start < s.start + s.length);
                let (count, cost) = inside.fold((0, 0), |(n, c), s| (n + 1, c + s.length));
                if count > 0 && best.is_none_or(|b| cost < b) {
                    best = Some(cost);
                }
            }
        }
        best
    }

    proptest! {
        #[test]
        fn a_board_that_is_filled_at_once_is_one_filled_bit_by_bit(
            mut slots in prop::collection::vec((0u64..240, 1u64..20), 0..20),
        ) {
            slots.sort_unstable();
            let space: ExtentSet = [Extent::new(0, 100), Extent::new(200, 30)].into_iter().collect();
            let placed = slots.iter().enumerate().map(|(unit, (start, length))| Slot { start: *start, length: *length, unit });
            let (filled, slowly) = (Board::filled(&space, placed), board(&slots));
            prop_assert_eq!(filled.slots, slowly.slots);
            prop_assert_eq!(filled.holes, slowly.holes);
            prop_assert_eq!(filled.by_length, slowly.by_length);
        }

        #[test]
        fn a_clearing_is_long_enough_and_near_the_cheapest(
            slots in prop::collection::vec((0u64..230, 1u64..20), 1..16),
            length in 5u64..60,
        ) {
            let mut board = board(&slots);
            let holes: u64 = board.holes.values().sum();
            let used: u64 = board.slots().map(|s| s.length).sum();
            prop_assert_eq!(holes + used, 130);
            let fits = board.best_fit(length).is_some();
            let naive = brute(&board, length);
            let found = board.cheapest_clearing(length, 1000, |s| Some(s.length));
            if let Some(found) = found {
                let cost: u64 = found.evict.iter().map(|s| s.length).sum();
                for slot in &found.evict {
                    board.vacate(slot.start);
                }
                prop_assert!(board.hole_at(found.start, length).is_some(), "the clearing must take the unit");
                prop_assert!(cost <= naive.unwrap_or(u64::MAX).max(length / 8));
            } else {
                prop_assert!(naive.is_none() || fits);
            }
        }
    }

    #[test]
    fn vacating_joins_the_holes_beside() {
        let mut board = board(&[(10, 5), (20, 5)]);
        assert_eq!(board.vacate(10), Some(Extent::new(0, 20)));
        assert_eq!(board.hole_count(), 3);
        assert!(board.vacate(10).is_none());
        assert!(!board.occupy(18, 4, 9), "a place in a slot is refused");
    }
}
