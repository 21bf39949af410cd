//! The plan and the result of an optimization: the object that `optimize --json` prints, and its text.

use super::analysis::Analysis;
use super::at_boot::Together;
use super::came::Came;
use super::directories::DirectoriesFigures;
use super::json_name;
use super::leaked::LeakedFigures;
use super::nothing::{NothingFigures, mode_name};
use super::pauses::pauses;
use super::placing::Placed;
use super::reasons::{why, word};
use super::rounds::{self, RoundFigures, fell_short};
use crate::text::{count, counted, duration, percent, printable_path, size};
use longrun_api::jobs::JobFigures;
use longrun_engine::{CompactedDirectories, Expected, Leaked, PassEnd, Report, Stop};
use longrun_governor::Loads;
use longrun_layout::{Bytes, Fragmentation, FreeSpace};
use longrun_planner::{Mode, Why};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// A file that the plan touches.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// Its path.
    pub path: PathBuf,
    /// Fragments now.
    pub fragments: u64,
    /// Fragments expected.
    pub expected_fragments: u64,
    /// How much of it the plan moves.
    pub bytes: Bytes,
}

/// The plan, as it is printed before a run and by a dry run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    mode: Mode,
    moves: u64,
    bytes: u64,
    by_reason: Vec<ByReason>,
    expected: ExpectedFigures,
    files: Vec<PlannedFileFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing: Option<NothingFigures>,
    #[serde(skip)]
    before: Fragmentation,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ByReason {
    reason: Why,
    moves: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct ExpectedFigures {
    fragmented_files: u64,
    excess_fragments: u64,
    free_space: FreeSpace,
}

#[derive(Clone, Debug, Serialize)]
struct PlannedFileFigures {
    #[serde(skip)]
    shown: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    fragments: u64,
    expected_fragments: u64,
    bytes: u64,
}

impl Plan {
    /// Puts the engine's expectation into the form that is reported.
    pub fn new(mode: Mode, expected: &Expected, files: &[PlannedFile]) -> Self {
        let by_reason = expected.by_reason.iter();
        let files = files.iter().map(|file| {
            let (path, path_hex) = json_name(&file.path);
            PlannedFileFigures {
                shown: printable_path(&file.path),
                path,
                path_hex,
                fragments: file.fragments,
                expected_fragments: file.expected_fragments,
                bytes: file.bytes.0,
            }
        });
        Self {
            mode,
            moves: expected.moves,
            bytes: expected.bytes.0,
            by_reason: by_reason
                .map(|(reason, kind)| ByReason { reason: *reason, moves: kind.moves, bytes: kind.bytes.0 })
                .collect(),
            expected: ExpectedFigures {
                fragmented_files: expected.after.fragmented_files,
                excess_fragments: expected.after.excess_fragments,
                free_space: expected.after.free_space,
            },
            files: files.collect(),
            nothing: None,
            before: expected.before.clone(),
        }
    }

    /// With the reason why there are no moves.
    pub fn explained(self, nothing: Option<NothingFigures>) -> Self {
        Self { nothing, ..self }
    }

    /// How much it moves.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// The figures that it leads to.
    pub fn foreseen(&self) -> JobFigures {
        let (excess, free) = (self.expected.excess_fragments, &self.expected.free_space);
        JobFigures { excess, free_pieces: Some(free.pieces), largest_free_bytes: Some(free.largest_bytes.0) }
    }

    /// The plan for people.
    pub fn text(&self) -> String {
        if let Some(nothing) = &self.nothing {
            return nothing.text();
        }
        let mode = mode_name(self.mode);
        let share = percent(self.bytes, self.before.used_bytes.0);
        let moves = counted(self.moves, "move", "moves");
        let mut text =
            format!("Plan ({mode}): {moves}, {} in all, {share} of the used space\n", size(Bytes(self.bytes)));
        for kind in &self.by_reason {
            let moves = counted(kind.moves, "move", "moves");
            _ = writeln!(text, "  {:>14}  {:>10}  {}", moves, size(Bytes(kind.bytes)), why(kind.reason));
        }
        let saved = self.before.excess_fragments.saturating_sub(self.expected.excess_fragments)
            + self.before.free_space.pieces.saturating_sub(self.expected.free_space.pieces);
        if let Some(each) = self.bytes.checked_div(saved) {
            _ = writeln!(text, "{} are moved for each excess fragment or free piece removed.", size(Bytes(each)));
        }
        text.push_str("Expected:\n");
        changes(&mut text, &self.before, self.expected.excess_fragments, &self.expected.free_space);
        if !self.files.is_empty() {
            text.push_str("Files that gain most:\n  fragments   expected       moved  path\n");
        }
        for file in &self.files {
            let (now, then) = (count(file.fragments), count(file.expected_fragments));
            _ = writeln!(text, "  {now:>9}  {then:>9}  {:>10}  {}", size(Bytes(file.bytes)), file.shown);
        }
        text
    }
}

/// Before and after, side by side.
fn changes(text: &mut String, before: &Fragmentation, excess: u64, free: &FreeSpace) {
    let was = &before.free_space;
    let mut line = |name: &str, from: String, to: String| _ = writeln!(text, "  {name:<20}{from:>10}  ->  {to}");
    line("excess fragments", count(before.excess_fragments), count(excess));
    line("free pieces", count(was.pieces), format!("{} (floor: {})", count(free.pieces), count(free.floor_pieces)));
    line("largest free piece", size(was.largest_bytes), size(free.largest_bytes));
}

/// The object of the contract.
#[derive(Debug, Serialize)]
pub struct Optimization {
    /// The volume before.
    pub before: Analysis,
    /// The volume after.
    pub after: Analysis,
    /// What was planned.
    pub plan: Plan,
    moves: u64,
    /// How much was moved.
    pub bytes_moved: u64,
    skipped: Vec<SkippedFiles>,
    barriers: u64,
    rounds: u32,
    capture_calls: u64,
    capture_calls_per_mib: f64,
    given_up: u32,
    by_round: Vec<RoundFigures>,
    ended: PassEnd,
    pub(super) stopped: Option<Stop>,
    seconds: f64,
    governor: Option<Loads>,
    /// Whether an interrupted run had to be completed first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recovered: bool,
    /// What nothing had, and was marked as in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaked: Option<LeakedFigures>,
    /// Directories that were rewritten in fewer blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    compacted_directories: Option<DirectoriesFigures>,
    /// What is read at boot, and came together.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_boot: Option<Together>,
    /// What was placed by heat.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placed>,
    #[serde(skip)]
    figures: (Fragmentation, Fragmentation),
}

#[derive(Clone, Copy, Debug, Serialize)]
struct SkippedFiles {
    reason: &'static str,
    files: u64,
    #[serde(skip)]
    phrase: &'static str,
}

impl Optimization {
    /// Puts the engine's report into the form that is reported.
    pub fn new(before: Analysis, after: Analysis, plan: Plan, report: &Report, governor: Option<Loads>) -> Self {
        let skipped = report.skipped.iter();
        Self {
            before,
            after,
            plan,
            moves: report.moves,
            bytes_moved: report.bytes_moved.0,
            skipped: skipped
                .map(|s| SkippedFiles { reason: word(s.reason), files: s.files, phrase: s.reason.phrase() })
                .collect(),
            barriers: report.barriers,
            rounds: report.rounds,
            capture_calls: report.capture_calls,
            capture_calls_per_mib: per_mebibyte(report.capture_calls, report.bytes_moved),
            given_up: report.given_up,
            by_round: report.by_round.iter().map(RoundFigures::from).collect(),
            ended: report.end,
            stopped: report.stop,
            seconds: (report.seconds * 1e4).round() / 1e4,
            governor,
            recovered: false,
            leaked: None,
            compacted_directories: None,
            at_boot: None,
            placement: None,
            figures: (report.before.clone(), report.after.clone()),
        }
    }

    /// The same after what an interrupted run had begun was completed, if it was.
    pub fn after_completion(self, recovered: bool) -> Self {
        Self { recovered, ..self }
    }

    /// The same with what was marked as in use on the volume and nothing had.
    pub fn with_leaked(self, leaked: Leaked) -> Self {
        Self { leaked: LeakedFigures::new(leaked), ..self }
    }

    /// The same with what came of compacting directories before the plan was made.
    pub fn with_directories(self, done: &CompactedDirectories) -> Self {
        Self { compacted_directories: DirectoriesFigures::new(done), ..self }
    }

    /// The same with what came of placing by heat, and the volume after that.
    pub fn with_placement(self, came: Came<Placed>) -> Self {
        Self { placement: came.told, ..self.followed_by(came.then, came.stop) }
    }

    /// The same with what came of bringing together what is read at boot, and the volume after that.
    pub fn with_what_is_read_at_boot(self, came: Came<Together>) -> Self {
        Self { at_boot: came.told, ..self.followed_by(came.then, came.stop) }
    }

    /// What choosing places came to: what was expected, and what the layout gives now.
    pub fn placing(&self) -> String {
        let at_boot = self.at_boot.as_ref().map(Together::result).unwrap_or_default();
        at_boot + &self.placement.as_ref().map(Placed::result).unwrap_or_default()
    }

    /// The result for people. After an empty plan there is none: nothing changed, and the plan has said why.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.recovered {
            text.push_str("An earlier run was interrupted. What it had begun was completed first; nothing is lost.\n");
        }
        text.push_str(&self.leaked.as_ref().map(LeakedFigures::text).unwrap_or_default());
        text.push_str(&self.compacted_directories.as_ref().map(DirectoriesFigures::done).unwrap_or_default());
        if self.plan.nothing.is_none() || self.moves > 0 {
            self.tell_changes(&mut text);
        }
        text.push_str(&self.placing());
        text.push_str(&self.governor.as_ref().map(pauses).unwrap_or_default());
        if !self.skipped.is_empty() {
            text.push_str("Not moved:\n");
        }
        for kind in &self.skipped {
            _ = writeln!(text, "  {:>14}: {}", counted(kind.files, "file", "files"), kind.phrase);
        }
        let missed = self.figures.1.excess_fragments.saturating_sub(self.plan.expected.excess_fragments);
        if let Some(stop) = self.stopped {
            _ = writeln!(text, "The run was {}.", ended(stop));
        } else if let Some(why) = fell_short(self.ended).filter(|_| missed > 0 && self.plan.nothing.is_none()) {
            let missed = counted(missed, "excess fragment", "excess fragments");
            _ = writeln!(text, "{missed} more than planned are left, because {why}.");
        }
        text
    }

    /// Why it ended early, if so.
    pub fn stop(&self) -> Option<Stop> {
        self.stopped
    }

    /// The rounds one by one.
    pub fn rounds(&self) -> String {
        rounds::text(&self.by_round)
    }

    /// The figures before and after, and the cost.
    fn tell_changes(&self, text: &mut String) {
        text.push_str("Result:\n");
        let (before, after) = &self.figures;
        changes(text, before, after.excess_fragments, &after.free_space);
        let rate = self.bytes_moved as f64 / self.seconds.max(0.001);
        let time = duration(Duration::from_secs_f64(self.seconds.max(0.0)));
        _ = writeln!(
            text,
            "{} moved in {time} ({}/s), {}, {}.",
            size(Bytes(self.bytes_moved)),
            size(Bytes(rate as u64)),
            counted(self.moves, "move", "moves"),
            counted(self.barriers, "journal commit", "journal commits"),
        );
        if self.capture_calls > 0 && self.bytes_moved > 0 {
            let (calls, rate) =
                (counted(self.capture_calls, "system call", "system calls"), self.capture_calls_per_mib);
            _ = writeln!(text, "Obtaining free space took {calls}, {rate} per MiB moved.");
        }
        if self.given_up > 0 {
            let times = counted(u64::from(self.given_up), "time", "times");
            _ = writeln!(text, "Planned again {times}, because too many target places could not be obtained.");
        }
    }
}

/// Calls per MiB, with two decimals. Less than one MiB counts as one.
fn per_mebibyte(calls: u64, moved: Bytes) -> f64 {
    let mebibytes = (moved.0 as f64 / f64::from(1 << 20)).max(1.0);
    (calls as f64 / mebibytes * 100.0).round() / 100.0
}

/// Why the run ended before its plan did, after "the run was".
pub const fn ended(stop: Stop) -> &'static str {
    match stop {
        Stop::Cancelled => "stopped by a signal; all space that was held has been given back",
        Stop::Deadline => "stopped at the deadline; all space that was held has been given back",
        Stop::Budget => "stopped when the budget was used up",
        Stop::SpaceNeeded => "stopped because other processes needed the free space; it has been given back",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::analysis::tests::sample;
    use longrun_engine::SkipReason;
    use longrun_engine::{ExpectedMoves, Left, Round, RoundEnd, Skipped};
    use longrun_governor::{Balance, Latency, Observed, Pace};
    use longrun_layout::{BlockSize, Pin};
    use longrun_planner::{NoPlan, Nothing};

    fn figures(excess: u64, pieces: u64, largest: u64) -> Fragmentation {
        let free_space =
            FreeSpace { bytes: Bytes(600 << 20), pieces, largest_bytes: Bytes(largest << 20), floor_pieces: 1 };
        let fragmented_files = excess.min(213);
        Fragmentation { excess_fragments: excess, fragmented_files, free_space, ..sample().figures }
    }

    fn plan() -> Plan {
        let kind = |moves, mebibytes: u64| ExpectedMoves { moves, bytes: Bytes(mebibytes << 20) };
        let expected = Expected {
            before: figures(590, 1358, 21),
            after: figures(0, 2, 561),
            moves: 1300,
            bytes: Bytes(900 << 20),
            by_reason: [(Why::Defragment, kind(1299, 899)), (Why::StepAside, kind(1, 1))].into(),
            barriers: 12,
            most_improved: Vec::new(),
            nothing: None,
        };
        let file =
            PlannedFile { path: "/mnt/a\x1b[31m".into(), fragments: 120, expected_fragments: 1, bytes: Bytes(9 << 20) };
        Plan::new(Mode::Full, &expected, &[file])
    }

    pub(in super::super) fn optimization(stop: Option<Stop>) -> Optimization {
        let skipped = |reason, files| Skipped { reason, files };
        let report = Report {
            before: figures(590, 1358, 21),
            after: figures(2, 4, 540),
            moves: 1290,
            bytes_moved: Bytes(890 << 20),
            skipped: vec![skipped(SkipReason::Pinned(Pin::Immutable), 1), skipped(SkipReason::Busy, 3)],
            barriers: 15,
            rounds: 1,
            capture_calls: 4450,
            given_up: 2,
            seconds: 4.567_89,
            interrupted: stop.is_some(),
            stop,
            end: if stop.is_some() { PassEnd::Stopped } else { PassEnd::Cost },
            by_round: vec![Round {
                work: None,
                units: 1300,
                planned: Bytes(900 << 20),
                done: 1290,
                evaded: 2,
                left: vec![Left { reason: SkipReason::TargetTaken, units: 3, bytes: Bytes(7 << 20) }],
                moved: Bytes(890 << 20),
                not_captured: Bytes(1 << 20),
                commits: 15,
                excess_fragments: 2,
                free_pieces: 4,
                seconds: 4.5,
                end: RoundEnd::PlacesTaken,
            }],
        };
        Optimization::new(Analysis::new(&sample()), Analysis::new(&sample()), plan(), &report, Some(loads()))
    }

    fn loads() -> Loads {
        Loads {
            pace: Pace::Invisible,
            devices: vec!["loop3".to_owned(), "sda".to_owned()],
            disks: None,
            observed: Observed::Counters,
            own_bytes: Bytes(1800 << 20),
            foreign_bytes: Bytes(7 << 20),
            account: Some(Balance {
                requests: 2400,
                met: 130,
                usual_seconds: 0.5,
                charged_seconds: 0.008,
                credit_seconds: 0.002,
            }),
            other_program: Some("fio".to_owned()),
            latency: Some(Latency { usual_us: 400, recent_us: 950 }),
            pauses: 2,
            paused_seconds: 1.25,
            pausing: None,
        }
    }

    #[test]
    fn the_plan_is_told_with_reasons_and_expected_figures() {
        insta::assert_snapshot!(plan().text());
    }

    #[test]
    fn the_result_is_told_with_what_was_left_out() {
        insta::assert_snapshot!(optimization(Some(Stop::Deadline)).text());
    }

    #[test]
    fn a_run_that_fell_short_of_its_plan_says_why() {
        let short = optimization(None);
        insta::assert_snapshot!(short.text() + &short.rounds());
    }

    #[test]
    fn after_an_empty_plan_there_is_no_result() {
        let nothing = Nothing { reason: NoPlan::Good, excess_fragments: 0, mode: None };
        let nothing = NothingFigures::new(&nothing, None, BlockSize::new(4096).unwrap());
        let done = Optimization { moves: 0, skipped: Vec::new(), governor: None, ..optimization(None) };
        let empty =
            |done: Optimization| Optimization { plan: done.plan.clone().explained(Some(nothing.clone())), ..done };
        assert_eq!(empty(done).text(), "");
        let moved = empty(optimization(None)).text();
        assert!(moved.starts_with("Result:"), "a later plan of the same run had moves: {moved}");
        let stopped = Optimization { moves: 0, governor: None, ..optimization(Some(Stop::Cancelled)) };
        let told = empty(stopped).text();
        assert!(told.starts_with("Not moved:") && told.contains("The run was stopped by a signal;"), "{told}");
    }

    #[test]
    fn the_json_is_stable() {
        let mut json = serde_json::to_value(optimization(None)).unwrap();
        // The object of `analyze`, which has its own test.
        let analysis = serde_json::to_value(Analysis::new(&sample())).unwrap();
        for field in ["before", "after"] {
            assert_eq!(json[field].take(), analysis);
        }
        insta::assert_json_snapshot!(json);
    }
}
