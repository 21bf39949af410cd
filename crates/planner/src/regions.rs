//! Regions of a volume that reserve free blocks, and what remains for a plan.
//!
//! Owns the account of how much may still be moved into each region. On a volume without such regions it permits
//! everything.

use longrun_layout::{Blocks, Extent, ExtentSet, Region};

/// Blocks that a move within a region needs free besides what is kept: it is made in steps of at most so many (4 MiB of
/// 4 KiB blocks), and takes the new place of each before it leaves the old one.
pub(crate) const STEP: u64 = 1024;

/// How many blocks each region can still give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    /// Ascending.
    regions: Vec<Region>,
    spare: Vec<i64>,
}

impl Regions {
    /// The regions as they are with all free space of the volume.
    ///
    /// What they keep is known as a sum; each keeps its share of it at most roughly. Where the volume as a whole has no room for a
    /// step, no region has, whatever is free in it: the file system gives nothing any more.
    pub(crate) fn new(regions: &[Region], free: &ExtentSet) -> Self {
        let spare = |region: &Region| {
            let free: u64 = free.overlapping(region.extent).map(|piece| piece.length.0).sum();
            free as i64 - region.kept_free.0 as i64
        };
        let mut spare: Vec<i64> = regions.iter().map(spare).collect();
        if spare.iter().sum::<i64>() < STEP as i64 {
            spare.iter_mut().for_each(|spare| *spare = (*spare).min(0));
        }
        Self { regions: regions.to_vec(), spare }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Where each begins, ascending.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        self.regions.iter().map(|region| region.extent.start.0)
    }

    /// The region that a block lies in.
    fn at(&self, block: u64) -> Option<usize> {
        let behind = self.regions.partition_point(|region| region.extent.start.0 <= block);
        let index = behind.checked_sub(1)?;
        self.regions.get(index).is_some_and(|region| block < region.extent.end().0).then_some(index)
    }

    fn spare_at(&self, index: usize) -> u64 {
        self.spare.get(index).map_or(0, |spare| u64::try_from(*spare).unwrap_or(0))
    }

    /// Whether `length` blocks may move from `from` to `to` now.
    pub(crate) fn allow(&self, from: u64, to: u64, length: u64) -> bool {
        let Some(into) = self.at(to) else { return true };
        let needed = if self.at(from) == Some(into) { length.min(STEP) } else { length };
        self.spare_at(into) >= needed
    }

    /// The blocks that may be moved to `to` now, wherever from.
    pub(crate) fn room(&self, to: u64) -> u64 {
        self.at(to).map_or(u64::MAX, |index| self.spare_at(index))
    }

    /// Whether there is room for a step where a block lies.
    pub(crate) fn is_open(&self, block: u64) -> bool {
        self.room(block) >= STEP
    }

    /// Takes note of a move.
    pub(crate) fn moved(&mut self, from: u64, to: u64, length: u64) {
        for (block, change) in [(from, length as i64), (to, -(length as i64))] {
            if let Some(spare) = self.at(block).and_then(|index| self.spare.get_mut(index)) {
                *spare += change;
            }
        }
    }

    /// The parts of `free` that lie where there is room.
    pub(crate) fn open(&self, free: ExtentSet) -> ExtentSet {
        let mut open = free;
        for region in self.regions.iter().filter(|region| !self.is_open(region.extent.start.0)) {
            open.remove(region.extent);
        }
        open
    }
}

/// The free blocks that each region must have in a zone: its reserve, and one step to work with if there is enough.
pub(crate) fn shares(regions: &[Region], free: u64) -> Vec<(Extent, u64)> {
    let kept: u64 = regions.iter().map(|region| region.kept_free.0).sum();
    let step = (free.saturating_sub(kept) / (2 * regions.len() as u64).max(1)).min(STEP);
    regions.iter().map(|Region { extent, kept_free: Blocks(kept) }| (*extent, kept + step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_gives_only_what_it_does_not_keep() {
        let region = |start, length, kept| Region { extent: Extent::new(start, length), kept_free: Blocks(kept) };
        let free: ExtentSet = [Extent::new(10, 50), Extent::new(120, 30)].into_iter().collect();
        // The third makes the sum large enough.
        let free: ExtentSet = free.iter().chain([Extent::new(10_000, 5000)]).collect();
        let regions = [region(0, 100, 20), region(100, 100, 30), region(10_000, 5000, 0)];
        let mut regions = Regions::new(&regions, &free);
        assert!(regions.allow(150, 10, 30) && !regions.allow(150, 10, 31));
        assert!(!regions.allow(10, 150, 1) && regions.allow(10, 250, 1_000_000));
        regions.moved(150, 10, 30);
        assert!(!regions.allow(150, 10, 1) && regions.allow(10, 150, 30));
        assert_eq!((regions.room(0), regions.room(100), regions.room(200)), (0, 30, u64::MAX));
    }

    #[test]
    fn without_room_for_a_step_in_all_of_them_none_gives_anything() {
        let region = |start, kept| Region { extent: Extent::new(start, 5000), kept_free: Blocks(kept) };
        let free: ExtentSet = [Extent::new(0, 2000), Extent::new(5000, 100)].into_iter().collect();
        let with = |kept| Regions::new(&[region(0, kept), region(5000, kept)], &free);
        // 2100 - 2 * 538 = 1024: the first has 1462 for itself.
        assert!(with(538).allow(6000, 10, 1462) && with(538).is_open(0) && !with(538).is_open(5000));
        let short = with(539);
        assert!(!short.allow(4000, 10, 1) && !short.is_open(0) && short.room(0) == 0);
    }
}
