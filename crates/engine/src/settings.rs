//! The settings of a pass.

use crate::Scope;
use longrun_layout::{Blocks, Bytes, FileId, VolumeLayout};
use longrun_planner::{Mode, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The limits and options of one pass.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How far to go.
    pub mode: Mode,
    /// Which files.
    pub scope: Scope,
    /// Files that stay where they are.
    pub stay: Arc<BTreeSet<FileId>>,
    /// The most bytes to move, blocks that step aside or are taken back included.
    pub budget: Option<Bytes>,
    /// How long the pass may take.
    pub deadline: Option<Duration>,
    /// Free space that is never held; by default 1 % of the volume, at most half of what is free.
    pub reserve: Option<Bytes>,
    /// The most bytes moved between two barriers.
    pub epoch: Bytes,
    /// The most bytes exchanged at once: bounds how long a writer of the same file can be held up, and how soon the pass
    /// reacts.
    pub chunk: Bytes,
    /// The most free space captured ahead of its use.
    pub window: Bytes,
    /// How often the volume is scanned and planned again while there is a gain.
    pub rounds: u32,
    /// How long to wait for free space to come back after it was given back to others.
    pub patience: Duration,
    /// Switches a safety rule off, to show that its test bites.
    #[cfg(test)]
    pub(crate) broken: Option<Rule>,
    /// Another one.
    #[cfg(test)]
    pub(crate) also_broken: Option<Rule>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            scope: Scope::Volume,
            stay: Arc::default(),
            budget: None,
            deadline: None,
            reserve: None,
            epoch: Bytes(128 << 20),
            chunk: Bytes(4 << 20),
            window: Bytes(1 << 30),
            rounds: 64,
            patience: Duration::from_secs(30),
            #[cfg(test)]
            broken: None,
            #[cfg(test)]
            also_broken: None,
        }
    }
}

/// A rule that keeps data or users from harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Vacated blocks are no targets before a barrier that succeeded.
    Barrier,
    /// The reserve stays free.
    Reserve,
    /// Under pressure everything is given back.
    Pressure,
    /// Every exit gives everything back.
    GiveBack,
    /// A file is mapped again before it is moved.
    MapFirst,
    /// A file is mapped again after it was moved.
    Verify,
    /// What an exchange vacated is what the file system says, not what was expected.
    AskVacated,
    /// A file that got worse half-way is brought back.
    Settle,
    /// No file is split before as many fragments have been saved.
    NeverWorse,
}

impl Settings {
    /// Whether the rule is in force: always, but in tests of the tests.
    pub(crate) fn obeys(&self, rule: Rule) -> bool {
        #[cfg(test)]
        if self.broken == Some(rule) || self.also_broken == Some(rule) {
            return false;
        }
        let _ = rule;
        true
    }

    /// The planner's policy on this volume, with `moved` of the budget already spent.
    #[must_use]
    pub fn policy(&self, layout: &VolumeLayout, moved: Bytes) -> Policy {
        let size = layout.block_size();
        let blocks = |bytes: Bytes| Blocks(bytes.0 / u64::from(size.bytes()));
        let reserve = self.reserve.map_or_else(|| default_reserve(layout), |bytes| size.to_blocks(bytes));
        Policy {
            mode: self.mode,
            budget: self.budget.map(|budget| blocks(budget.saturating_sub(moved))),
            reserve,
            most_held: most_held(layout.free_blocks(), reserve),
            epoch: Blocks(blocks(self.epoch).0.max(1)),
            goal: None,
        }
    }
}

/// With less than this to capture, half of it is left for the blocks that a capture takes besides the wanted ones: up to a block group's
/// free space.
const LITTLE_ROOM: Blocks = Blocks(8192);

/// What may be captured of so many free blocks.
pub(crate) fn most_held(free: Blocks, reserve: Blocks) -> Blocks {
    let most = free.saturating_sub(reserve);
    // On its way to the wanted blocks a capture takes others for a moment: where there is little, it needs room for them.
    if most < LITTLE_ROOM { Blocks(most.0.div_ceil(2)) } else { most }
}

/// A hundredth of the volume but at least 4 MiB, which covers what file systems keep for themselves; on a nearly full
/// volume half of what is free, so that there is something to work with.
fn default_reserve(layout: &VolumeLayout) -> Blocks {
    let least = layout.block_size().to_blocks(Bytes(4 << 20));
    Blocks((layout.total_blocks().0 / 100).max(least.0).min(layout.free_blocks().0 / 2))
}
