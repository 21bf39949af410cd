//! The map of a file while the engine moves it. Searches and changes take logarithmic time, because a badly fragmented
//! file has 100 000 runs and moves each of them.

use crate::range_map::{RangeMap, Slide};
use longrun_layout::{Blocks, Extent, LogicalBlock, LogicalRange, PhysicalBlock, Run, count_fragments};

impl Slide for PhysicalBlock {
    fn slide(self, by: u64) -> Self {
        self + Blocks(by)
    }
}

/// The physical block of each logical block of a file.
#[derive(Clone, Debug, Default)]
pub struct FileMap {
    places: RangeMap<PhysicalBlock>,
}

impl FileMap {
    /// Of runs in any order; of two that overlap the later one counts.
    pub fn new(runs: impl IntoIterator<Item = Run>) -> Self {
        let range = |run: Run| (Extent::new(run.logical.0, run.length.0), run.physical);
        Self { places: RangeMap::of(runs.into_iter().map(range).collect()) }
    }

    /// What of `runs` counts for moves within `range`: what lies there, and the nearest block on either side, which can be contiguous
    /// with it, across a hole too. A badly fragmented file is moved in many units: with all its runs in the map of each, the time grows
    /// with their square.
    pub fn around(runs: &[Run], range: LogicalRange) -> Self {
        let before = runs.iter().filter(|run| run.logical < range.start);
        let before = before.map(|run| run.logical_end().min(range.start)).max().map(|end| LogicalBlock(end.0 - 1));
        let behind = runs.iter().filter(|run| run.logical_end() > range.end());
        let behind = behind.map(|run| run.logical.max(range.end())).min().map(|start| start + Blocks(1));
        let (start, end) = (before.unwrap_or(range.start), behind.unwrap_or(range.end()));
        let part = |run: &Run| {
            let logical = run.logical.max(start);
            let length = Blocks(run.logical_end().min(end).0.saturating_sub(logical.0));
            (length.0 > 0).then(|| Run { logical, physical: run.physical + (logical - run.logical), length })
        };
        Self::new(runs.iter().filter_map(part))
    }

    /// Maps a logical range to a place, whatever was known of it before.
    pub fn put(&mut self, logical: LogicalBlock, physical: PhysicalBlock, length: Blocks) {
        self.places.assign(Extent::new(logical.0, length.0), physical);
    }

    /// How many blocks, at most `most`, lie from `physical` on, contiguously, starting with `logical`.
    pub fn lies(&self, logical: LogicalBlock, physical: PhysicalBlock, most: Blocks) -> Blocks {
        let mut found = Blocks(0);
        for (part, place) in self.places.overlapping(Extent::new(logical.0, most.0)) {
            if part.start.0 != logical.0 + found.0 || place != physical + found {
                break;
            }
            found += part.length;
        }
        found
    }

    /// The known ranges, ascending; neighbours that continue each other may be apart.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.within(LogicalRange::ALL)
    }

    /// The parts of the known ranges inside a range of logical blocks.
    pub fn within(&self, range: LogicalRange) -> impl Iterator<Item = Run> + '_ {
        let run = |(part, physical): (Extent, PhysicalBlock)| Run {
            logical: LogicalBlock(part.start.0),
            physical,
            length: part.length,
        };
        self.places.overlapping(Extent::new(range.start.0, range.length.0)).map(run)
    }

    /// The contiguous ranges, as reports count them.
    pub fn fragments(&self) -> u64 {
        count_fragments(self.runs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_runs_around_a_range_tell_how_a_move_within_it_changes_the_fragments(
            runs in vec((0u64..3, 1u64..4, 0u64..30), 1..12),
            start in 0u64..30, length in 1u64..12, target in 0u64..30,
        ) {
            let mut logical = 0;
            let runs = runs.into_iter().map(|(hole, length, physical)| {
                let run = Run::new(logical + hole, physical, length);
                logical += hole + length;
                run
            });
            let runs: Vec<Run> = runs.collect();
            let range = LogicalRange { start: LogicalBlock(start), length: Blocks(length) };
            let before = FileMap::new(runs.iter().copied());
            let mut after = before.clone();
            for run in before.within(range).collect::<Vec<_>>() {
                after.put(run.logical, PhysicalBlock(target) + (run.logical - range.start), run.length);
            }
            let around = |map: &FileMap| FileMap::around(&map.runs().collect::<Vec<_>>(), range).fragments() as i64;
            prop_assert_eq!(around(&after) - around(&before), after.fragments() as i64 - before.fragments() as i64);
        }
    }

    #[test]
    fn a_map_tells_how_far_a_range_lies_where_it_should() {
        let mut map = FileMap::new([Run::new(0, 100, 10), Run::new(10, 200, 10), Run::new(30, 210, 5)]);
        let lies = |map: &FileMap, logical, physical, most| {
            map.lies(LogicalBlock(logical), PhysicalBlock(physical), Blocks(most)).0
        };
        assert_eq!(map.fragments(), 2, "the hole before block 30 does not count");
        assert_eq!(
            [lies(&map, 3, 103, 50), lies(&map, 3, 103, 4), lies(&map, 3, 104, 4), lies(&map, 20, 210, 5)],
            [7, 4, 0, 0]
        );
        map.put(LogicalBlock(10), PhysicalBlock(110), Blocks(10));
        assert_eq!((map.fragments(), lies(&map, 0, 100, 100)), (2, 20));
    }
}
