//! Why a plan has no moves, and what would help.
//!
//! Owns the distinction between a volume that cannot be improved and one for which no plan was found. Called only if a
//! plan is empty. Plans again with other limits where this shows the reason.

use crate::efficient::Aim;
use crate::regions::STEP;
use crate::{Mode, Policy};
use longrun_layout::{Blocks, ExtentSet, FileIndex, FileView, VolumeLayout};
use serde::{Deserialize, Serialize};

/// Why a plan has no moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {
    /// The reason.
    pub reason: NoPlan,
    /// The excess fragments of files that may move.
    pub excess_fragments: u64,
    /// A mode that would move files, if there is one.
    pub mode: Option<Mode>,
}

/// The reason why a plan is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoPlan {
    /// There is nothing to gain.
    Good,
    /// The remaining gain is below the goal of the mode, or not worth its cost.
    GoodEnough,
    /// Every fragmented file is immovable.
    Pinned,
    /// Every gain costs more than the budget.
    Budget {
        /// The blocks that a plan without a budget would move.
        needed: Blocks,
    },
    /// There is no place for the fragmented files.
    NoRoom(Room),
}

/// The free space for which no plan was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// All of it.
    pub free: Blocks,
    /// The part to which no file can be moved, because the file system reserves it or it cannot be allocated.
    pub kept: Blocks,
    /// Its largest piece.
    pub largest: Blocks,
    /// The smallest of the files to defragment.
    pub smallest_file: Blocks,
    /// The approximate amount of additional free space that is needed.
    pub missing: Blocks,
}

/// The possible gain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gain {
    /// Excess fragments of files that may move.
    pub movable: u64,
    /// Excess fragments of files that must stay.
    pub pinned: u64,
    /// The smallest of the movable files with excess.
    pub smallest_file: Blocks,
}

impl Gain {
    /// The gain of a volume, or of one file.
    #[must_use]
    pub fn of(layout: &VolumeLayout, only: Option<FileIndex>) -> Self {
        Self::of_those(layout, |file| only.is_none_or(|only| only == file.index), |file| file.is_movable())
    }

    /// The gain of the files that are `meant`. Files that are not `movable` stay.
    #[must_use]
    pub fn of_those(
        layout: &VolumeLayout,
        meant: impl Fn(&FileView<'_>) -> bool,
        movable: impl Fn(&FileView<'_>) -> bool,
    ) -> Self {
        let mut gain = Self::default();
        for file in layout.files().filter(|file| !file.is_fixed_directory() && file.fragments() > 1 && meant(file)) {
            let excess = file.fragments() - 1;
            if movable(&file) {
                let is_first = gain.movable == 0;
                gain.smallest_file = if is_first { file.size() } else { gain.smallest_file.min(file.size()) };
                gain.movable += excess * layout.owners(file.index);
            } else if layout.leader_of(file.index).is_none() {
                gain.pinned += excess;
            }
        }
        gain
    }
}

/// Why the plan for `layout` is empty. `withheld` free blocks are already left out of the layout. `moves` returns
/// how much a plan under another policy would move.
#[must_use]
pub fn why_nothing(
    layout: &VolumeLayout,
    withheld: Blocks,
    policy: Policy,
    gain: Gain,
    moves: impl Fn(Policy) -> Blocks,
) -> Nothing {
    let unlimited = Policy { budget: None, ..policy };
    let needed = if policy.budget.is_some() { moves(unlimited) } else { Blocks(0) };
    let (reason, mode) = if needed > Blocks(0) {
        (NoPlan::Budget { needed }, None)
    } else if gain.movable == 0 {
        (if gain.pinned > 0 { NoPlan::Pinned } else { without_excess(layout, policy.mode) }, None)
    } else if policy.mode == Mode::Efficient && Aim::of(layout, None).is_none() {
        (NoPlan::GoodEnough, Some(Mode::Full))
    } else {
        let others: &[Mode] = match policy.mode {
            // It has tried what efficient mode does.
            Mode::Full => &[Mode::Files],
            Mode::Efficient => &[Mode::Full, Mode::Files],
            Mode::Files => &[Mode::Efficient, Mode::Full],
        };
        let finds = |mode: &Mode| moves(Policy { mode: *mode, ..unlimited }) > Blocks(0);
        let room = room(layout, withheld, gain.smallest_file);
        (NoPlan::NoRoom(room), others.iter().copied().find(finds))
    };
    Nothing { reason, excess_fragments: gain.movable, mode }
}

/// Every file is contiguous. Only full mode consolidates free space.
fn without_excess(layout: &VolumeLayout, mode: Mode) -> NoPlan {
    let free = layout.fragmentation().free_space;
    let is_compact = free.pieces <= free.floor_pieces * 2 + 2;
    if mode != Mode::Full || is_compact { NoPlan::Good } else { NoPlan::GoodEnough }
}

fn room(layout: &VolumeLayout, withheld: Blocks, smallest_file: Blocks) -> Room {
    let free: ExtentSet = layout.free().iter().copied().collect();
    let largest = layout.free().iter().map(|piece| piece.length).max().unwrap_or_default();
    let mut kept = 0;
    // More free space in one region is enough.
    let mut missing = if layout.regions().is_empty() { 0 } else { u64::MAX };
    let mut wanted = STEP;
    for region in layout.regions() {
        let here: u64 = free.overlapping(region.extent).map(|piece| piece.length.0).sum();
        kept += here.min(region.kept_free.0);
        missing = missing.min((region.kept_free.0 + STEP).saturating_sub(here));
        wanted += region.kept_free.0;
    }
    if !layout.regions().is_empty() {
        // And as much in all of them together.
        missing = missing.max(wanted.saturating_sub(free.total().0));
    }
    if missing == 0 {
        missing = if smallest_file > largest { (smallest_file - largest).0 } else { smallest_file.0 };
    }
    Room {
        free: free.total() + withheld,
        kept: Blocks(kept) + withheld,
        largest,
        smallest_file,
        missing: Blocks(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Planner, Step};
    use longrun_layout::{BlockSize, Extent, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin, Region, Run};

    /// Files in two pieces of 8 blocks each but for those that are whole, from block 100 on, and this free space.
    fn layout(pins: &[Option<Pin>], whole: u64, free: &[(u64, u64)]) -> VolumeLayout {
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(10_000));
        let mut push = |inode: u64, pin, runs: Vec<Run>| {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            builder.push_file(id, NO_DIRECTORY, false, pin, &mut { runs });
        };
        for (inode, pin) in (0..).zip(pins) {
            let at = 100 + inode * 100;
            push(inode + 1, *pin, vec![Run::new(0, at, 8), Run::new(8, at + 50, 8)]);
        }
        for inode in 0..whole {
            push(1000 + inode, None, vec![Run::new(0, 5000 + inode * 10, 8)]);
        }
        free.iter().for_each(|(start, length)| builder.push_free(Extent::new(*start, *length)));
        builder.build().unwrap()
    }

    /// All that four files leave of the first 1000 blocks.
    const ROOM: &[(u64, u64)] =
        &[(0, 100), (108, 42), (158, 42), (208, 42), (258, 42), (308, 42), (358, 42), (408, 42), (458, 542)];

    fn policy(mode: Mode, budget: Option<u64>) -> Policy {
        Policy {
            mode,
            budget: budget.map(Blocks),
            reserve: Blocks(0),
            most_held: Blocks(u64::MAX),
            epoch: Blocks(1 << 15),
            goal: None,
        }
    }

    fn moves(layout: &VolumeLayout, policy: Policy) -> Blocks {
        let length = |step: &Step| if let Step::Move(planned) = step { planned.step.length } else { Blocks(0) };
        Planner::new(layout, policy).flat_map(|batch| batch.steps).map(|step| length(&step)).sum()
    }

    fn why(layout: &VolumeLayout, policy: Policy) -> Nothing {
        assert_eq!(moves(layout, policy), Blocks(0), "there is a plan");
        why_nothing(layout, Blocks(0), policy, Gain::of(layout, None), |policy| moves(layout, policy))
    }

    #[test]
    fn what_is_good_is_told_from_what_must_stay() {
        let good = layout(&[], 3, &[(6000, 500)]);
        let pinned = layout(&[Some(Pin::Immutable)], 3, &[(6000, 500)]);
        for mode in [Mode::Full, Mode::Efficient, Mode::Files] {
            assert_eq!(why(&good, policy(mode, None)).reason, NoPlan::Good, "{mode:?}");
            assert_eq!(why(&pinned, policy(mode, None)).reason, NoPlan::Pinned, "{mode:?}");
        }
    }

    #[test]
    fn a_budget_that_covers_no_gain_is_told_with_what_would_do() {
        let volume = layout(&[None; 4], 0, ROOM);
        for mode in [Mode::Full, Mode::Efficient, Mode::Files] {
            let nothing = why(&volume, policy(mode, Some(3)));
            let NoPlan::Budget { needed } = nothing.reason else { panic!("{mode:?}: {nothing:?}") };
            assert_eq!(needed, moves(&volume, policy(mode, None)), "{mode:?}");
            assert_eq!(nothing.excess_fragments, 4);
        }
    }

    #[test]
    fn what_is_good_enough_for_a_mode_is_not_called_good() {
        let volume = layout(&[None], 100, &[(6000, 500)]);
        let nothing = why(&volume, policy(Mode::Efficient, None));
        assert_eq!((nothing.reason, nothing.mode), (NoPlan::GoodEnough, Some(Mode::Full)));
        assert_eq!(nothing.excess_fragments, 1);
    }

    #[test]
    fn free_space_that_is_too_small_is_told_with_what_is_missing() {
        let nothing = why(&layout(&[None; 4], 0, &[(6000, 5)]), policy(Mode::Files, None));
        let NoPlan::NoRoom(room) = nothing.reason else { panic!("{nothing:?}") };
        let expected = Room {
            free: Blocks(5),
            kept: Blocks(0),
            largest: Blocks(5),
            smallest_file: Blocks(16),
            missing: Blocks(11),
        };
        assert_eq!(room, expected);
    }

    #[test]
    fn free_space_that_the_file_system_keeps_is_told_apart() {
        let free: u64 = ROOM.iter().map(|piece| piece.1).sum();
        let keeping = |kept| {
            let mut volume = layout(&[None; 4], 0, ROOM);
            volume.set_regions(vec![Region { extent: Extent::new(0, 10_000), kept_free: Blocks(kept) }]);
            volume
        };
        for mode in [Mode::Full, Mode::Efficient] {
            let nothing = why(&keeping(free), policy(mode, None));
            let NoPlan::NoRoom(room) = nothing.reason else { panic!("{mode:?}: {nothing:?}") };
            assert_eq!((room.free, room.kept, room.missing), (Blocks(free), Blocks(free), Blocks(STEP)));
        }
    }
}
