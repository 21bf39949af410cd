//! Chooses short fragments that can be put directly in front of a long one, or directly behind it. Pure.
//!
//! A file often begins with some short fragments and goes on in a long one, which it got as a runway. To move only the short
//! ones costs a fraction of what it costs to move the whole file. That takes free space at that very place.
//!
//! Owns this choice, and the comparison with moving whole parts ([`super::worth`]). Never examines free space: the caller
//! tells whether a place is free.

use super::worth::{Fragment, fragments};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, LogicalBlock, LogicalRange, PhysicalBlock, Run};

/// A fragment that others are put beside holds at least this part of the file, as a divisor.
const LEAST_SHARE: u64 = 4;

/// Fragments to put beside one that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// What moves, in blocks of the file; there may be holes in it.
    pub(crate) part: LogicalRange,
    /// Where it goes.
    pub(crate) place: Extent,
    /// The block of the file next to that place.
    pub(crate) neighbour: LogicalBlock,
    /// Whether the neighbour comes first.
    pub(crate) behind: bool,
}

/// What moving some parts of a file comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bargain {
    /// What moves.
    pub(crate) bytes: Bytes,
    /// The fragments of the file before and after.
    pub(crate) fragments: (usize, usize),
}

impl Bargain {
    /// When the `chosen` parts of a file with these runs move, each to one place.
    pub(crate) fn of(runs: &[Run], block_size: BlockSize, chosen: &[LogicalRange]) -> Self {
        let fragments = fragments(runs, block_size);
        let (mut bytes, mut after, mut before_moves) = (Bytes(0), 0, false);
        for fragment in &fragments {
            let moves = chosen.iter().any(|range| contains(range, &fragment.logical));
            bytes += if moves { fragment.length } else { Bytes(0) };
            after += usize::from(!(moves && before_moves));
            before_moves = moves;
        }
        Self { bytes, fragments: (fragments.len(), after) }
    }

    /// Whether it costs no more than `price` for each fragment less.
    pub(crate) fn is_within(&self, price: Bytes) -> bool {
        let fewer = self.fragments.0.saturating_sub(self.fragments.1) as u128;
        u128::from(self.bytes.0) <= u128::from(price.0) * fewer
    }

    fn is_better_than(&self, other: &Self, worth: Bytes) -> bool {
        let cost = |of: &Self| u128::from(of.bytes.0) + u128::from(worth.0) * of.fragments.1 as u128;
        self.fragments.1 <= other.fragments.1 && cost(self) < cost(other)
    }
}

/// The cheapest joins for a file with these runs, and what they come to. None, if they would leave more fragments than
/// `otherwise`, or cost more, where a fragment less is worth `worth` bytes. `is_free` tells whether a place is free.
pub(crate) fn joins(
    runs: &[Run],
    block_size: BlockSize,
    worth: Bytes,
    otherwise: Bargain,
    is_free: impl Fn(Extent) -> bool,
) -> Option<(Vec<Join>, Bargain)> {
    let fragments = fragments(runs, block_size);
    let total: Bytes = fragments.iter().map(|fragment| fragment.length).sum();
    let mut best: Option<(Vec<Join>, Bargain)> = None;
    // What is shorter would save too little.
    let long = fragments.iter().enumerate().filter(|(_, fragment)| fragment.length.0 >= total.0 / LEAST_SHARE);
    for (position, _) in long {
        let (joins, left) = beside(runs, &fragments, block_size, position, &is_free);
        let bytes = joins.iter().map(|join| block_size.to_bytes(join.place.length)).sum();
        let bargain = Bargain { bytes, fragments: (fragments.len(), left) };
        let better = bargain.is_better_than(best.as_ref().map_or(&otherwise, |(_, best)| best), worth);
        if better && !joins.is_empty() {
            best = Some((joins, bargain));
        }
    }
    best
}

/// What can be put beside the fragment at `position`, and how many fragments there are then.
fn beside(
    runs: &[Run],
    fragments: &[Fragment],
    block_size: BlockSize,
    position: usize,
    is_free: impl Fn(Extent) -> bool,
) -> (Vec<Join>, usize) {
    let (front, rest) = fragments.split_at(position.min(fragments.len()));
    let mut left = fragments.len();
    let mut joins = Vec::new();
    let Some((stays, back)) = rest.split_first() else { return (joins, left) };
    // The last block of a file can be shared only at the end of another file: a neighbour must be inside.
    let Some((first, last)) = ends(runs, stays.logical).filter(|(first, last)| first.0 != last.0) else {
        return (joins, left);
    };
    for (side, behind) in [(front, false), (back, true)] {
        let Some((from, to)) = side.first().zip(side.last()) else { continue };
        let length = side.iter().map(|fragment| block_size.to_blocks(fragment.length)).sum::<Blocks>();
        let start = if behind { Some(last.1.0 + 1) } else { first.1.0.checked_sub(length.0) };
        let Some(place) = start.map(|start| Extent::new(start, length.0)).filter(|place| is_free(*place)) else {
            continue;
        };
        let neighbour = if behind { last.0 } else { first.0 };
        joins.push(Join {
            part: LogicalRange::between(from.logical.start, end(&to.logical)),
            place,
            neighbour,
            behind,
        });
        left -= side.len();
    }
    (joins, left)
}

fn end(range: &LogicalRange) -> LogicalBlock {
    range.start + range.length
}

fn contains(range: &LogicalRange, part: &LogicalRange) -> bool {
    range.start <= part.start && end(part) <= end(range)
}

/// A block in the file, and on the volume.
type Placed = (LogicalBlock, PhysicalBlock);

/// The first and the last block of a fragment.
fn ends(runs: &[Run], fragment: LogicalRange) -> Option<(Placed, Placed)> {
    let first = runs.iter().find(|run| run.logical == fragment.start)?;
    let last = runs.iter().find(|run| run.logical_end() == end(&fragment))?;
    let behind = Blocks(last.length.0.checked_sub(1)?);
    Some(((first.logical, first.physical), (last.logical + behind, last.physical + behind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mend::worth_moving;
    use longrun_layout::count_fragments;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const WORTH: u64 = 1024;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    /// Fragments of these lengths in blocks, far apart from each other, in ascending places.
    fn file(lengths: &[u64]) -> Vec<Run> {
        let mut at = 0;
        let place = |(number, length): (u64, &u64)| {
            let run = Run::new(at, number << 20, *length);
            at += length;
            run
        };
        (1..).zip(lengths).map(place).collect()
    }

    fn chosen(runs: &[Run], worth: u64, is_free: impl Fn(Extent) -> bool) -> Vec<Join> {
        let worth = Bytes(worth * 4096);
        let otherwise = Bargain::of(runs, block_size(), &worth_moving(runs, block_size(), worth));
        joins(runs, block_size(), worth, otherwise, is_free).map_or_else(Vec::new, |(joins, _)| joins)
    }

    fn told(joins: &[Join]) -> Vec<(u64, u64, u64, u64, bool)> {
        joins.iter().map(|j| (j.part.start.0, j.part.length.0, j.place.start.0, j.neighbour.0, j.behind)).collect()
    }

    #[test]
    fn short_fragments_go_to_both_sides_of_the_long_one() {
        let runs = file(&[8, 16, 500, 4, 2]);
        let (front, back) = ((0, 24, (3 << 20) - 24, 24, false), (524, 6, (3 << 20) + 500, 523, true));
        assert_eq!(told(&chosen(&runs, WORTH, |_| true)), [front, back]);
        assert_eq!(told(&chosen(&runs, WORTH, |place| place.start.0 > 3 << 20)), [], "all of it is moved instead");
        assert_eq!(chosen(&runs, WORTH, |_| false), []);
    }

    #[test]
    fn what_is_too_dear_to_move_as_a_whole_is_joined_where_there_is_room() {
        let runs = file(&[8, 5000]);
        assert_eq!(told(&chosen(&runs, WORTH, |_| true)), [(0, 8, (2 << 20) - 8, 8, false)]);
        let runs = file(&[5000, 8]);
        assert_eq!(told(&chosen(&runs, WORTH, |_| true)), [(5000, 8, (1 << 20) + 5000, 4999, true)]);
    }

    #[test]
    fn a_whole_file_has_nothing_to_join_and_one_block_is_no_neighbour() {
        assert_eq!(chosen(&file(&[500]), WORTH, |_| true), []);
        assert_eq!(chosen(&[], WORTH, |_| true), []);
        assert_eq!(chosen(&file(&[1, 1, 1]), WORTH, |_| true), []);
    }

    #[test]
    fn a_place_before_the_beginning_of_the_volume_does_not_exist() {
        let runs = [Run::new(0, 900, 8), Run::new(8, 5, 5000)];
        assert_eq!(chosen(&runs, WORTH, |_| true), []);
    }

    #[test]
    fn holes_take_no_room() {
        let runs = [Run::new(0, 100, 4), Run::new(10, 300, 4), Run::new(20, 9000, 600)];
        let told = chosen(&runs, WORTH, |_| true);
        assert_eq!((told[0].part.length.0, told[0].place), (14, Extent::new(8992, 8)));
    }

    proptest! {
        /// Whatever is free: nothing moves twice, what is joined lies directly beside the long one, and nothing else that was
        /// looked at costs less.
        #[test]
        fn joined_files_have_fewer_fragments_for_fewer_bytes(
            lengths in prop::collection::vec(prop_oneof![1..40_u64, 100..3000_u64], 0..9),
            free in any::<[bool; 2]>(),
            worth in 0..4000_u64,
        ) {
            let runs = file(&lengths);
            let front = |place: Extent| runs.iter().any(|run| place.end() == run.physical);
            let joins = chosen(&runs, worth, |place| free[usize::from(front(place))]);
            let mut places: BTreeMap<u64, u64> = runs.iter()
                .flat_map(|run| (0..run.length.0).map(|n| (run.logical.0 + n, run.physical.0 + n))).collect();
            let mut moved = 0;
            for join in &joins {
                let (from, to) = (join.part.start.0, end(&join.part).0);
                for (number, logical) in (from..to).enumerate() {
                    places.insert(logical, join.place.start.0 + number as u64);
                    moved += 1;
                }
                let beside = if join.behind { join.place.start.0 - 1 } else { join.place.end().0 };
                prop_assert_eq!(places[&join.neighbour.0], beside);
            }
            let fragments = |places: &BTreeMap<u64, u64>| count_fragments(places.iter().map(|(l, p)| Run::new(*l, *p, 1)));
            let after = fragments(&places);
            if !joins.is_empty() {
                prop_assert!(after < lengths.len() as u64);
                let whole: u64 = lengths.iter().sum();
                prop_assert!(moved + after * worth < whole + worth && moved + after * worth < lengths.len() as u64 * worth);
            }
        }
    }
}
