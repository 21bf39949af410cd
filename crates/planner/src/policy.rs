//! The user's requirements for a plan.

use longrun_layout::{Blocks, FileView, VolumeLayout};
use serde::{Deserialize, Serialize};

/// The mode of a plan: how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Zero excess fragments and free space in as few pieces as the obstacles allow.
    Full,
    /// Removes 90 to 95 % of the excess for the fewest bytes; files that are good enough are not moved.
    Efficient,
    /// Only fragmented files move, each into a free place that is large enough, if there is one.
    Files,
}

/// The goal of a plan: the state that is good enough.
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
    /// Free blocks that are never held: space for other processes and for the file system itself. The engine
    /// enforces this; a plan needs only as many blocks as it vacates.
    pub reserve: Blocks,
    /// The most free blocks that can be held at once. A fragment that is longer is split on its way, and stays where it is if little excess
    /// pays for that.
    pub most_held: Blocks,
    /// Blocks moved between two barriers.
    pub epoch: Blocks,
    /// For efficient mode: the goal of the first plan of a pass, which later plans of the pass keep.
    pub goal: Option<Goal>,
}

impl Goal {
    /// The goal of an efficient pass over `layout`: the excess is less by `saved`, and the free space is not worse
    /// than now. A little more excess is permitted, because a few files of a plan cannot be moved.
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

/// The excess fragments of each movable file, times the number of files that share its blocks.
pub(crate) fn movable_excess(layout: &VolumeLayout) -> impl Iterator<Item = u64> {
    let excess = |f: FileView<'_>| f.fragments().saturating_sub(1) * layout.owners(f.index);
    layout.files().filter(FileView::is_movable).map(excess)
}
