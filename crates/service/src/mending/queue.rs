//! Who is mended next. Pure: the clock is an argument.
//!
//! Owns order (most gain first), patience (a file must have been quiet for a while, and longer after each attempt that it
//! interrupted), the daily budget of each volume, and the bound on its own length. Never does anything about a file.

use super::model::{Candidate, MendSettings};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Nanos};
use longrun_sys::DeviceNumber;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A day, for budgets.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// An attempt that came to nothing makes a file wait twice as long as the one before, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
/// After so many attempts a file is given up until it is noticed anew.
const MOST_ATTEMPTS: u32 = 8;
/// A file whose length is not known counts as this long.
const USUAL_SIZE: Bytes = Bytes(16 << 20);

/// Excess fragments per byte to move, as a whole number: more is better.
type Gain = u128;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    path: Option<PathBuf>,
    excess: u64,
    size: Option<Bytes>,
    ready: Nanos,
    attempts: u32,
    gain: Gain,
}

/// What one volume may still cost today.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    since: Nanos,
    bytes: Bytes,
}

/// The files that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    files: BTreeMap<FileKey, Waiting>,
    /// The same by gain, most first.
    order: BTreeMap<(Reverse<Gain>, FileKey), ()>,
    spent: BTreeMap<DeviceNumber, Spent>,
}

/// Given out to be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) candidate: Candidate,
    /// How often it was tried before.
    pub(super) attempts: u32,
    /// What may be moved for it.
    pub(super) budget: Bytes,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This.
    Mend(Box<Job>),
    /// Nothing before this time has passed.
    Wait(Duration),
    /// Nothing until somebody offers something.
    Idle,
}

fn gain(excess: u64, size: Option<Bytes>) -> Gain {
    (u128::from(excess) << 64) / u128::from(size.unwrap_or(USUAL_SIZE).0.max(1))
}

fn after(now: Nanos, time: Duration) -> Nanos {
    Nanos(now.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

fn between(now: Nanos, then: Nanos) -> Duration {
    Duration::from_nanos(then.0.saturating_sub(now.0))
}

impl Queue {
    pub(super) fn len(&self) -> u64 {
        self.files.len() as u64
    }

    pub(super) fn excess(&self) -> u64 {
        self.files.values().map(|file| file.excess).sum()
    }

    /// Notes a fragmented file. Known ones start their quiet time anew, with the figures of now. Returns a file that was
    /// forgotten for it: the one with the least gain.
    pub(super) fn offer(&mut self, candidate: Candidate, now: Nanos, settings: &MendSettings) -> Option<FileKey> {
        let known = self.remove(&candidate.file);
        let attempts = known.as_ref().map_or(0, |file| file.attempts);
        let size = candidate.size.or_else(|| known.and_then(|file| file.size));
        let waiting = Waiting {
            path: candidate.path,
            excess: candidate.excess,
            size,
            ready: after(now, wait(settings.quiet, attempts)),
            attempts,
            gain: gain(candidate.excess, size),
        };
        self.insert(candidate.file, waiting);
        if self.files.len() <= settings.longest_queue.max(1) {
            return None;
        }
        let (_, last) = *self.order.last_key_value()?.0;
        self.remove(&last);
        Some(last)
    }

    /// Somebody writes to the file: its quiet time starts anew.
    pub(super) fn touched(&mut self, file: &FileKey, now: Nanos, settings: &MendSettings) {
        if let Some(waiting) = self.files.get_mut(file) {
            waiting.ready = waiting.ready.max(after(now, settings.quiet));
        }
    }

    /// Forgets everything on a volume.
    pub(super) fn forget_volume(&mut self, volume: DeviceNumber) {
        self.files.retain(|file, _| file.volume != volume);
        self.order.retain(|(_, file), ()| file.volume != volume);
    }

    /// What to do now. Of the files that are ready and within their volume's budget, the one with the most gain.
    pub(super) fn next(&mut self, now: Nanos, settings: &MendSettings) -> Next {
        if settings.resting {
            return Next::Idle;
        }
        let mut soonest: Option<Nanos> = None;
        let mut found = None;
        for (_, file) in self.order.keys() {
            let Some(waiting) = self.files.get(file) else { continue };
            let budget = self.budget(file.volume, now, settings);
            // What is larger than a whole day's budget is tried when all of it is there: then the reason is told.
            let affordable = waiting.size.is_none_or(|size| size <= budget) || budget == settings.daily_budget;
            let ready = if affordable && budget.0 > 0 { waiting.ready } else { waiting.ready.max(self.day_ends(file)) };
            if ready <= now {
                found = Some((*file, budget));
                break;
            }
            soonest = Some(soonest.map_or(ready, |soonest| soonest.min(ready)));
        }
        let Some((file, budget)) = found else {
            return soonest.map_or(Next::Idle, |soonest| Next::Wait(between(now, soonest)));
        };
        let Some(waiting) = self.remove(&file) else { return Next::Idle };
        let candidate = Candidate { file, path: waiting.path, excess: waiting.excess, size: waiting.size };
        Next::Mend(Box::new(Job { candidate, attempts: waiting.attempts, budget }))
    }

    /// Puts a job back that came to nothing; false when it is given up.
    pub(super) fn postpone(&mut self, job: Job, now: Nanos, settings: &MendSettings) -> bool {
        let attempts = job.attempts + 1;
        if attempts >= MOST_ATTEMPTS {
            return false;
        }
        let Candidate { file, path, excess, size } = job.candidate;
        // Offered again while it was being worked on: what is known since is better, but for how often it was tried.
        let known = self.remove(&file);
        let mut waiting = known.unwrap_or(Waiting { path, excess, size, ready: now, attempts, gain: 0 });
        waiting.attempts = attempts;
        waiting.ready = waiting.ready.max(after(now, wait(settings.quiet, attempts)));
        waiting.gain = gain(waiting.excess, waiting.size);
        self.insert(file, waiting);
        true
    }

    /// Puts a job back whose file has been measured: ready, and in its place by that. What is known since is better.
    pub(super) fn put_back(&mut self, job: Job, size: Bytes, now: Nanos) {
        let Candidate { file, path, excess, .. } = job.candidate;
        let known = self.remove(&file);
        let mut waiting =
            known.unwrap_or(Waiting { path, excess, size: None, ready: now, attempts: job.attempts, gain: 0 });
        waiting.size = Some(size);
        waiting.gain = gain(waiting.excess, waiting.size);
        self.insert(file, waiting);
    }

    /// Bytes were written for a volume.
    pub(super) fn spend(&mut self, volume: DeviceNumber, bytes: Bytes, now: Nanos) {
        let spent = self.spent.entry(volume).or_insert(Spent { since: now, bytes: Bytes(0) });
        if between(spent.since, now) >= DAY {
            *spent = Spent { since: now, bytes: Bytes(0) };
        }
        spent.bytes += bytes;
    }

    fn budget(&self, volume: DeviceNumber, now: Nanos, settings: &MendSettings) -> Bytes {
        let spent = self.spent.get(&volume).filter(|spent| between(spent.since, now) < DAY);
        settings.daily_budget.saturating_sub(spent.map_or(Bytes(0), |spent| spent.bytes))
    }

    fn day_ends(&self, file: &FileKey) -> Nanos {
        self.spent.get(&file.volume).map_or(Nanos(0), |spent| after(spent.since, DAY))
    }

    fn insert(&mut self, file: FileKey, waiting: Waiting) {
        self.order.insert((Reverse(waiting.gain), file), ());
        self.files.insert(file, waiting);
    }

    fn remove(&mut self, file: &FileKey) -> Option<Waiting> {
        let waiting = self.files.remove(file)?;
        self.order.remove(&(Reverse(waiting.gain), *file));
        Some(waiting)
    }
}

/// How long a file must be quiet after so many attempts.
fn wait(quiet: Duration, attempts: u32) -> Duration {
    quiet.saturating_mul(1_u32.checked_shl(attempts).unwrap_or(u32::MAX)).min(LONGEST_WAIT.max(quiet))
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
