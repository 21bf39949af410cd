//! Chooses the next file to mend. Pure: the clock is an argument.
//!
//! Owns the order (the cheapest first, then most gain first), the waiting time (a file must be quiet for a while, longer after each attempt that a
//! write interrupted, and longer where [`Lives`] tells that it will soon be deleted or written again), the daily budget of
//! each volume, the pause of a volume where mending fails, and the limit on the length of the queue. Never works on a file.

use super::lives::{Hold, Lives};
use super::model::{Candidate, MendSettings, Waits};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Nanos};
use longrun_sys::DeviceNumber;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// A day, for budgets.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// After each attempt without a result a file waits twice as long as before, up to this time.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
/// After this many attempts a file is given up until it is reported again.
const MOST_ATTEMPTS: u32 = 8;
/// This many failures in a row are reported to the administrator.
const TOLD_FROM: u32 = 3;
/// A file whose length is not known counts as this long.
const USUAL_SIZE: Bytes = Bytes(16 << 20);

/// A file is mended at the full price after so many steps; each step before pays half of the next. Files that cost less are
/// mended meanwhile, and make room beside others, and what is deleted soon after it was written costs nothing.
const STEPS: u32 = 6;

/// Excess fragments per byte to move, as a whole number: more is better.
type Gain = u128;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    path: Option<PathBuf>,
    excess: u64,
    size: Option<Bytes>,
    ready: Nanos,
    /// When it was offered first: how long it is held back counts from then on.
    since: Nanos,
    /// Why it is not ready although it is quiet.
    held: Option<Hold>,
    attempts: u32,
    /// How often it was too dear.
    step: u32,
    gain: Gain,
}

impl Waiting {
    fn place(&self, file: FileKey) -> Place {
        (self.step, Reverse(self.gain), file)
    }
}

/// A place in the order of the queue.
type Place = (u32, Reverse<Gain>, FileKey);

/// What one volume may still cost today.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    since: Nanos,
    bytes: Bytes,
}

/// Mending fails on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failing {
    /// So often since it last went well.
    failures: u32,
    problem: String,
    until: Nanos,
}

/// The files that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    files: BTreeMap<FileKey, Waiting>,
    /// The same in the order in which they are mended.
    order: BTreeSet<Place>,
    spent: BTreeMap<DeviceNumber, Spent>,
    failing: BTreeMap<DeviceNumber, Failing>,
    pub(super) lives: Lives,
    /// Since when there has always been something due.
    behind: Option<Nanos>,
}

/// Given out to be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) candidate: Candidate,
    /// How often it was tried before.
    pub(super) attempts: u32,
    /// How often it was too dear.
    step: u32,
    /// When it was offered first.
    pub(super) since: Nanos,
    /// What may be moved for it.
    pub(super) budget: Bytes,
}

impl Job {
    /// What may be moved now for a fragment less, where one is worth `worth`.
    pub(super) fn price(&self, worth: Bytes) -> Bytes {
        Bytes(worth.0 >> STEPS.saturating_sub(self.step))
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This.
    Mend(Box<Job>),
    /// Nothing before this time has passed.
    Wait(Duration),
    /// Nothing until a file is offered.
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

    /// Adds a fragmented file. The quiet time of a known file starts again, with the new figures. Returns a file that was
    /// dropped in its favour: the one with the least gain.
    pub(super) fn offer(&mut self, candidate: Candidate, now: Nanos, settings: &MendSettings) -> Option<FileKey> {
        self.lives.wait_at_most(settings.patience);
        self.lives.noticed(&candidate.file, candidate.path.as_deref(), now);
        self.wait_until_quiet(candidate, now, now, settings)
    }

    /// A job's file was written to just now: it waits until it is quiet.
    pub(super) fn not_quiet(&mut self, job: Job, now: Nanos, settings: &MendSettings) {
        self.wait_until_quiet(job.candidate, job.since, now, settings);
    }

    fn wait_until_quiet(
        &mut self,
        candidate: Candidate,
        since: Nanos,
        now: Nanos,
        settings: &MendSettings,
    ) -> Option<FileKey> {
        let known = self.remove(&candidate.file);
        let attempts = known.as_ref().map_or(0, |file| file.attempts);
        let step = known.as_ref().map_or(0, |file| file.step);
        let since = known.as_ref().map_or(since, |file| file.since.min(since));
        let size = candidate.size.or_else(|| known.and_then(|file| file.size));
        let waiting = Waiting {
            path: candidate.path,
            excess: candidate.excess,
            size,
            ready: after(now, wait(settings.quiet, attempts)),
            since,
            held: None,
            attempts,
            step,
            gain: gain(candidate.excess, size),
        };
        self.insert(candidate.file, waiting);
        if self.files.len() <= settings.longest_queue.max(1) {
            return None;
        }
        let (.., last) = *self.order.last()?;
        self.remove(&last);
        Some(last)
    }

    /// Another process writes to the file: its quiet time starts again.
    pub(super) fn touched(&mut self, file: &FileKey, now: Nanos, settings: &MendSettings) {
        if let Some(waiting) = self.files.get_mut(file) {
            waiting.ready = waiting.ready.max(after(now, settings.quiet));
            waiting.held = None;
        }
    }

    /// Forgets everything on a volume.
    pub(super) fn forget_volume(&mut self, volume: DeviceNumber) {
        self.files.retain(|file, _| file.volume != volume);
        self.order.retain(|(.., file)| file.volume != volume);
        self.lives.forget_volume(volume);
        self.failing.remove(&volume);
    }

    /// A job failed, for reasons of its volume: it is put back, and nothing on the volume is tried for a while. How
    /// often that was by now, and for how long.
    pub(super) fn failed(&mut self, job: Job, problem: &str, now: Nanos, settings: &MendSettings) -> (u32, Duration) {
        let volume = job.candidate.file.volume;
        let failures = self.failing.get(&volume).map_or(0, |failing| failing.failures).saturating_add(1);
        let again = wait(settings.after_failure, failures - 1);
        self.failing.insert(volume, Failing { failures, problem: problem.to_owned(), until: after(now, again) });
        // It may be given up here. It is reported again when another process writes to it.
        self.postpone(job, now, settings);
        (failures, again)
    }

    /// Mending works on the volume.
    pub(super) fn worked(&mut self, volume: DeviceNumber) {
        self.failing.remove(&volume);
    }

    /// What is wrong with a volume where mending fails again and again.
    pub(super) fn trouble(&self, volume: DeviceNumber, now: Nanos) -> Option<String> {
        let told = |failing: &&Failing| failing.failures >= TOLD_FROM;
        let Failing { failures, problem, until } = self.failing.get(&volume).filter(told)?;
        let seconds = between(now, *until).as_secs();
        Some(format!("mending failed {failures} times in a row; the next attempt is in {seconds} s: {problem}"))
    }

    /// What to do now. Of the files that are ready and within their volume's budget, the one with the most gain.
    pub(super) fn next(&mut self, now: Nanos, settings: &MendSettings) -> Next {
        self.lives.wait_at_most(settings.patience);
        let next = if settings.resting { Next::Idle } else { self.soonest(now, settings) };
        self.behind = matches!(next, Next::Mend(_)).then(|| self.behind.unwrap_or(now));
        next
    }

    /// What the files wait for.
    pub(super) fn waits(&self, now: Nanos) -> Waits {
        let mut waits = Waits::default();
        for file in self.files.values() {
            let waiting = match file.held {
                _ if file.ready <= now => &mut waits.turn,
                Some(Hold::ShortLived) => &mut waits.short_lived,
                Some(Hold::Again) => &mut waits.again,
                None if file.attempts > 0 => &mut waits.tried,
                None if file.step > 0 => &mut waits.dear,
                None => &mut waits.quiet,
            };
            *waiting += 1;
        }
        waits
    }

    /// For how long there has been something due without a break.
    pub(super) fn behind(&self, now: Nanos) -> Duration {
        self.behind.map_or(Duration::ZERO, |since| between(since, now))
    }

    fn soonest(&mut self, now: Nanos, settings: &MendSettings) -> Next {
        let mut soonest: Option<Nanos> = None;
        let mut found = None;
        for (.., file) in &self.order {
            let budget = self.budget(file.volume, now, settings);
            let day_ends = self.day_ends(file);
            let Some(waiting) = self.files.get_mut(file) else { continue };
            if waiting.ready <= now {
                let latest = after(waiting.since, settings.patience);
                let hold = self.lives.hold(file, now).map(|(until, why)| (until.min(latest), why));
                let hold = hold.filter(|(until, _)| *until > now);
                waiting.ready = hold.map_or(waiting.ready, |(until, _)| until);
                waiting.held = hold.map(|(_, why)| why);
            }
            // What is larger than a whole day's budget is tried when all of it is there: then the reason is told.
            let affordable = waiting.size.is_none_or(|size| size <= budget) || budget == settings.daily_budget;
            let ready = if affordable && budget.0 > 0 { waiting.ready } else { waiting.ready.max(day_ends) };
            let ready = self.failing.get(&file.volume).map_or(ready, |failing| ready.max(failing.until));
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
        let Waiting { attempts, step, since, .. } = waiting;
        Next::Mend(Box::new(Job { candidate, attempts, step, since, budget }))
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
        let Job { step, since, .. } = job;
        let new = Waiting { path, excess, size, ready: now, since, held: None, attempts, step, gain: 0 };
        let mut waiting = known.unwrap_or(new);
        waiting.attempts = attempts;
        waiting.ready = waiting.ready.max(after(now, wait(settings.quiet, attempts)));
        waiting.gain = gain(waiting.excess, waiting.size);
        self.insert(file, waiting);
        true
    }

    /// Puts a job back that cost more than is paid now: more is paid the next time.
    pub(super) fn dearer(&mut self, job: Job, now: Nanos, settings: &MendSettings) {
        let (file, step) = (job.candidate.file, (job.step + 1).min(STEPS));
        let size = job.candidate.size.unwrap_or(USUAL_SIZE);
        self.put_back(job, size, now);
        if let Some(mut waiting) = self.remove(&file) {
            waiting.step = waiting.step.max(step);
            waiting.ready = waiting.ready.max(after(now, settings.quiet));
            self.insert(file, waiting);
        }
    }

    /// Puts a job back whose file has been measured: ready, and in its place by that. What is known since is better.
    pub(super) fn put_back(&mut self, job: Job, size: Bytes, now: Nanos) {
        let Candidate { file, path, excess, .. } = job.candidate;
        let known = self.remove(&file);
        let Job { attempts, step, since, .. } = job;
        let new = Waiting { path, excess, size: None, ready: now, since, held: None, attempts, step, gain: 0 };
        let mut waiting = known.unwrap_or(new);
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
        self.order.insert(waiting.place(file));
        self.files.insert(file, waiting);
    }

    fn remove(&mut self, file: &FileKey) -> Option<Waiting> {
        let waiting = self.files.remove(file)?;
        self.order.remove(&waiting.place(*file));
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
