//! What came of one round of a pass on a placed volume: what was planned, what was moved, and what was left, with the reason.
//!
//! Owns the counts. Decides nothing: it is read by those who want to know why a pass took more than one round.

use crate::SkipReason;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Consecutive moves of one file count as one *unit*.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What it was for; `None` where a round does everything.
    pub work: Option<Work>,
    /// Units of the batches that were begun.
    pub units: u64,
    /// Their bytes.
    pub planned: Bytes,
    /// Units that are where the plan wants them.
    pub done: u64,
    /// Units that stepped out of the way of others, because their own place was taken.
    pub evaded: u64,
    /// Units that were left alone, by reason. What is in none of these counts was not tried, because the plan was given up.
    pub left: Vec<Left>,
    /// Bytes moved, those that stepped aside or were taken back included.
    pub moved: Bytes,
    /// Free space that the plan needs and that could not be captured.
    pub not_captured: Bytes,
    /// Journal commits that were asked for.
    pub commits: u64,
    /// Excess fragments afterwards.
    pub excess_fragments: u64,
    /// Pieces of free space afterwards.
    pub free_pieces: u64,
    /// How long it took, planning and the scan behind it included.
    pub seconds: f64,
    /// Why it ended.
    pub end: RoundEnd,
}

/// What a round was for, on a volume that chooses the places itself and has one kind of work in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Files were written again, each into one place.
    Files,
    /// Data was written again so that the free space around it becomes one piece.
    Space,
    /// A chunk was emptied.
    Evacuation,
}

/// Units that were left alone for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Why.
    pub reason: SkipReason,
    /// How many.
    pub units: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Why a round ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundEnd {
    /// Its whole plan was tried.
    #[default]
    Complete,
    /// Too many units whose place was taken stayed in the way of others.
    PlacesTaken,
    /// Free space could not be captured several times in a row.
    NotCaptured,
    /// The pass was stopped.
    Stopped,
}

/// Why a pass ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassEnd {
    /// A new plan would move nothing.
    #[default]
    Done,
    /// The last rounds brought no gain, or next to none.
    NoGain,
    /// As many rounds as are permitted.
    Rounds,
    /// A further plan would move more than a pass may move.
    Cost,
    /// It was stopped.
    Stopped,
}

/// The counts of the round under way.
#[derive(Debug, Default)]
pub(crate) struct RoundTally {
    pub units: u64,
    pub done: u64,
    pub evaded: u64,
    pub end: RoundEnd,
    left: BTreeMap<SkipReason, (u64, Bytes)>,
}

impl RoundTally {
    /// A unit of this size was left alone.
    pub(crate) fn leave(&mut self, reason: SkipReason, bytes: Bytes) {
        let (units, all) = self.left.entry(reason).or_default();
        *units += 1;
        *all += bytes;
    }

    /// With what only the pass knows, to be filled in.
    pub(crate) fn told(self) -> Round {
        let Self { units, done, evaded, end, left } = self;
        let left = left.into_iter().map(|(reason, (units, bytes))| Left { reason, units, bytes }).collect();
        Round { units, done, evaded, left, end, ..Round::default() }
    }
}
