//! What the user wants of a plan.

use longrun_layout::Blocks;
use serde::{Deserialize, Serialize};

/// How far a plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Zero excess fragments and free space in as few pieces as the obstacles allow.
    Full,
    /// About 95 % of the excess for the fewest bytes; what is good enough is not touched.
    Efficient,
    /// Files only: each fragmented file into a free place where one is large enough.
    Files,
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// How far to go.
    pub mode: Mode,
    /// The most blocks to move, if limited.
    pub budget: Option<Blocks>,
    /// Free blocks that stay outside any target at all times: others' space, and what the file system needs itself.
    pub reserve: Blocks,
    /// Blocks moved between two barriers.
    pub epoch: Blocks,
}
