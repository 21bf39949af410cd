//! The plan: ordered moves, in batches that are executed one after another.

use longrun_layout::{ExtentSet, FileMove};
use serde::{Deserialize, Serialize};

/// Why a move is in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The file is fragmented, and becomes contiguous or less fragmented.
    Defragment,
    /// The file fills a gap exactly, so that the free space is consolidated elsewhere.
    FillGap,
    /// The file leaves a place that a larger one needs.
    MakeRoom,
    /// The file is a directory or the file table, and is put beside others of its kind, with room for the table to grow; or it is read at boot,
    /// and is put beside what is read then.
    Gather,
    /// The file is read often, and goes to where the disk reads faster.
    Place,
    /// The file steps aside to break a cycle, and moves once more later.
    StepAside,
}

/// A move and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMove {
    /// The file range, and its target.
    pub step: FileMove,
    /// The reason.
    pub why: Why,
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Exchange a range of a file with free blocks.
    Move(PlannedMove),
    /// Everything vacated before this point may be used by the moves after it.
    Barrier,
}

/// A part of a plan that can be executed on its own. It never makes the volume worse.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// In order.
    pub steps: Vec<Step>,
    /// The decrease of the excess fragments of all files.
    pub saves: u64,
}

impl Batch {
    /// The moves, without the barriers.
    pub fn moves(&self) -> impl Iterator<Item = &PlannedMove> {
        self.steps.iter().filter_map(|s| match s {
            Step::Move(planned) => Some(planned),
            Step::Barrier => None,
        })
    }

    /// The blocks that must be free when the batch starts: targets that no earlier move of the batch vacates.
    #[must_use]
    pub fn needs_free(&self) -> ExtentSet {
        let (mut needed, mut vacated) = (ExtentSet::new(), ExtentSet::new());
        for planned in self.moves() {
            let target = planned.step.occupies();
            for gap in vacated.gaps(target) {
                needed.insert(gap);
            }
            vacated.remove(target);
            vacated.insert(planned.step.vacates());
        }
        needed
    }
}
