//! What a pass would do, without a volume.

use super::PlanSource;
use longrun_layout::{ApplyError, Bytes, Fragmentation, VolumeLayout, apply_moves};
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
}

/// Plans for `layout` and applies the plan to the model. Holds the layout twice while it finishes; the moves themselves
/// are not kept, only the files that they change.
///
/// # Errors
/// [`ApplyError`] when the plan does not fit the layout, which would be a fault of the planner.
pub fn dry_run(layout: &VolumeLayout, policy: Policy) -> Result<Expected, ApplyError> {
    expect(layout, policy, &super::Planned)
}

pub(super) fn expect(layout: &VolumeLayout, policy: Policy, plans: &dyn PlanSource) -> Result<Expected, ApplyError> {
    let before = layout.fragmentation();
    let mut by_reason: BTreeMap<Why, ExpectedMoves> = BTreeMap::new();
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
            kind.bytes += layout.block_size().to_bytes(planned.step.length);
            Some(planned.step)
        }
    });
    let after = apply_moves(layout, moves)?.fragmentation();
    let total = by_reason.values().fold(ExpectedMoves::default(), |sum, kind| ExpectedMoves {
        moves: sum.moves + kind.moves,
        bytes: sum.bytes + kind.bytes,
    });
    Ok(Expected { before, after, moves: total.moves, bytes: total.bytes, by_reason, barriers })
}
