//! The plan of a pass. It is made once, shown, and executed; a dry run needs no volume for it.

use super::PlanSource;
use crate::observer::computed;
use crate::settings::Settings;
use crate::{PassError, Progress};
use longrun_layout::{
    ApplyError, Blocks, Bytes, ExtentSet, FileIndex, FileMove, Fragmentation, LayoutError, VolumeLayout, apply_moves,
};
use longrun_planner::{Batch, Gain, Nothing, Policy, Step, Why, why_nothing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number and size of the moves of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedMoves {
    /// How many.
    pub moves: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// The expected result of the first round of a pass, if the volume does not change meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The volume as it is.
    pub before: Fragmentation,
    /// The volume as it would be.
    pub after: Fragmentation,
    /// All moves.
    pub moves: u64,
    /// All their bytes.
    pub bytes: Bytes,
    /// The same by reason.
    pub by_reason: BTreeMap<Why, ExpectedMoves>,
    /// Journal commits that the plan asks for; the engine adds one per epoch at most.
    pub barriers: u64,
    /// The files that lose most fragments, the one that loses most first; at most [`MOST_IMPROVED`].
    pub most_improved: Vec<ExpectedFile>,
    /// Why there are no moves, if there are none.
    pub nothing: Option<Nothing>,
}

impl Expected {
    /// What is expected where nothing is done.
    #[must_use]
    pub fn none(figures: &Fragmentation) -> Self {
        Self {
            before: figures.clone(),
            after: figures.clone(),
            moves: 0,
            bytes: Bytes(0),
            by_reason: BTreeMap::new(),
            barriers: 0,
            most_improved: Vec::new(),
            nothing: None,
        }
    }
}

/// How many files a dry run names.
pub const MOST_IMPROVED: usize = 100;

/// The expected change of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedFile {
    /// Which file, in the layout that was planned for.
    pub file: FileIndex,
    /// Its fragments as it is.
    pub fragments: u64,
    /// Its fragments as it would be.
    pub expected_fragments: u64,
    /// What of it moves, as often as it does.
    pub bytes: Bytes,
}

/// The plan for the first round of a pass.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is carried out.
    pub(super) batches: Vec<Batch>,
    /// What comes of it.
    pub expected: Expected,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The user asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// The plan does not fit the layout, which would be a fault of the planner.
    #[error("{0}")]
    Contradiction(#[from] ApplyError),
    /// The layout does not fit itself, which would be a fault of the scan.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The pass fails on a simulation of the volume, which would be a fault of that.
    #[error(transparent)]
    Simulation(#[from] Box<PassError>),
}

/// Plans for `layout`, of which the `unavailable` blocks cannot be obtained, for the whole volume or for one file, and applies
/// the plan to the model. Holds the layout twice while it finishes.
///
/// # Errors
/// [`PlanError`].
pub fn plan(
    layout: &mut VolumeLayout,
    unavailable: &ExtentSet,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Plan, PlanError> {
    let withheld = layout.withhold(unavailable);
    let planned = batches(layout, settings, progress).map(|batches| {
        let is_empty = batches.iter().all(|batch| batch.moves().next().is_none());
        (batches, is_empty.then(|| nothing(layout, withheld.total(), settings)))
    });
    layout.readmit(&withheld);
    let (batches, nothing) = planned?;
    let expected = expect(layout, &batches)?;
    Ok(Plan { batches, expected: Expected { nothing, ..expected } })
}

fn batches(layout: &VolumeLayout, settings: &Settings, progress: &dyn Progress) -> Result<Vec<Batch>, PlanError> {
    let plans = super::Planned { only: settings.scope.file() };
    let mut batches = Vec::new();
    let mut planned = plans.plan(layout, settings.policy(layout, Bytes(0)));
    while let Some(batch) = computed(|work| progress.compute(work), || planned.next()) {
        if progress.cancelled() {
            return Err(PlanError::Cancelled);
        }
        batches.push(batch);
    }
    Ok(batches)
}

fn nothing(layout: &VolumeLayout, withheld: Blocks, settings: &Settings) -> Nothing {
    let file = settings.scope.file();
    let only = file.and_then(|id| layout.files().find(|file| file.id() == id));
    let gain = match (file, &only) {
        (Some(_), None) => Gain::default(),
        _ => Gain::of(layout, only.map(|file| file.index)),
    };
    let moves = |policy: Policy| {
        let plans = super::Planned { only: settings.scope.file() };
        plans.plan(layout, policy).flat_map(|batch| batch.moves().map(|m| m.step.length).collect::<Vec<_>>()).sum()
    };
    why_nothing(layout, withheld, settings.policy(layout, Bytes(0)), gain, moves)
}

/// What comes of a plan, if no one changes the volume meanwhile.
fn expect(layout: &VolumeLayout, batches: &[Batch]) -> Result<Expected, ApplyError> {
    let before = layout.fragmentation();
    let mut by_reason: BTreeMap<Why, ExpectedMoves> = BTreeMap::new();
    let mut moved: BTreeMap<FileIndex, Bytes> = BTreeMap::new();
    for planned in batches.iter().flat_map(Batch::moves) {
        let bytes = layout.block_size().to_bytes(planned.step.length);
        let kind = by_reason.entry(planned.why).or_default();
        kind.moves += 1;
        kind.bytes += bytes;
        *moved.entry(planned.step.file).or_default() += bytes;
    }
    let steps = batches.iter().flat_map(|batch| &batch.steps);
    let barriers = steps.filter(|step| **step == Step::Barrier).count() as u64;
    let moves = batches.iter().flat_map(Batch::moves).map(|planned| -> FileMove { planned.step });
    let applied = apply_moves(layout, moves)?;
    let after = applied.fragmentation();
    let most_improved = most_improved(layout, &applied, &moved);
    let total = by_reason.values().fold(ExpectedMoves::default(), |sum, kind| ExpectedMoves {
        moves: sum.moves + kind.moves,
        bytes: sum.bytes + kind.bytes,
    });
    let (moves, bytes) = (total.moves, total.bytes);
    Ok(Expected { before, after, moves, bytes, by_reason, barriers, most_improved, nothing: None })
}

/// Both layouts list the same files in the same order.
pub(crate) fn most_improved(
    before: &VolumeLayout,
    after: &VolumeLayout,
    moved: &BTreeMap<FileIndex, Bytes>,
) -> Vec<ExpectedFile> {
    let fragments = |layout: &VolumeLayout, file| layout.file(file).map_or(0, |f| f.fragments());
    let mut files: Vec<ExpectedFile> = moved
        .iter()
        .map(|(&file, &bytes)| ExpectedFile {
            file,
            fragments: fragments(before, file),
            expected_fragments: fragments(after, file),
            bytes,
        })
        .filter(|f| f.expected_fragments < f.fragments)
        .collect();
    files.sort_unstable_by_key(|f| (std::cmp::Reverse(f.fragments - f.expected_fragments), f.file));
    files.truncate(MOST_IMPROVED);
    files
}
