//! What the user wants of a plan.

use longrun_layout::{Blocks, FileView, VolumeLayout};
use serde::{Deserialize, Serialize};

/// How far a plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Zero excess fragments and free space in as few pieces as the obstacles allow.
    Full,
    /// 90 to 95 % of the excess for the fewest bytes; what is good enough is not touched.
    Efficient,
    /// Files only: each fragmented file into a free place where one is large enough.
    Files,
}

/// What is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// Excess fragments of files that may move.
    pub excess_fragments: u64,
    /// Contiguous free ranges.
    pub free_pieces: u64,
    /// The largest of them, at least.
    pub largest_free: Blocks,
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// How far to go.
    pub mode: Mode,
    /// The most blocks to move, if limited.
    pub budget: Option<Blocks>,
    /// Free blocks that are never held: others' space, and what the file system needs itself. The engine sees to it; a plan
    /// needs no more than it vacates.
    pub reserve: Blocks,
    /// Blocks moved between two barriers.
    pub epoch: Blocks,
    /// For efficient mode: what the first plan of a pass set out for, so that later ones go on to it and no further.
    pub goal: Option<Goal>,
}

impl Goal {
    /// What an efficient pass over `layout` has reached when the excess is less by `saved` and free space no worse than now. A
    /// little more may be left: what a plan set out for comes true but for a few files.
    #[must_use]
    pub fn efficient(layout: &VolumeLayout, saved: u64) -> Self {
        let excess = movable_excess(layout).sum::<u64>();
        Self {
            excess_fragments: excess.saturating_sub(saved) + excess / 220,
            free_pieces: layout.free().len() as u64,
            largest_free: layout.free().iter().map(|e| e.length).max().unwrap_or_default(),
        }
    }
}

/// The excess fragments of each file that may move, for all files that lie in the same blocks.
pub(crate) fn movable_excess(layout: &VolumeLayout) -> impl Iterator<Item = u64> {
    let excess = |f: FileView<'_>| f.fragments().saturating_sub(1) * layout.owners(f.index);
    layout.files().filter(FileView::is_movable).map(excess)
}
