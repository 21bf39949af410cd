//! A job with everything that is kept of it, and what becomes of it when its process ends.
//!
//! Owns the states of one job. No I/O but the clock.

use super::child::{Child, Ending};
use super::protocol::End;
use jiff::Timestamp;
use longrun_api::jobs::{Job, JobOrigin, JobProgress, JobReport, JobState, Task};
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// After this time a job is tried again that found another process at work on its volume.
const AGAIN: Duration = Duration::from_secs(15);
/// The exit status of work that a signal ended.
const INTERRUPTED: u8 = 130;

/// How a job works, where it was asked to do so otherwise than the volume's settings say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// `pace`.
    pub pace: Option<String>,
    /// `max_duty`.
    pub max_duty: Option<String>,
    /// `min_progress`.
    pub min_progress: Option<String>,
    /// `placement`.
    #[serde(default)]
    pub placement: Option<String>,
    /// `explain`.
    #[serde(default)]
    pub explain: bool,
}

/// A job, and what is kept of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// What is shown.
    pub job: Job,
    /// How it gives way.
    pub overrides: Overrides,
    /// With the mode `auto`: never more than efficient mode.
    pub at_most_efficient: bool,
    /// Bytes moved on each day (UTC).
    pub moved_by_day: BTreeMap<String, u64>,
    /// What it has to report.
    pub report: Option<JobReport>,
    /// The number of the scan whose map was there when it began.
    #[serde(default)]
    pub map_before: Option<u64>,
}

/// What follows when the process of a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    Over,
    /// It begins again when that is permitted.
    Later,
    /// The same, but not before this time.
    Again(Duration),
}

impl Record {
    /// Whether the schedule started it.
    #[must_use]
    pub fn is_pass(&self) -> bool {
        self.job.by == JobOrigin::Schedule
    }

    /// Whether it moves data or gives space back.
    #[must_use]
    pub fn changes_the_volume(&self) -> bool {
        self.job.task != Task::Analyze && !self.job.dry_run
    }

    /// As it is in a service that was started anew; whether that changed it.
    pub(super) fn after_restart(&mut self) -> bool {
        let job = &mut self.job;
        if job.state.has_ended() {
            return false;
        }
        job.progress = JobProgress::default();
        if job.by == JobOrigin::Schedule {
            if job.state == JobState::Running {
                job.state = JobState::Paused;
                job.reason = Some("the service was started anew; it goes on in its window".to_owned());
            }
        } else {
            self.over(JobState::Cancelled, Some("the service was stopped".to_owned()));
        }
        true
    }

    pub(super) fn began(&mut self, now: Timestamp) {
        let job = &mut self.job;
        job.state = JobState::Running;
        job.reason = None;
        job.runs += 1;
        job.started.get_or_insert_with(|| now.to_string());
        job.progress = JobProgress { phase: "starting".to_owned(), ..JobProgress::default() };
    }

    /// It ends in this state.
    pub fn over(&mut self, state: JobState, reason: Option<String>) {
        self.job.state = state;
        self.job.reason = reason;
        self.job.ended = Some(Timestamp::now().to_string());
        if state == JobState::Finished {
            self.job.progress.fraction = 1.0;
        }
        self.job.progress.eta_seconds = None;
    }

    fn paused(&mut self, reason: String) -> Outcome {
        self.job.state = JobState::Paused;
        self.job.reason = Some(reason);
        self.job.progress = JobProgress::default();
        Outcome::Later
    }

    /// Its process has ended; `stopping`: the service does, too.
    pub(super) fn ended(&mut self, child: &Child, end: Result<End, String>, stopping: bool, today: &str) -> Outcome {
        self.job.worked_seconds += child.since.elapsed().as_secs();
        self.job.moved_bytes = child.moved_before;
        let end = match end {
            Ok(end) => end,
            Err(_) if child.ending == Some(Ending::Cancel) => End { status: INTERRUPTED, ..End::default() },
            Err(problem) => {
                self.over(JobState::Failed, Some(problem));
                return Outcome::Over;
            }
        };
        self.account(&end, today);
        let ending = child.ending.clone().or_else(|| stopping.then_some(Ending::Service));
        match (ending, end.status) {
            // It was done before it heard of that.
            (_, 0) if self.is_pass() && end.budget_spent => {
                return self.paused("the budget of the day (pass_budget) is used up".to_owned());
            }
            (_, 0) => self.over(JobState::Finished, spent(&end)),
            (Some(Ending::Cancel), _) => self.over(JobState::Cancelled, Some("it was cancelled".to_owned())),
            (Some(Ending::Pause(why)), INTERRUPTED) => return self.paused(why),
            (Some(Ending::Service), INTERRUPTED) if self.is_pass() => {
                return self.paused("the service was stopped; it goes on in its window".to_owned());
            }
            (Some(Ending::Service), INTERRUPTED) => {
                self.over(JobState::Cancelled, Some("the service was stopped".to_owned()));
            }
            _ if end.in_use => {
                self.job.state = JobState::Waiting;
                self.job.reason = end.error;
                self.job.runs = self.job.runs.saturating_sub(1);
                return Outcome::Again(AGAIN);
            }
            (None, INTERRUPTED) => self.over(JobState::Cancelled, Some("a signal has ended its process".to_owned())),
            _ => self.over(JobState::Failed, end.error),
        }
        Outcome::Over
    }

    fn account(&mut self, end: &End, today: &str) {
        let job = &mut self.job;
        job.moved_bytes += end.moved;
        *self.moved_by_day.entry(today.to_owned()).or_default() += end.moved;
        job.before = job.before.or(end.before);
        job.after = end.after.or(job.after);
        job.summary = end.summary.clone().or_else(|| job.summary.take());
        // The process knows of its own run only.
        if let (true, Some(before), Some(after)) = (job.runs > 1, job.before, job.after) {
            let (from, to, runs) = (before.excess, after.excess, job.runs);
            let moved = Bytes(job.moved_bytes).mebibytes();
            job.summary = Some(format!("excess fragments {from} to {to}; {moved:.1} MiB moved in {runs} runs"));
        }
        self.report = Some(JobReport {
            status: end.status,
            error: end.error.clone(),
            too_large: end.too_large,
            text: end.text.clone(),
            report: end.report.clone(),
        });
    }
}

/// Why a job that is finished may not have done everything.
fn spent(end: &End) -> Option<String> {
    match (end.budget_spent, end.time_spent) {
        (true, _) => Some("its budget is used up".to_owned()),
        (_, true) => Some("its time is used up".to_owned()),
        _ => None,
    }
}
