//! Jobs: work on whole volumes (`analyze`, `optimize`, `reclaim`), started by an operator or by the schedule.
//!
//! Owns the list of the jobs, their states and their records in the state directory. Each job works in a process of its own
//! (`longrun job`), so that neither its memory nor a crash is the service's ([decision
//! 26](../../../docs/decisions/0026-a-pass-is-a-process-of-its-own.md)). Never decides which job may work now: `hub/jobs.rs` does, and
//! [`schedule`] says when a pass is due.

mod child;
pub mod protocol;
mod record;
pub mod schedule;
mod store;

pub use crate::gauges::resident;
pub use child::{Child, Ending};
pub use record::{Outcome, Overrides, Record};

use crate::threads::lock;
use jiff::Timestamp;
use longrun_api::jobs::{Job, JobFigures, JobOrigin, JobReport, JobState, Task};
use longrun_api::model::Optimized;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;
use store::Store;

/// How many ended jobs are kept.
const KEPT: usize = 50;

/// What one process of a job did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Excess fragments removed.
    pub fragments: u64,
    /// Bytes moved.
    pub moved: u64,
    /// Bytes that the storage below took back.
    pub reclaimed: u64,
}

impl Done {
    fn of(end: &Result<protocol::End, String>) -> Self {
        let Ok(end) = end else { return Self::default() };
        let excess = |figures: Option<JobFigures>| figures.map_or(0, |figures| figures.excess);
        let fragments = excess(end.before).saturating_sub(excess(end.after));
        Self { fragments, moved: end.moved, reclaimed: end.reclaimed }
    }
}

/// All jobs.
pub struct Jobs {
    /// What is run for a job.
    pub program: PathBuf,
    store: Store,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    records: BTreeMap<u64, Record>,
    last: u64,
    running: Option<Child>,
    not_before: BTreeMap<u64, Instant>,
    /// Not written since they changed.
    dirty: BTreeSet<u64>,
    /// By volume.
    totals: BTreeMap<String, Optimized>,
    dropped: Vec<u64>,
}

impl Open {
    fn change<T>(&mut self, id: u64, act: impl FnOnce(&mut Record) -> T) -> Option<T> {
        let record = self.records.get_mut(&id)?;
        self.dirty.insert(id);
        Some(act(record))
    }

    /// Forgets the oldest of those that have ended.
    fn tidy(&mut self) {
        let mut ended: Vec<(String, u64)> = self
            .records
            .values()
            .filter(|record| record.job.state.has_ended())
            .map(|record| (record.job.ended.clone().unwrap_or_default(), record.job.id))
            .collect();
        ended.sort();
        let many = ended.len().saturating_sub(KEPT);
        for (_, id) in ended.into_iter().take(many) {
            self.records.remove(&id);
            self.dirty.remove(&id);
            self.dropped.push(id);
        }
    }
}

impl Jobs {
    /// The jobs of earlier services are read from `directory`. What was at work then goes on later if the schedule had begun it, and
    /// counts as cancelled otherwise.
    #[must_use]
    pub fn open(directory: PathBuf, program: PathBuf) -> Self {
        let store = Store::new(directory);
        let mut open = Open::default();
        for mut record in store.read() {
            if record.after_restart() {
                open.dirty.insert(record.job.id);
            }
            open.last = open.last.max(record.job.id);
            open.records.insert(record.job.id, record);
        }
        Self { program, store, open: Mutex::new(open) }
    }

    /// A new job, which waits.
    pub fn add(&self, mut record: Record) -> Job {
        let mut open = lock(&self.open);
        open.last += 1;
        record.job.id = open.last;
        record.job.created = Timestamp::now().to_string();
        record.job.state = JobState::Waiting;
        let job = record.job.clone();
        open.dirty.insert(job.id);
        open.records.insert(job.id, record);
        job
    }

    /// Those that have not ended, oldest first, then the others, latest first.
    #[must_use]
    pub fn list(&self) -> Vec<Job> {
        let open = lock(&self.open);
        let jobs = open.records.values().map(|record| record.job.clone());
        let (mut ended, mut list): (Vec<Job>, Vec<Job>) = jobs.partition(|job| job.state.has_ended());
        ended.sort_by(|a, b| (&b.ended, b.id).cmp(&(&a.ended, a.id)));
        list.extend(ended);
        list
    }

    /// Those that have not ended.
    #[must_use]
    pub fn active(&self) -> Vec<Job> {
        let open = lock(&self.open);
        open.records.values().filter(|record| !record.job.state.has_ended()).map(|record| record.job.clone()).collect()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Job> {
        lock(&self.open).records.get(&id).map(|record| record.job.clone())
    }

    /// The same with what is not shown.
    #[must_use]
    pub fn record(&self, id: u64) -> Option<Record> {
        lock(&self.open).records.get(&id).cloned()
    }

    /// The last job of `volume` that moved something, has ended, and began when the map was that of the scan `map`.
    #[must_use]
    pub fn since_map(&self, volume: &str, map: u64) -> Option<Job> {
        let open = lock(&self.open);
        let of_map =
            open.records.values().filter(|record| record.map_before == Some(map) && record.job.volume == volume);
        let ended = of_map.map(|record| &record.job).filter(|job| job.state.has_ended() && job.moved_bytes > 0);
        ended.max_by(|a, b| (&a.ended, a.id).cmp(&(&b.ended, b.id))).cloned()
    }

    /// What an ended job has to report.
    #[must_use]
    pub fn report(&self, id: u64) -> Option<JobReport> {
        lock(&self.open).records.get(&id)?.report.clone()
    }

    /// The job that is at work.
    #[must_use]
    pub fn running(&self) -> Option<u64> {
        lock(&self.open).running.as_ref().map(|child| child.id)
    }

    /// Whether the job that is at work was asked to end.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        lock(&self.open).running.as_ref().is_some_and(|child| child.ending.is_some())
    }

    /// Changes a job.
    pub fn change<T>(&self, id: u64, act: impl FnOnce(&mut Record) -> T) -> Option<T> {
        lock(&self.open).change(id, act)
    }

    /// Says why a job does not work now; writes nothing down for that.
    pub fn say(&self, id: u64, reason: &str) {
        if let Some(record) = lock(&self.open).records.get_mut(&id) {
            record.job.reason = Some(reason.to_owned());
        }
    }

    /// The job is at work from now on.
    pub fn began(&self, child: Child) {
        let mut open = lock(&self.open);
        open.change(child.id, |record| record.began(Timestamp::now()));
        open.running = Some(child);
    }

    /// What the process of the running job says of its progress.
    pub fn progressed(&self, progress: &protocol::Progress) {
        let mut open = lock(&self.open);
        let Open { running: Some(child), records, .. } = &mut *open else { return };
        if let Some(record) = records.get_mut(&child.id) {
            child.progressed(progress, &mut record.job);
        }
    }

    /// Ends the process of job `id` in good order, if it is at work; the first reason holds, but a cancellation is stronger.
    pub fn halt(&self, id: u64, why: Ending) -> bool {
        let mut open = lock(&self.open);
        match open.running.as_mut().filter(|child| child.id == id) {
            Some(child) => {
                child.halt(why);
                true
            }
            None => false,
        }
    }

    /// The process of the running job has ended; what became of the job.
    pub fn ended(&self, end: Result<protocol::End, String>, stopping: bool, today: &str) -> Option<(Job, Done)> {
        let mut open = lock(&self.open);
        let child = open.running.take()?;
        let done = Done::of(&end);
        let (outcome, job) = open.change(child.id, |record| {
            let outcome = record.ended(&child, end, stopping, today);
            (outcome, record.job.clone())
        })?;
        if let Outcome::Again(after) = outcome {
            open.not_before.insert(child.id, Instant::now() + after);
        }
        open.tidy();
        if !job.dry_run && job.task != Task::Analyze {
            let totals = open.totals.entry(job.volume.clone()).or_default();
            totals.finished += u64::from(job.state == JobState::Finished);
            totals.failed += u64::from(job.state == JobState::Failed);
            totals.fragments += done.fragments;
            totals.moved_bytes += done.moved;
        }
        Some((job, done))
    }

    /// What jobs that change the volume `id` did since the service started.
    #[must_use]
    pub fn totals(&self, id: &str) -> Optimized {
        lock(&self.open).totals.get(id).copied().unwrap_or_default()
    }

    /// What a job that is at work on the volume `id` has moved, as far as [`Self::totals`] does not have it yet.
    #[must_use]
    pub fn moving(&self, id: &str) -> u64 {
        let open = lock(&self.open);
        let running = open.running.as_ref().and_then(|child| Some((child, &open.records.get(&child.id)?.job)));
        let (child, job) = match running {
            Some(running) if running.1.volume == id && !running.1.dry_run => running,
            _ => return 0,
        };
        job.moved_bytes.saturating_sub(child.moved_before)
    }

    /// Cancels a job; `Err` with the state of one that has ended.
    pub fn cancel(&self, id: u64) -> Option<Result<Job, JobState>> {
        if self.halt(id, Ending::Cancel) {
            self.say(id, "it is being cancelled; the current move is completed first");
            return self.get(id).map(Ok);
        }
        let mut open = lock(&self.open);
        let state = open.records.get(&id)?.job.state;
        if state.has_ended() {
            return Some(Err(state));
        }
        let job = open.change(id, |record| {
            record.over(JobState::Cancelled, Some("it was cancelled".to_owned()));
            record.job.clone()
        });
        open.tidy();
        job.map(Ok)
    }

    /// Whether job `id` has to wait after it was refused.
    #[must_use]
    pub fn is_put_off(&self, id: u64) -> bool {
        lock(&self.open).not_before.get(&id).is_some_and(|until| *until > Instant::now())
    }

    /// What scheduled passes of `volume` moved on the day `today`, in bytes.
    #[must_use]
    pub fn moved_on(&self, volume: &str, today: &str) -> u64 {
        let open = lock(&self.open);
        let passes = open.records.values().filter(|record| record.is_pass() && record.job.volume == volume);
        passes.filter_map(|record| record.moved_by_day.get(today)).sum()
    }

    /// The last scheduled pass of `volume` that has ended: when.
    #[must_use]
    pub fn last_pass(&self, volume: &str) -> Option<Timestamp> {
        let open = lock(&self.open);
        let passes = open.records.values().filter(|record| record.is_pass() && record.job.volume == volume);
        passes.filter_map(|record| record.job.ended.as_ref()?.parse().ok()).max()
    }

    /// The scheduled pass of `volume` that has not ended.
    #[must_use]
    pub fn pass_of(&self, volume: &str) -> Option<Job> {
        self.active().into_iter().find(|job| job.by == JobOrigin::Schedule && job.volume == volume)
    }

    /// Writes down what has changed. Only one thread calls it.
    pub fn keep(&self) {
        let (records, dropped) = {
            let mut open = lock(&self.open);
            let dirty = std::mem::take(&mut open.dirty);
            let records: Vec<Record> = dirty.iter().filter_map(|id| open.records.get(id).cloned()).collect();
            (records, std::mem::take(&mut open.dropped))
        };
        records.iter().for_each(|record| self.store.write(record));
        dropped.into_iter().for_each(|id| self.store.remove(id));
    }
}

#[cfg(test)]
mod tests;
