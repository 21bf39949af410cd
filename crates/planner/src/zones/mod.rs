//! Zones: on a disk whose places differ in speed, what is read most lies where it is read fastest.
//!
//! From the fast end: what is read often for its size, and seldom changed; everything else. Files change places
//! with others that are read less: a group of files side by side, as long as the hot one, goes to its place, so that neither a file nor
//! the free space is in more pieces afterwards. Owns which files these are (`input`), where they belong (`field`), and the exchanges
//! (`swap`). What finds no such group stays where it is.

mod field;
mod input;
mod swap;

pub use input::{FastEnd, FileUse, Placement};

use crate::Batch;
use field::Field;
use longrun_layout::{Blocks, VolumeLayout, apply_moves};
use swap::Swaps;

/// What was evicted by one exchange may belong elsewhere itself: so often it is looked at again.
const PASSES: u32 = 4;

/// A plan of exchanges, and what it leaves undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZonePlan {
    /// In order.
    pub batches: Vec<Batch>,
    /// Files that come to where they belong.
    pub placed: u64,
    /// Blocks that are moved for that, those of the files that make room included.
    pub moved: Blocks,
    /// Files that stay where they do not belong, because there is no group of others of the same length.
    pub without_partner: u64,
    /// Those that wait for another day, because today's allowance is used up.
    pub over_budget: u64,
}

/// Plans the exchanges of `placement` on a volume; no move of it depends on the rest of the plan being carried out.
#[must_use]
pub fn plan_zones(layout: &VolumeLayout, placement: &Placement, epoch: Blocks) -> ZonePlan {
    let mut plan = ZonePlan::default();
    let mut now = None;
    for _ in 0..PASSES {
        let layout = now.as_ref().unwrap_or(layout);
        let field = Field::of(layout, placement);
        let left = placement.budget.saturating_sub(plan.moved);
        let swaps = Swaps::find(layout, &field, left, epoch);
        (plan.without_partner, plan.over_budget) = (swaps.without_partner, swaps.over_budget);
        if swaps.batches.is_empty() {
            break;
        }
        let moves = swaps.batches.iter().flat_map(Batch::moves).map(|planned| planned.step);
        // What does not fit would be a fault of this planner: nothing of it is done then.
        let Ok(after) = apply_moves(layout, moves) else { break };
        plan.placed += swaps.placed;
        plan.moved += swaps.moved;
        plan.batches.extend(swaps.batches);
        now = Some(after);
    }
    plan
}
