//! The rounds of a run, one by one: what `--explain` prints, and what the JSON has of them.

use super::reasons::word;
use crate::text::{count, counted, duration, size};
use longrun_engine::{PassEnd, Round, RoundEnd, Work};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// One round.
#[derive(Clone, Debug, Serialize)]
pub struct RoundFigures {
    work: Option<Work>,
    units: u64,
    planned_bytes: u64,
    done: u64,
    evaded: u64,
    left: Vec<LeftFigures>,
    bytes_moved: u64,
    not_captured_bytes: u64,
    barriers: u64,
    excess_fragments: u64,
    free_pieces: u64,
    seconds: f64,
    ended: RoundEnd,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LeftFigures {
    reason: &'static str,
    units: u64,
    bytes: u64,
    #[serde(skip)]
    phrase: &'static str,
}

impl From<&Round> for RoundFigures {
    fn from(round: &Round) -> Self {
        let left = round.left.iter().map(|left| LeftFigures {
            reason: word(left.reason),
            units: left.units,
            bytes: left.bytes.0,
            phrase: left.reason.phrase(),
        });
        Self {
            work: round.work,
            units: round.units,
            planned_bytes: round.planned.0,
            done: round.done,
            evaded: round.evaded,
            left: left.collect(),
            bytes_moved: round.moved.0,
            not_captured_bytes: round.not_captured.0,
            barriers: round.commits,
            excess_fragments: round.excess_fragments,
            free_pieces: round.free_pieces,
            seconds: (round.seconds * 1e4).round() / 1e4,
            ended: round.end,
        }
    }
}

impl RoundFigures {
    fn tell(&self, text: &mut String, number: usize) {
        let why = match self.ended {
            RoundEnd::Complete => "the whole plan was tried",
            RoundEnd::PlacesTaken => "given up: too many files whose target place was taken were in the way of others",
            RoundEnd::NotCaptured => "given up: the free space could not be captured",
            RoundEnd::Stopped => "stopped",
        };
        let time = duration(Duration::from_secs_f64(self.seconds.max(0.0)));
        let (moved, planned) = (size(Bytes(self.bytes_moved)), size(Bytes(self.planned_bytes)));
        let (done, units) = (count(self.done), counted(self.units, "file part", "file parts"));
        let what = match self.work {
            None => "",
            Some(Work::Files) => "defragmenting files: ",
            Some(Work::Space) => "consolidating free space: ",
            Some(Work::Evacuation) => "emptying a chunk: ",
        };
        _ = writeln!(text, "  {number}: {what}{why}");
        if self.work == Some(Work::Evacuation) {
            let emptied = if self.done > 0 { "emptied" } else { "not emptied" };
            _ = writeln!(text, "     {emptied}; {moved} moved, {planned} planned, in {time}");
        } else {
            _ = writeln!(text, "     {done} of {units} moved as planned; {moved} moved, {planned} planned, in {time}");
        }
        for left in &self.left {
            let parts = counted(left.units, "file part", "file parts");
            _ = writeln!(text, "     {parts} not moved, {}: {}", size(Bytes(left.bytes)), left.phrase);
        }
        let untried =
            self.units.saturating_sub(self.done + self.evaded + self.left.iter().map(|left| left.units).sum::<u64>());
        if untried > 0 && self.work != Some(Work::Evacuation) {
            _ = writeln!(text, "     {} not tried", counted(untried, "file part", "file parts"));
        }
        if self.evaded > 0 {
            let parts = counted(self.evaded, "file part", "file parts");
            _ = writeln!(text, "     {parts} moved to another place, out of the way of others");
        }
        if self.not_captured_bytes > 0 {
            _ = writeln!(text, "     {} of free space could not be captured", size(Bytes(self.not_captured_bytes)));
        }
        let commits = counted(self.barriers, "journal commit", "journal commits");
        let excess = counted(self.excess_fragments, "excess fragment", "excess fragments");
        let pieces = counted(self.free_pieces, "free piece", "free pieces");
        _ = writeln!(text, "     {commits}; {excess} and {pieces} afterwards");
    }
}

/// All rounds, for developers and for the curious.
pub fn text(rounds: &[RoundFigures]) -> String {
    let mut text = String::new();
    if !rounds.is_empty() {
        text.push_str("Rounds:\n");
    }
    rounds.iter().enumerate().for_each(|(at, round)| round.tell(&mut text, at + 1));
    text
}

/// Why a run ended with more excess fragments than its plan would have left, after "because"; `None` when it was stopped,
/// which is reported elsewhere.
pub const fn fell_short(end: PassEnd) -> Option<&'static str> {
    match end {
        PassEnd::Done => Some("no plan was found that would move them"),
        PassEnd::NoGain => Some("the last rounds brought next to no gain"),
        PassEnd::Rounds => Some("it has had as many rounds as one run may have"),
        PassEnd::Cost => Some("one run does not move more than this; run it again to continue"),
        PassEnd::Stopped => None,
    }
}
