//! The result of a pass, in figures.

use crate::round::RoundTally;
use crate::{PassEnd, Round, SkipReason, VolumeError};
use longrun_layout::{Bytes, FileId, Fragmentation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why a pass ended before its plan was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The user asked for it.
    Cancelled,
    /// Its time was up.
    Deadline,
    /// Its budget was spent.
    Budget,
    /// Others needed the free space, and did not give it back in time.
    SpaceNeeded,
}

/// Files that were left in place, by reason. Each file counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Why.
    pub reason: SkipReason,
    /// How many.
    pub files: u64,
}

/// The result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The volume as it was found.
    pub before: Fragmentation,
    /// The volume as it was left.
    pub after: Fragmentation,
    /// Planned moves that were carried out completely.
    pub moves: u64,
    /// All bytes that were exchanged, those that stepped aside or were taken back included.
    pub bytes_moved: Bytes,
    /// Files that were left alone.
    pub skipped: Vec<Skipped>,
    /// Journal commits that were asked for.
    pub barriers: u64,
    /// Rounds of scan, plan and moves.
    pub rounds: u32,
    /// System calls that it took to get hold of free space.
    pub capture_calls: u64,
    /// Plans that were given up and replaced because their places could not be obtained.
    pub given_up: u32,
    /// How long it took.
    pub seconds: f64,
    /// Whether it was stopped by its user, its deadline, or others' need of space.
    pub interrupted: bool,
    /// Why it ended early, if so.
    pub stop: Option<Stop>,
    /// Why it ended.
    pub end: PassEnd,
    /// The rounds one by one.
    pub by_round: Vec<Round>,
}

/// A pass that failed. Every file is complete at its old or its new place.
#[derive(Debug, thiserror::Error)]
#[error("{cause}{}", self.consequence())]
pub struct PassError {
    /// What went wrong.
    #[source]
    pub cause: VolumeError,
    /// Why the captured free space could not be given back, if so. The end of the process gives it back.
    pub not_given_back: Option<Box<VolumeError>>,
    /// Bytes that had been moved by then.
    pub bytes_moved: Bytes,
}

impl From<VolumeError> for PassError {
    /// Before anything was moved.
    fn from(cause: VolumeError) -> Self {
        Self { cause, not_given_back: None, bytes_moved: Bytes(0) }
    }
}

impl PassError {
    fn consequence(&self) -> String {
        match &self.not_given_back {
            None => String::new(),
            Some(error) => format!(
                " (and the captured free space could not be given back: {error}; it becomes free when this process \
                 ends)"
            ),
        }
    }
}

/// The running figures of a pass.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub moves: u64,
    pub barriers: u64,
    pub given_up: u32,
    /// Of the round under way.
    pub round: RoundTally,
    /// Fragments above what the best scan of the pass has found, as our own moves have changed them since.
    pub fragments: i64,
    /// Why, and in which round last.
    skipped: BTreeMap<FileId, (SkipReason, u32)>,
}

impl Tally {
    /// Notes that a file was left alone; the first reason of a round stands.
    pub(crate) fn skip(&mut self, file: FileId, reason: SkipReason, round: u32) {
        let known = self.skipped.entry(file).or_insert((reason, round));
        if known.1 < round {
            *known = (reason, round);
        }
    }

    /// Forgets the skips of rounds before `last`, but for these files.
    pub(crate) fn keep_skips(&mut self, last: u32, files: &BTreeSet<FileId>) {
        self.skipped.retain(|file, (_, round)| *round >= last || files.contains(file));
    }

    /// Notes that a file is where it should be after all.
    pub(crate) fn done(&mut self, file: FileId) {
        self.skipped.remove(&file);
    }

    /// The reason that stands for a file.
    pub(crate) fn reason(&self, file: FileId) -> Option<SkipReason> {
        self.skipped.get(&file).map(|(reason, _)| *reason)
    }

    /// Files by reason.
    pub(crate) fn skipped(&self) -> Vec<Skipped> {
        let mut by_reason: BTreeMap<SkipReason, u64> = BTreeMap::new();
        for (reason, _) in self.skipped.values() {
            *by_reason.entry(*reason).or_default() += 1;
        }
        by_reason.into_iter().map(|(reason, files)| Skipped { reason, files }).collect()
    }
}
