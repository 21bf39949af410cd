//! The free space that is nobody's place, by length.
//!
//! Owns where it lies. It is kept as a plan goes on: to make it anew at each barrier took most of the time of a plan for a volume with
//! tens of thousands of free pieces.

use longrun_layout::{Extent, ExtentSet, PhysicalBlock};
use std::collections::BTreeSet;

/// Extents, the smallest and the largest of which are found at once.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    extents: ExtentSet,
    /// Where the regions of the volume begin, ascending.
    borders: Vec<u64>,
    /// (length, start) of each extent, for what lies before the first border and behind each. Extents lie in one region.
    by_length: Vec<BTreeSet<(u64, u64)>>,
}

impl Spare {
    pub(super) fn new(extents: &ExtentSet, borders: Vec<u64>) -> Self {
        let by_length = vec![BTreeSet::new(); borders.len() + 1];
        let mut spare = Self { extents: extents.clone(), borders, by_length };
        extents.iter().for_each(|extent| spare.list(extent));
        spare
    }

    fn lengths(&mut self, extent: Extent) -> Option<&mut BTreeSet<(u64, u64)>> {
        let region = self.borders.partition_point(|border| *border <= extent.start.0);
        self.by_length.get_mut(region)
    }

    fn list(&mut self, extent: Extent) {
        if let Some(lengths) = self.lengths(extent) {
            lengths.insert(key(extent));
        }
    }

    /// Adds blocks that it does not have.
    pub(super) fn insert(&mut self, extent: Extent) {
        self.change(with_neighbours(extent), |extents| extents.insert(extent));
    }

    /// Takes blocks out; those that it does not have are ignored.
    pub(super) fn remove(&mut self, extent: Extent) {
        self.change(extent, |extents| _ = extents.remove(extent));
    }

    /// Changes the extents that overlap `touched`, and no others.
    fn change(&mut self, touched: Extent, change: impl FnOnce(&mut ExtentSet)) {
        for extent in whole(&self.extents, touched) {
            if let Some(lengths) = self.lengths(extent) {
                lengths.remove(&key(extent));
            }
        }
        change(&mut self.extents);
        // What is left of an extent that was cut lies beside it.
        whole(&self.extents, with_neighbours(touched)).into_iter().for_each(|extent| self.list(extent));
    }

    /// The largest extent where there is room, the first of equals; `open` says so of a block.
    pub(super) fn largest(&self, open: impl Fn(u64) -> bool) -> Option<Extent> {
        let largest = |lengths: &BTreeSet<(u64, u64)>| {
            let (length, _) = *lengths.last()?;
            lengths.range((length, 0)..).next().copied()
        };
        let each = self.by_length.iter().filter_map(largest).filter(|(_, start)| open(*start));
        let (length, start) = each.max_by_key(|(length, start)| (*length, std::cmp::Reverse(*start)))?;
        Some(Extent::new(start, length))
    }

    /// The smallest extent that has so many blocks, where there is room, the first of equals.
    pub(super) fn best_fit(&self, length: u64, open: impl Fn(u64) -> bool) -> Option<Extent> {
        let each = self.by_length.iter().filter_map(|lengths| lengths.range((length, 0)..).next());
        let (length, start) = *each.filter(|(_, start)| open(*start)).min()?;
        Some(Extent::new(start, length))
    }
}

fn with_neighbours(extent: Extent) -> Extent {
    Extent::between(PhysicalBlock(extent.start.0.saturating_sub(1)), PhysicalBlock(extent.end().0 + 1))
}

fn key(extent: Extent) -> (u64, u64) {
    (extent.length.0, extent.start.0)
}

/// The extents that overlap another one, not clipped to it.
fn whole(extents: &ExtentSet, touched: Extent) -> Vec<Extent> {
    extents.overlapping(touched).filter_map(|part| extents.extent_at(part.start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lengths_are_those_of_the_extents(steps in prop::collection::vec((0u64..200, 1u64..30, any::<bool>()), 0..60), length in 1u64..40) {
            let mut spare = Spare::new(&ExtentSet::new(), vec![50, 100]);
            for (start, length, adds) in steps {
                let extent = Extent::new(start, length);
                if adds {
                    spare.insert(extent);
                } else {
                    spare.remove(extent);
                }
                let listed: BTreeSet<(u64, u64)> = spare.by_length.iter().flatten().copied().collect();
                prop_assert_eq!(listed, spare.extents.iter().map(key).collect::<BTreeSet<_>>());
            }
            prop_assert_eq!(spare.largest(|_| true), spare.extents.largest());
            let fitting = |region: std::ops::Range<u64>| {
                let large = spare.extents.iter().filter(|extent| extent.length.0 >= length && region.contains(&extent.start.0));
                large.map(key).min()
            };
            let fit = spare.best_fit(length, |block| !(50..100).contains(&block));
            prop_assert_eq!(fit.map(key), [fitting(0..50), fitting(100..300)].into_iter().flatten().min());
        }
    }
}
