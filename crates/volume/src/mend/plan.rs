//! Which ranges of a file are to take the donor's blocks, in which order, and what that makes of it. Pure.

use crate::engine::file_map::FileMap;
use longrun_layout::{Blocks, Extent, LogicalBlock, Run};

/// One range that is moved by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Where in the file.
    pub(super) logical: LogicalBlock,
    /// Where in the donor.
    pub(super) donor: LogicalBlock,
    /// How much.
    pub(super) length: Blocks,
}

/// The calls that move `data` (ascending) into a donor that holds the same without the holes: none longer than `most`,
/// cut where the file is broken anyway as far as that goes. A mending that is stopped between two calls then hardly ever
/// finds the file in more fragments than it had.
pub(super) fn calls(data: &[Run], most: Blocks) -> Vec<Call> {
    let most = most.max(Blocks(1));
    let mut calls: Vec<Call> = Vec::new();
    let mut donor = LogicalBlock(0);
    for run in data {
        let mut left = *run;
        let joins = |call: &Call| call.logical + call.length == run.logical && call.length + run.length <= most;
        if let Some(last) = calls.last_mut().filter(|call| joins(call)) {
            last.length += run.length;
            donor = donor + run.length;
            continue;
        }
        while left.length.0 > 0 {
            let length = left.length.min(most);
            calls.push(Call { logical: left.logical, donor, length });
            donor = donor + length;
            left = Run { logical: left.logical + length, physical: left.physical, length: left.length - length };
        }
    }
    calls
}

/// Notes in `map` that `call` was carried out, with the donor's blocks as `donor` tells them.
pub(super) fn carry_out(map: &mut FileMap, call: &Call, donor: &FileMap) {
    for run in donor.within(Extent::new(call.donor.0, call.length.0)) {
        map.put(call.logical + (run.logical - call.donor), run.physical, run.length);
    }
}

/// The fragments that the file would lie in after all calls.
pub(super) fn fragments_after(file: &FileMap, calls: &[Call], donor: &FileMap) -> u64 {
    let mut map = file.clone();
    calls.iter().for_each(|call| carry_out(&mut map, call, donor));
    map.fragments()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(logical: u64, donor: u64, length: u64) -> Call {
        Call { logical: LogicalBlock(logical), donor: LogicalBlock(donor), length: Blocks(length) }
    }

    #[test]
    fn neighbours_go_together_holes_are_left_out_and_long_runs_are_cut() {
        let data = [Run::new(0, 50, 3), Run::new(3, 90, 4), Run::new(7, 20, 2), Run::new(20, 70, 9)];
        assert_eq!(calls(&data, Blocks(8)), [call(0, 0, 7), call(7, 7, 2), call(20, 9, 8), call(28, 17, 1)]);
    }

    #[test]
    fn what_lies_between_and_stays_counts() {
        // The middle was never written and stays where it is: moving the rest would make one piece three.
        let file = FileMap::new([Run::new(0, 10, 5), Run::new(5, 15, 5), Run::new(10, 20, 5)]);
        let calls = calls(&[Run::new(0, 10, 5), Run::new(10, 20, 5)], Blocks(100));
        assert_eq!(fragments_after(&file, &calls, &FileMap::new([Run::new(0, 500, 10)])), 3);
    }

    fn file() -> impl Strategy<Value = Vec<Run>> {
        prop::collection::vec((0_u64..3, 1_u64..40), 1..40).prop_map(|pieces| {
            let (mut logical, mut physical, mut runs) = (0, 1000, Vec::new());
            for (gap, length) in pieces {
                logical += gap / 2;
                physical += gap * 7;
                runs.push(Run::new(logical, physical, length));
                logical += length;
                physical += length;
            }
            runs
        })
    }

    proptest! {
        #[test]
        fn every_block_of_data_is_moved_once_and_lands_behind_the_one_before(runs in file(), most in 1_u64..50) {
            let calls = calls(&runs, Blocks(most));
            let total: u64 = runs.iter().map(|r| r.length.0).sum();
            prop_assert_eq!(calls.iter().map(|c| c.length.0).sum::<u64>(), total);
            prop_assert!(calls.iter().all(|c| c.length.0 > 0 && c.length.0 <= most));
            let mut at = 0;
            for call in &calls {
                prop_assert_eq!(call.donor.0, at);
                at += call.length.0;
            }
            let covered: Vec<u64> = calls.iter().flat_map(|c| c.logical.0..c.logical.0 + c.length.0).collect();
            let wanted: Vec<u64> = runs.iter().flat_map(|r| r.logical.0..r.logical.0 + r.length.0).collect();
            prop_assert_eq!(covered, wanted);
            let donor = FileMap::new([Run::new(0, 1_000_000, total)]);
            prop_assert_eq!(fragments_after(&FileMap::new(runs), &calls, &donor), 1);
        }
    }
}
