//! Gathering: plans moves after which files that are read in one sweep lie side by side, each whole, in the order in which they are needed.
//!
//! A disk that rotates reads them without a seek then. They go to one free piece, so that nobody has to make room; what they leave free is
//! filled by the pass that follows, for which they stay where they are.

use crate::plan::{Batch, PlannedMove, Step, Why};
use crate::policy::Policy;
use crate::zones::FastEnd;
use longrun_layout::{Blocks, FileId, FileMove, FileView, PhysicalBlock, VolumeLayout};
use std::collections::BTreeMap;

/// A plan that gathers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathering {
    /// In order; any of them can be the last.
    pub batches: Vec<Batch>,
    /// The files that come together.
    pub files: Vec<FileId>,
    /// Their blocks, all of which are moved.
    pub moved: Blocks,
}

/// Plans that `files` come together in the free piece nearest to the fast end that takes them all. Files that cannot move, or share blocks,
/// stay. `None` where there is no such piece, or the budget does not suffice.
///
/// Volumes whose regions keep free blocks (XFS) are left alone: places cannot be chosen exactly there.
#[must_use]
pub fn plan_gathering(layout: &VolumeLayout, files: &[FileId], fast: FastEnd, policy: &Policy) -> Option<Gathering> {
    if !layout.regions().is_empty() {
        return None;
    }
    let can_move =
        |file: &FileView<'_>| layout.shares_nothing(file.index) && file.is_movable() && !file.record.is_directory;
    let known: BTreeMap<FileId, FileView<'_>> = layout.files().filter(can_move).map(|file| (file.id(), file)).collect();
    let gathered: Vec<&FileView<'_>> = files.iter().filter_map(|id| known.get(id)).collect();
    let moved: Blocks = gathered.iter().map(|file| file.size()).sum();
    if moved.0 == 0 || policy.budget.is_some_and(|budget| moved > budget) {
        return None;
    }
    let mut fits = layout.free().iter().filter(|piece| piece.length >= moved);
    let mut to = match fast {
        FastEnd::Beginning => fits.next()?.start,
        FastEnd::End => PhysicalBlock(fits.next_back()?.end().0 - moved.0),
    };
    let mut plan = Gathering { files: gathered.iter().map(|file| file.id()).collect(), moved, ..Gathering::default() };
    let (mut batch, mut since) = (Batch::default(), Blocks(0));
    for file in gathered {
        for run in file.runs() {
            let step = FileMove {
                file: file.index,
                logical: run.logical,
                source: run.physical,
                target: to,
                length: run.length,
            };
            batch.steps.push(Step::Move(PlannedMove { step, why: Why::Gather }));
            to = to + run.length;
        }
        batch.saves += file.fragments().saturating_sub(1);
        since += file.size();
        if since >= policy.epoch {
            plan.batches.push(ended(&mut batch));
            since = Blocks(0);
        }
    }
    if !batch.steps.is_empty() {
        plan.batches.push(ended(&mut batch));
    }
    Some(plan)
}

fn ended(batch: &mut Batch) -> Batch {
    batch.steps.push(Step::Barrier);
    std::mem::take(batch)
}
