//! Ordered sets of physical blocks.
//!
//! Planners, books of free space and scans ask such a set millions of times, and it has as many extents as a volume has free pieces. So
//! it is a sorted array in leaves: two binary searches find a place, and what a change moves is at most one leaf.

use crate::extent::joined;
use crate::{Blocks, Extent, PhysicalBlock};
use std::fmt;

/// The most extents of a leaf: 4 KiB. A leaf that grows beyond that becomes two. In tests leaves are full soon.
const MOST: usize = if cfg!(test) { 4 } else { 256 };

/// An ordered set of physical blocks, kept as disjoint, non-adjacent extents.
#[derive(Clone, Default)]
pub struct ExtentSet {
    /// Ascending; none is empty.
    leaves: Vec<Leaf>,
    pieces: usize,
    total: u64,
}

/// Some extents that follow each other.
#[derive(Clone)]
struct Leaf {
    /// Where the first of them begins: leaves are found without looking into them.
    first: PhysicalBlock,
    extents: Vec<Extent>,
}

impl Leaf {
    /// `None` without extents.
    fn of(extents: Vec<Extent>) -> Option<Self> {
        Some(Self { first: extents.first()?.start, extents })
    }
}

/// A place in the order: before the extent of this number in this leaf, or behind the last one of the leaf.
#[derive(Clone, Copy)]
struct Place {
    leaf: usize,
    nth: usize,
}

impl ExtentSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The place behind the extents that begin before `block` or there.
    fn behind(&self, block: PhysicalBlock) -> Place {
        let leaf = self.leaves.partition_point(|leaf| leaf.first <= block).saturating_sub(1);
        let extents = self.leaves.get(leaf).map_or(&[][..], |leaf| &leaf.extents);
        Place { leaf, nth: extents.partition_point(|extent| extent.start <= block) }
    }

    /// The extent before a place that [`Self::behind`] has found: it is in the same leaf.
    fn before(&self, place: Place) -> Option<Extent> {
        self.leaves.get(place.leaf)?.extents.get(place.nth.checked_sub(1)?).copied()
    }

    /// The place of the first extent that ends behind `block`.
    fn from(&self, block: PhysicalBlock) -> Place {
        let behind = self.behind(block);
        match self.before(behind) {
            Some(extent) if extent.end() > block => Place { nth: behind.nth - 1, ..behind },
            _ => behind,
        }
    }

    /// The extents from a place on.
    fn extents_from(&self, place: Place) -> impl Iterator<Item = Extent> + '_ {
        let mut leaves = self.leaves.get(place.leaf..).unwrap_or_default().iter();
        let here = leaves.next().and_then(|leaf| leaf.extents.get(place.nth..)).unwrap_or_default();
        here.iter().chain(leaves.flat_map(|leaf| &leaf.extents)).copied()
    }

    /// Puts `with`, which may be empty, in the place of the extents between two places.
    fn replace(&mut self, from: Place, to: Place, with: impl Iterator<Item = Extent>) {
        let Some(leaf) = self.leaves.get_mut(from.leaf) else {
            // The set is empty.
            let extents: Vec<Extent> = with.collect();
            self.pieces = extents.len();
            self.total = extents.iter().map(|extent| extent.length.0).sum();
            self.leaves.extend(Leaf::of(extents));
            return;
        };
        let (mut added, mut more) = (0, 0);
        let with = with.inspect(|extent| {
            added += 1;
            more += extent.length.0;
        });
        let end = if from.leaf == to.leaf { to.nth } else { leaf.extents.len() };
        let (mut taken, mut less) = (0, 0);
        let mut count = |extent: Extent| {
            taken += 1;
            less += extent.length.0;
        };
        leaf.extents.splice(from.nth..end, with).for_each(&mut count);
        for leaf in self.leaves.get_mut(from.leaf + 1..to.leaf).into_iter().flatten() {
            leaf.extents.drain(..).for_each(&mut count);
        }
        if to.leaf > from.leaf
            && let Some(leaf) = self.leaves.get_mut(to.leaf)
        {
            leaf.extents.drain(..to.nth).for_each(&mut count);
        }
        self.pieces = self.pieces + added - taken;
        self.total = self.total + more - less;
        self.tidy(from.leaf, to.leaf);
    }

    /// Makes the leaves from `first` to `last` what leaves must be, after their extents have changed.
    fn tidy(&mut self, first: usize, last: usize) {
        let mut has_empty = false;
        for leaf in self.leaves.get_mut(first..=last).into_iter().flatten() {
            match leaf.extents.first() {
                Some(extent) => leaf.first = extent.start,
                None => has_empty = true,
            }
        }
        if has_empty {
            let (mut nth, range) = (0, first..=last);
            self.leaves.retain(|leaf| {
                let stays = !range.contains(&nth) || !leaf.extents.is_empty();
                nth += 1;
                stays
            });
        }
        let Some(leaf) = self.leaves.get_mut(first).filter(|leaf| leaf.extents.len() > MOST) else { return };
        let half = Leaf::of(leaf.extents.split_off(MOST / 2));
        self.leaves.splice(first + 1..first + 1, half);
    }

    /// Adds blocks; those already in the set stay.
    pub fn insert(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let behind = self.behind(extent.start);
        // At most one extent that overlaps or touches starts before: it grows.
        let (from, start, mut end) = match self.before(behind) {
            Some(before) if before.end() >= extent.end() => return,
            Some(before) if before.end() >= extent.start => {
                (Place { nth: behind.nth - 1, ..behind }, before.start, extent.end())
            }
            _ => (behind, extent.start, extent.end()),
        };
        // Everything behind that overlaps or touches is swallowed. Mostly nothing is.
        let mut to = behind;
        if self.extents_from(behind).next().is_some_and(|next| next.start <= end) {
            to = self.behind(end);
            end = end.max(self.before(to).map_or(end, |last| last.end()));
        }
        self.replace(from, to, std::iter::once(Extent::between(start, end)));
    }

    /// Takes blocks out; those not in the set are ignored. Returns how many were taken out.
    pub fn remove(&mut self, extent: Extent) -> Blocks {
        if extent.is_empty() {
            return Blocks(0);
        }
        let (start, end) = (extent.start, extent.end());
        let (from, to) = (self.from(start), self.behind(PhysicalBlock(end.0 - 1)));
        let first = self.extents_from(from).next().filter(|first| first.start < end);
        let (Some(first), Some(last)) = (first, self.before(to)) else { return Blocks(0) };
        let before = self.total;
        let rest = [Extent::between(first.start, start), Extent::between(end, last.end())];
        self.replace(from, to, rest.into_iter().filter(|rest| !rest.is_empty()));
        Blocks(before - self.total)
    }

    /// The parts of the set inside `extent`, clipped to it, ascending.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let end = extent.end();
        let extents = self.extents_from(self.from(extent.start)).take_while(move |part| part.start < end);
        extents.filter_map(move |part| part.intersection(&extent))
    }

    /// Whether every block of `extent` is in the set.
    #[must_use]
    pub fn covers(&self, extent: Extent) -> bool {
        extent.is_empty() || self.extent_at(extent.start).is_some_and(|e| e.contains(&extent))
    }

    /// The extent of the set that holds `block`.
    #[must_use]
    pub fn extent_at(&self, block: PhysicalBlock) -> Option<Extent> {
        self.before(self.behind(block)).filter(|extent| extent.end() > block)
    }

    /// All extents, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        self.leaves.iter().flat_map(|leaf| &leaf.extents).copied()
    }

    /// The blocks in the set.
    #[must_use]
    pub fn total(&self) -> Blocks {
        Blocks(self.total)
    }

    /// The number of contiguous extents.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// Whether the set has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
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

impl PartialEq for ExtentSet {
    /// However they were made.
    fn eq(&self, other: &Self) -> bool {
        (self.pieces, self.total) == (other.pieces, other.total) && self.iter().eq(other.iter())
    }
}

impl Eq for ExtentSet {}

impl fmt::Debug for ExtentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Extent> for ExtentSet {
    /// At once: much faster than one after the other.
    fn from_iter<I: IntoIterator<Item = Extent>>(iter: I) -> Self {
        let joined = joined(iter.into_iter().collect());
        let total = joined.iter().map(|extent| extent.length.0).sum();
        // Half full, as if they had been split.
        let leaves = joined.chunks(MOST / 2).filter_map(|extents| Leaf::of(extents.to_vec())).collect();
        Self { leaves, pieces: joined.len(), total }
    }
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
        fn a_set_agrees_with_a_bitmap(ops in prop::collection::vec((any::<bool>(), 0u64..200, prop_oneof![0u64..4, 0u64..40]), 0..120), probe in (0u64..200, 1u64..60)) {
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
            for leaf in &set.leaves {
                prop_assert!(!leaf.extents.is_empty() && leaf.extents.len() <= MOST, "{:?}", leaf.extents);
                prop_assert_eq!(leaf.first, leaf.extents[0].start);
            }
            let (first, last) = (set.iter().next(), set.iter().next_back());
            prop_assert_eq!((first, last), (set.overlapping(Extent::new(0, 240)).next(), set.overlapping(Extent::new(0, 240)).last()));
            let within = Extent::new(probe.0.min(180), probe.1);
            let inside: u64 = set.overlapping(within).map(|e| e.length.0).sum();
            let outside: u64 = set.gaps(within).iter().map(|e| e.length.0).sum();
            prop_assert_eq!(inside + outside, within.length.0);
            prop_assert_eq!(set.covers(within), outside == 0);
        }
    }
}
