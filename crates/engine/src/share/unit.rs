//! How files that share blocks are written again together, so that they share as much afterwards. Pure.
//!
//! Owns the order of the copies, and which range of which file takes which copy. Never makes a system call, never
//! examines free space.

use super::call::{Call, carry_out};
use crate::file_map::FileMap;
use crate::range_map::{RangeMap, Slide};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, LogicalBlock, PhysicalBlock, Run, count_fragments};
use std::collections::BTreeMap;

/// One file of a unit, with its present map.
#[derive(Clone, Debug)]
pub struct Member {
    /// Everything that has a place.
    pub runs: Vec<Run>,
    /// What of it is to be copied: nothing preallocated, nothing behind the end.
    pub data: Vec<Run>,
    /// Its length.
    pub size: Bytes,
}

impl Member {
    /// A file that is data from end to end.
    pub fn plain(runs: Vec<Run>, size: Bytes) -> Self {
        Self { data: runs.clone(), runs, size }
    }

    /// The fragments that it lies in.
    pub fn fragments(&self) -> u64 {
        count_fragments(self.runs.iter().copied())
    }
}

/// A copy to make: a temporary file with some of the source's data, one range after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The member whose data it is.
    pub source: usize,
    /// Which ranges of it go where in the copy.
    pub ranges: Vec<Call>,
    /// All of them.
    pub length: Blocks,
}

/// A range of a member that takes the blocks of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Whose range.
    pub member: usize,
    /// Whose blocks.
    pub copy: usize,
    /// Which of each.
    pub call: Call,
}

/// The copies to make, and the ranges that take their blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitPlan {
    /// In the order of making them.
    pub copies: Vec<Copy>,
    /// In the order of taking.
    pub takes: Vec<Take>,
}

/// A place in a copy.
#[derive(Clone, Copy, Debug)]
struct Place {
    copy: usize,
    block: u64,
}

impl Slide for Place {
    fn slide(self, by: u64) -> Self {
        Self { block: self.block + by, ..self }
    }
}

/// Whether copies are worth taking that leave `after` of `before` excess fragments: everything is written once for them, and a
/// little gain is not worth that.
pub fn are_worth_taking(before: u64, after: u64) -> bool {
    after.saturating_mul(2) <= before
}

/// Far enough from each other that copies are never taken for neighbours.
const APART: u64 = 1 << 40;

impl UnitPlan {
    /// The plan for `members`: each gets a copy of those of its blocks that no member before it has. None longer than `most`
    /// is taken at once. `None` where the last block of one file, which its end cuts, is another's block inside: no copy can
    /// end for the one and go on for the other.
    pub fn new(members: &[Member], block_size: BlockSize, most: Blocks) -> Option<Self> {
        if !tails_agree(members, block_size) {
            return None;
        }
        let mut placed: RangeMap<Place> = RangeMap::default();
        let mut plan = Self::default();
        for (source, member) in members.iter().enumerate() {
            let mut copy = Copy { source, ranges: Vec::new(), length: Blocks(0) };
            for run in &member.data {
                for (part, known) in placed.parts(run.extent()) {
                    if known.is_none() {
                        placed.assign(part, Place { copy: plan.copies.len(), block: copy.length.0 });
                        copy.add(run.logical + (part.start - run.physical), part.length);
                    }
                }
            }
            if !copy.ranges.is_empty() {
                plan.copies.push(copy);
            }
        }
        for (member, file) in members.iter().enumerate() {
            for run in &file.data {
                for (part, place) in placed.overlapping(run.extent()) {
                    let logical = run.logical + (part.start - run.physical);
                    plan.take(member, logical, place, part.length, most);
                }
            }
        }
        Some(plan)
    }

    fn take(&mut self, member: usize, logical: LogicalBlock, place: Place, length: Blocks, most: Blocks) {
        let most = most.max(Blocks(1));
        let (mut logical, mut block, mut left) = (logical, LogicalBlock(place.block), length);
        // Cut where the file is broken anyway, as far as that goes: when the work is stopped between two calls, the file
        // then hardly ever lies in more fragments than it had.
        let joined = self.takes.last_mut().filter(|last| {
            last.member == member
                && last.copy == place.copy
                && last.call.logical + last.call.length == logical
                && last.call.donor + last.call.length == block
                && last.call.length + length <= most
        });
        if let Some(last) = joined {
            last.call.length += length;
            return;
        }
        while left.0 > 0 {
            let next = left.min(most);
            self.takes.push(Take { member, copy: place.copy, call: Call { logical, donor: block, length: next } });
            (logical, block, left) = (logical + next, block + next, left - next);
        }
    }

    /// How much is to be written.
    pub fn written(&self) -> Blocks {
        self.copies.iter().map(|copy| copy.length).sum()
    }

    /// The map of a member afterwards, with the copies where `place` says: a run for a range of a copy.
    pub fn map_after(&self, member: usize, before: &Member, copies: &[FileMap]) -> FileMap {
        let mut map = FileMap::new(before.runs.iter().copied());
        for take in self.takes.iter().filter(|take| take.member == member) {
            let Some(copy) = copies.get(take.copy) else { continue };
            carry_out(&mut map, &take.call, copy);
        }
        map
    }

    /// The fragments of all members together, if each copy lies in one piece.
    pub fn fragments_at_best(&self, members: &[Member]) -> u64 {
        let copies: Vec<FileMap> = (0..)
            .zip(&self.copies)
            .map(|(number, copy)| {
                let physical = PhysicalBlock((number + 1) * APART);
                FileMap::new([Run { logical: LogicalBlock(0), physical, length: copy.length }])
            })
            .collect();
        self.fragments_with(members, &copies)
    }

    /// The fragments of all members together, with the copies as they lie.
    pub fn fragments_with(&self, members: &[Member], copies: &[FileMap]) -> u64 {
        members.iter().enumerate().map(|(number, member)| self.map_after(number, member, copies).fragments()).sum()
    }
}

impl Copy {
    fn add(&mut self, logical: LogicalBlock, length: Blocks) {
        let donor = LogicalBlock(self.length.0);
        self.length += length;
        match self.ranges.last_mut().filter(|last| last.logical + last.length == logical) {
            Some(last) => last.length += length,
            None => self.ranges.push(Call { logical, donor, length }),
        }
    }
}

/// Whether no file ends in a block that another reads on in.
fn tails_agree(members: &[Member], block_size: BlockSize) -> bool {
    let size = u64::from(block_size.bytes());
    let mut tails: BTreeMap<u64, u64> = BTreeMap::new();
    for member in members {
        let inside = member.size.0 % size;
        if inside == 0 {
            continue;
        }
        if let Some(block) = block_at(member, LogicalBlock(member.size.0 / size))
            && tails.insert(block.0, inside).is_some_and(|other| other != inside)
        {
            return false;
        }
    }
    let fits = |member: &Member, run: &Run| {
        let (start, end) = (run.physical.0, run.extent().end().0);
        tails.range(start..end).all(|(block, inside)| {
            let logical = run.logical.0 + (block - start);
            logical == member.size.0 / size && *inside == member.size.0 % size
        })
    };
    members.iter().all(|member| member.data.iter().all(|run| fits(member, run)))
}

fn block_at(member: &Member, logical: LogicalBlock) -> Option<PhysicalBlock> {
    let run = member.data.iter().find(|run| run.logical <= logical && logical < run.logical_end())?;
    Some(run.physical + (logical - run.logical))
}

/// The distinct blocks of all members.
pub fn blocks_of(members: &[Member]) -> longrun_layout::ExtentSet {
    members.iter().flat_map(|member| &member.data).map(Run::extent).collect::<Vec<Extent>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::LogicalRange;
    use proptest::prelude::*;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    fn member(runs: &[Run]) -> Member {
        let end = runs.last().map_or(0, |run| run.logical_end().0);
        Member::plain(runs.to_vec(), Bytes(end * 4096))
    }

    fn plan(members: &[Member]) -> UnitPlan {
        UnitPlan::new(members, block_size(), Blocks(4096)).unwrap()
    }

    #[test]
    fn sharers_of_everything_take_one_copy() {
        let one = member(&[Run::new(0, 100, 5), Run::new(5, 300, 5)]);
        let plan = plan(&[one.clone(), one.clone(), one.clone()]);
        assert_eq!((plan.copies.len(), plan.written()), (1, Blocks(10)));
        assert_eq!(plan.takes.len(), 3, "one call for each");
        assert_eq!(plan.fragments_at_best(&[one.clone(), one.clone(), one]), 3);
    }

    #[test]
    fn what_an_older_snapshot_has_alone_gets_a_copy_of_its_own() {
        let now = member(&[Run::new(0, 100, 4), Run::new(4, 500, 2), Run::new(6, 106, 4)]);
        let then = member(&[Run::new(0, 100, 10)]);
        let plan = plan(&[now.clone(), then.clone()]);
        assert_eq!(plan.copies.iter().map(|c| c.length.0).collect::<Vec<_>>(), [10, 2]);
        assert_eq!(plan.written(), Blocks(12), "no block is written twice, none is given up");
        // The older one is in three pieces instead of one: its middle lies elsewhere.
        assert_eq!(plan.fragments_at_best(&[now, then]), 4);
    }

    #[test]
    fn a_last_block_that_another_file_reads_on_in_makes_a_plan_impossible() {
        let short = Member::plain(vec![Run::new(0, 100, 2)], Bytes(4096 + 100));
        let long = Member::plain(vec![Run::new(0, 100, 2), Run::new(2, 300, 1)], Bytes(3 * 4096));
        assert!(UnitPlan::new(&[short.clone(), long], block_size(), Blocks(64)).is_none());
        assert!(UnitPlan::new(&[short.clone(), short], block_size(), Blocks(64)).is_some());
    }

    #[test]
    fn neighbours_go_together_holes_are_left_out_and_long_runs_are_cut() {
        let data = [Run::new(0, 50, 3), Run::new(3, 90, 4), Run::new(7, 20, 2), Run::new(20, 70, 9)];
        let plan = UnitPlan::new(&[member(&data)], block_size(), Blocks(8)).unwrap();
        let calls: Vec<_> = plan.takes.iter().map(|t| (t.call.logical.0, t.call.donor.0, t.call.length.0)).collect();
        assert_eq!(calls, [(0, 0, 7), (7, 7, 2), (20, 9, 8), (28, 17, 1)]);
    }

    #[test]
    fn what_lies_between_and_stays_counts() {
        // The middle was never written and stays where it is: moving the rest would make one piece three.
        let file = Member {
            runs: vec![Run::new(0, 10, 15)],
            data: vec![Run::new(0, 10, 5), Run::new(10, 20, 5)],
            size: Bytes(15 * 4096),
        };
        assert_eq!(plan(std::slice::from_ref(&file)).fragments_at_best(&[file]), 3);
    }

    fn unit() -> impl Strategy<Value = Vec<Member>> {
        // Pieces of a pool of extents, in any order, some of them in parts.
        let piece = (0_u64..12, 0_u64..8, 1_u64..8, 0_u64..3);
        prop::collection::vec(prop::collection::vec(piece, 1..12), 1..5).prop_map(|files| {
            files
                .into_iter()
                .map(|pieces| {
                    let mut logical = 0;
                    let mut runs = Vec::new();
                    for (extent, offset, length, hole) in pieces {
                        logical += hole / 2;
                        runs.push(Run::new(logical, 100 + extent * 20 + offset, length));
                        logical += length;
                    }
                    Member::plain(runs, Bytes(logical * 4096))
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn every_block_is_copied_once_and_all_who_shared_it_share_it_again(members in unit(), most in 1_u64..30) {
            let plan = UnitPlan::new(&members, block_size(), Blocks(most)).unwrap();
            prop_assert_eq!(plan.written(), blocks_of(&members).total());
            prop_assert!(plan.takes.iter().all(|take| take.call.length.0 > 0 && take.call.length.0 <= most));
            let copies: Vec<FileMap> = (0..).zip(&plan.copies)
                .map(|(n, copy)| FileMap::new([Run::new(0, (n + 1) * APART, copy.length.0)])).collect();
            // Old block to new block must be one to one, over all members.
            let mut new_of = BTreeMap::new();
            for (number, member) in members.iter().enumerate() {
                let after = plan.map_after(number, member, &copies);
                for run in &member.runs {
                    for block in 0..run.length.0 {
                        let logical = run.logical + Blocks(block);
                        let new = after.within(LogicalRange::one(logical)).next().map(|r| r.physical.0);
                        prop_assert!(new.is_some_and(|new| new >= APART), "left behind");
                        let old = run.physical.0 + block;
                        prop_assert_eq!(*new_of.entry(old).or_insert(new), new);
                    }
                }
            }
            let mut distinct: Vec<_> = new_of.values().collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), new_of.len());
            // What is copied is the source's own data.
            for copy in &plan.copies {
                let source = FileMap::new(members[copy.source].runs.iter().copied());
                for range in &copy.ranges {
                    prop_assert_eq!(
                        source.within(LogicalRange { start: range.logical, length: range.length }).map(|r| r.length.0).sum::<u64>(),
                        range.length.0
                    );
                }
            }
        }
    }
}
