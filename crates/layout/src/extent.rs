//! Physical ranges, and ordered sets of them.

use crate::{Blocks, PhysicalBlock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A contiguous range of physical blocks, never empty in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// First block.
    pub start: PhysicalBlock,
    /// Number of blocks.
    pub length: Blocks,
}

impl Extent {
    /// The range of `length` blocks from `start`.
    #[must_use]
    pub const fn new(start: u64, length: u64) -> Self {
        Self { start: PhysicalBlock(start), length: Blocks(length) }
    }

    /// The range from `start` up to, not including, `end`; empty when they meet.
    #[must_use]
    pub fn between(start: PhysicalBlock, end: PhysicalBlock) -> Self {
        Self { start, length: Blocks(end.0.saturating_sub(start.0)) }
    }

    /// The first block behind the range.
    #[must_use]
    pub fn end(&self) -> PhysicalBlock {
        self.start + self.length
    }

    /// Whether the range has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length.0 == 0
    }

    /// The blocks that both ranges have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let common = Self::between(self.start.max(other.start), self.end().min(other.end()));
        (!common.is_empty()).then_some(common)
    }

    /// Whether all of `other` lies in `self`.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// An ordered set of physical blocks, kept as disjoint, non-adjacent extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentSet {
    extents: BTreeMap<u64, u64>,
    total: u64,
}

impl ExtentSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds blocks; those already in the set stay.
    pub fn insert(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let (start, mut end) = (extent.start.0, extent.end().0);
        // Everything behind `start` that overlaps or touches is swallowed.
        while let Some((&s, &l)) = self.extents.range(start + 1..=end).next() {
            end = end.max(s + l);
            self.extents.remove(&s);
            self.total -= l;
        }
        // At most one extent that overlaps or touches starts before: it grows.
        match self.extents.range_mut(..=start).next_back() {
            Some((&s, l)) if s + *l >= start => {
                let longer = (*l).max(end - s);
                self.total += longer - *l;
                *l = longer;
            }
            _ => {
                self.extents.insert(start, end - start);
                self.total += end - start;
            }
        }
    }

    /// Takes blocks out; those not in the set are ignored. Returns how many were taken out.
    pub fn remove(&mut self, extent: Extent) -> Blocks {
        if let Some(removed) = self.remove_from_one(extent) {
            return removed;
        }
        let parts: Vec<Extent> = self.overlapping(extent).collect();
        let (start, end) = (extent.start.0, extent.end().0);
        let mut removed = 0;
        for part in parts {
            // `part` is the clipped range; find the whole extent it came from.
            let Some((&s, &l)) = self.extents.range(..=part.start.0).next_back() else { continue };
            self.extents.remove(&s);
            if s < start {
                self.extents.insert(s, start - s);
            }
            if s + l > end {
                self.extents.insert(end, s + l - end);
            }
            removed += part.length.0;
        }
        self.total -= removed;
        Blocks(removed)
    }

    /// The same where one extent of the set holds all of it, as is the rule.
    fn remove_from_one(&mut self, extent: Extent) -> Option<Blocks> {
        let (start, end) = (extent.start.0, extent.end().0);
        let (&s, l) = self.extents.range_mut(..=start).next_back()?;
        let behind = (s + *l).checked_sub(end)?;
        if extent.is_empty() {
            return Some(Blocks(0));
        }
        if s == start {
            self.extents.remove(&s);
        } else {
            *l = start - s;
        }
        if behind > 0 {
            self.extents.insert(end, behind);
        }
        self.total -= extent.length.0;
        Some(extent.length)
    }

    /// The parts of the set inside `extent`, clipped to it, ascending.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let first = self
            .extents
            .range(..extent.start.0)
            .next_back()
            .filter(|(s, l)| **s + **l > extent.start.0)
            .map_or(extent.start.0, |(s, _)| *s);
        self.extents
            .range(first..extent.end().0.max(first))
            .filter_map(move |(s, l)| Extent::new(*s, *l).intersection(&extent))
    }

    /// Whether every block of `extent` is in the set.
    #[must_use]
    pub fn covers(&self, extent: Extent) -> bool {
        extent.is_empty() || self.extent_at(extent.start).is_some_and(|e| e.contains(&extent))
    }

    /// The extent of the set that holds `block`.
    #[must_use]
    pub fn extent_at(&self, block: PhysicalBlock) -> Option<Extent> {
        let (&s, &l) = self.extents.range(..=block.0).next_back()?;
        (s + l > block.0).then(|| Extent::new(s, l))
    }

    /// All extents, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        self.extents.iter().map(|(s, l)| Extent::new(*s, *l))
    }

    /// The blocks in the set.
    #[must_use]
    pub fn total(&self) -> Blocks {
        Blocks(self.total)
    }

    /// The number of contiguous extents.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.extents.len()
    }

    /// Whether the set has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The longest extent (the first of equals).
    #[must_use]
    pub fn largest(&self) -> Option<Extent> {
        self.iter().rev().max_by_key(|e| e.length)
    }

    /// The largest pieces first, and of the last one as much as makes them `most` blocks together.
    pub fn largest_up_to(&self, most: Blocks) -> impl Iterator<Item = Extent> + use<> {
        let mut pieces: Vec<Extent> = self.iter().collect();
        pieces.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.length));
        let mut left = most;
        pieces.into_iter().map_while(move |piece| {
            let length = piece.length.min(left);
            left -= length;
            Some(Extent { start: piece.start, length }).filter(|taken| !taken.is_empty())
        })
    }

    /// The blocks of `within` that are not in the set, ascending.
    #[must_use]
    pub fn gaps(&self, within: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut at = within.start;
        for taken in self.overlapping(within) {
            if taken.start > at {
                gaps.push(Extent::between(at, taken.start));
            }
            at = taken.end();
        }
        if at < within.end() {
            gaps.push(Extent::between(at, within.end()));
        }
        gaps
    }
}

impl FromIterator<Extent> for ExtentSet {
    /// At once: much faster than one after the other.
    fn from_iter<I: IntoIterator<Item = Extent>>(iter: I) -> Self {
        let joined = joined(iter.into_iter().collect());
        let total = joined.iter().map(|extent| extent.length.0).sum();
        Self { extents: joined.into_iter().map(|extent| (extent.start.0, extent.length.0)).collect(), total }
    }
}

/// The same blocks as ascending, disjoint, non-adjacent extents.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.retain(|extent| !extent.is_empty());
    extents.sort_unstable();
    extents.dedup_by(|next, kept| {
        let touches = next.start <= kept.end();
        if touches {
            *kept = Extent::between(kept.start, kept.end().max(next.end()));
        }
        touches
    });
    extents
}

impl Extend<Extent> for ExtentSet {
    fn extend<I: IntoIterator<Item = Extent>>(&mut self, iter: I) {
        for extent in iter {
            self.insert(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_pieces_come_first_and_the_last_one_is_cut() {
        let set: ExtentSet = [Extent::new(0, 3), Extent::new(10, 8), Extent::new(30, 5)].into_iter().collect();
        let of = |most| set.largest_up_to(Blocks(most)).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(10), [Extent::new(10, 8), Extent::new(30, 2)]);
        assert_eq!(of(100), [Extent::new(10, 8), Extent::new(30, 5), Extent::new(0, 3)]);
    }

    proptest! {
        #[test]
        fn a_set_that_is_made_at_once_is_one_made_bit_by_bit(extents in prop::collection::vec((0u64..200, 0u64..20), 0..40)) {
            let extents: Vec<Extent> = extents.into_iter().map(|(start, length)| Extent::new(start, length)).collect();
            let mut set = ExtentSet::new();
            extents.iter().for_each(|extent| set.insert(*extent));
            prop_assert_eq!(extents.into_iter().collect::<ExtentSet>(), set);
        }

        #[test]
        fn a_set_agrees_with_a_bitmap(ops in prop::collection::vec((any::<bool>(), 0u64..200, 0u64..40), 0..60), probe in (0u64..200, 1u64..60)) {
            let (mut set, mut bits) = (ExtentSet::new(), [false; 240]);
            for (add, start, length) in ops {
                let extent = Extent::new(start, length);
                if add { set.insert(extent) } else {
                    let had = bits[start as usize..(start + length) as usize].iter().filter(|b| **b).count();
                    prop_assert_eq!(set.remove(extent).0, had as u64);
                }
                bits[start as usize..(start + length) as usize].fill(add);
            }
            let from_set: Vec<bool> = (0..240).map(|b| set.extent_at(PhysicalBlock(b)).is_some()).collect();
            prop_assert_eq!(&from_set[..], &bits[..]);
            prop_assert_eq!(set.total().0 as usize, bits.iter().filter(|b| **b).count());
            let edges = bits.windows(2).filter(|w| !w[0] && w[1]).count() + usize::from(bits[0]);
            prop_assert_eq!(set.pieces(), edges);
            let within = Extent::new(probe.0.min(180), probe.1);
            let inside: u64 = set.overlapping(within).map(|e| e.length.0).sum();
            let outside: u64 = set.gaps(within).iter().map(|e| e.length.0).sum();
            prop_assert_eq!(inside + outside, within.length.0);
            prop_assert_eq!(set.covers(within), outside == 0);
        }
    }
}
