//! What a pass would do, without a volume.

use super::PlanSource;
use longrun_layout::{ApplyError, Bytes, FileId, FileIndex, Fragmentation, VolumeLayout, apply_moves};
use longrun_planner::{Policy, Step, Why};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Moves of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedMoves {
    /// How many.
    pub moves: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// What the first round of a pass is expected to do if nobody changes the volume meanwhile.
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
}

/// How many files a dry run names.
pub const MOST_IMPROVED: usize = 100;

/// What is going to happen to one file.
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

/// Plans for `layout`, for the whole volume or for one file, and applies the plan to the model. Holds the layout twice
/// while it finishes; the moves themselves are not kept, only the files that they change.
///
/// # Errors
/// [`ApplyError`] when the plan does not fit the layout, which would be a fault of the planner.
pub fn dry_run(layout: &VolumeLayout, policy: Policy, only: Option<FileId>) -> Result<Expected, ApplyError> {
    let plans = super::Planned { only };
    let before = layout.fragmentation();
    let mut by_reason: BTreeMap<Why, ExpectedMoves> = BTreeMap::new();
    let mut moved: BTreeMap<FileIndex, Bytes> = BTreeMap::new();
    let mut barriers = 0;
    let steps = plans.plan(layout, policy).flat_map(|batch| batch.steps);
    let moves = steps.filter_map(|step| match step {
        Step::Barrier => {
            barriers += 1;
            None
        }
        Step::Move(planned) => {
            let kind = by_reason.entry(planned.why).or_default();
            kind.moves += 1;
            let bytes = layout.block_size().to_bytes(planned.step.length);
            kind.bytes += bytes;
            *moved.entry(planned.step.file).or_default() += bytes;
            Some(planned.step)
        }
    });
    let applied = apply_moves(layout, moves)?;
    let after = applied.fragmentation();
    let most_improved = most_improved(layout, &applied, &moved);
    let total = by_reason.values().fold(ExpectedMoves::default(), |sum, kind| ExpectedMoves {
        moves: sum.moves + kind.moves,
        bytes: sum.bytes + kind.bytes,
    });
    Ok(Expected { before, after, moves: total.moves, bytes: total.bytes, by_reason, barriers, most_improved })
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
