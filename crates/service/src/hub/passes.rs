//! Scheduled passes: begins them when they are due, and keeps them within their windows, budgets and times.
//!
//! Owns what the schedule means for jobs. When a pass is due says `jobs/schedule.rs`.

use super::Hub;
use super::jobs::{Place, today};
use crate::config::{Moment, PassMode};
use crate::gauges::is_scanned_daily;
use crate::jobs::schedule::{self, Decision, Known, Situation};
use crate::jobs::{Overrides, Record};
use crate::threads::lock;
use jiff::{SignedDuration, Timestamp};
use longrun_api::jobs::{Job, JobMode, JobOrigin, JobState, Task};
use longrun_api::model;
use std::time::{Duration, Instant};

impl Hub {
    /// Begins the passes that are due at `now`.
    pub(super) fn schedule_passes(&self, places: &[Place], now: Moment) {
        places.iter().filter(|place| !is_on(place)).for_each(|place| self.end_pass_of(place));
        for place in places.iter().filter(|place| is_on(place)) {
            match self.decide(place, now) {
                Decision::Begin => self.begin_pass(place),
                Decision::Scan => {
                    let mut volumes = lock(&self.volumes);
                    if let Some(entry) = volumes.get_mut(&place.watched.device) {
                        // Only ever nearer.
                        entry.next_scan = entry.next_scan.map(|next| next.min(Instant::now()));
                    }
                }
                Decision::UnderWay | Decision::Wait(_) => {}
            }
        }
    }

    fn decide(&self, place: &Place, now: Moment) -> Decision {
        schedule::decide(&Situation {
            settings: &place.settings,
            now: place.shifted(now),
            under_way: self.jobs.pass_of(&place.id).is_some(),
            since_last: self.jobs.last_pass(&place.id).map(since),
            known: self.known(place),
        })
    }

    /// What the last scan says.
    fn known(&self, place: &Place) -> Known {
        let volumes = lock(&self.volumes);
        let Some(entry) = volumes.get(&place.watched.device) else { return Known::Nothing };
        match (entry.pays, &entry.scan_trouble) {
            (Some(pays), _) => Known::Scanned { pays },
            (None, Some(trouble)) => Known::Trouble(trouble.clone()),
            (None, None) => {
                let small = entry.space.total_bytes <= entry.settings.scan_largest.0;
                let scanned = is_scanned_daily(place.watched.filesystem) && entry.next_scan.is_some() && small;
                if scanned { Known::Nothing } else { Known::NeverScanned }
            }
        }
    }

    /// The configuration asks for no pass of the volume any more.
    fn end_pass_of(&self, place: &Place) {
        let Some(job) = self.jobs.pass_of(&place.id) else { return };
        if let Some(Ok(job)) = self.jobs.cancel(job.id)
            && job.state.has_ended()
        {
            let why = "the configuration asks for no pass of this volume any more (pass = \"off\")";
            self.jobs.change(job.id, |record| record.job.reason = Some(why.to_owned()));
            self.jobs.get(job.id).iter().for_each(|job| self.conclude(job));
        }
    }

    fn begin_pass(&self, place: &Place) {
        let settings = &place.settings;
        let job = Job {
            volume: place.id.clone(),
            mount: place.watched.point.to_string_lossy().into_owned(),
            task: Task::Optimize,
            // The pass itself looks what pays: not more than that is done.
            mode: JobMode::Auto,
            by: JobOrigin::Schedule,
            deadline: limit(settings.pass_deadline),
            ..Job::default()
        };
        let at_most_efficient = settings.pass == PassMode::Efficient;
        let record = Record { job, overrides: Overrides::default(), at_most_efficient, ..Record::default() };
        let job = self.jobs.add(record);
        self.tell_job(&job);
    }

    /// Why a pass may not work now.
    pub(super) fn obstacle_of_pass(&self, job: &Job, place: &Place, now: Moment) -> Option<String> {
        if job.by != JobOrigin::Schedule {
            return None;
        }
        let settings = &place.settings;
        if !schedule::is_open(&settings.pass_windows, place.shifted(now)) {
            return Some("no window (pass_windows) is in effect".to_owned());
        }
        let is_spent = settings.pass_budget.0 > 0 && self.moved_today(place) >= settings.pass_budget.0;
        // What works knows its budget.
        let is_spent = is_spent && job.state != JobState::Running;
        is_spent.then(|| "the budget of the day (pass_budget) is used up".to_owned())
    }

    fn moved_today(&self, place: &Place) -> u64 {
        self.jobs.moved_on(&place.id, &today())
    }

    /// What a pass may still move today; `None` without bound, and for other jobs.
    pub(super) fn budget_of_pass(&self, record: &Record, place: &Place) -> Option<u64> {
        let budget = place.settings.pass_budget.0;
        (record.is_pass() && budget > 0).then(|| budget.saturating_sub(self.moved_today(place)).max(1))
    }

    /// Ends a job that may begin but has used up its time or its budget in earlier runs.
    pub(super) fn end_what_is_spent(&self, job: &Job) -> bool {
        let time = job.deadline.is_some_and(|most| job.worked_seconds >= most);
        let budget = job.budget.is_some_and(|most| job.moved_bytes >= most);
        if !time && !budget {
            return false;
        }
        let why = if time { "its time is used up" } else { "its budget is used up" };
        self.jobs.change(job.id, |record| record.over(JobState::Finished, Some(why.to_owned())));
        self.jobs.get(job.id).iter().for_each(|job| self.conclude(job));
        true
    }

    /// The schedule of a volume, as it is shown.
    pub(super) fn pass(&self, place: &Place, now: Moment) -> model::Pass {
        let settings = &place.settings;
        let job = self.jobs.pass_of(&place.id);
        let is_on = is_on(place);
        let decision = if is_on { Some(self.decide(place, now)) } else { None };
        let waits = match (&job, decision) {
            (Some(job), _) => job.reason.clone(),
            (None, Some(Decision::Wait(why))) => Some(why),
            (None, Some(Decision::Scan)) => Some("the volume is to be scanned first".to_owned()),
            _ => None,
        };
        model::Pass {
            mode: settings.pass.name().to_owned(),
            windows: settings.pass_windows.iter().map(ToString::to_string).collect(),
            next_window: is_on.then(|| next_window(place, now)).flatten().map(|at| at.to_string()),
            window_open: is_on && schedule::is_open(&settings.pass_windows, place.shifted(now)),
            waits,
            job: job.map(|job| job.id),
            last_ended: self.jobs.last_pass(&place.id).map(|at| at.to_string()),
            moved_today_bytes: self.moved_today(place),
        }
    }
}

fn is_on(place: &Place) -> bool {
    place.settings.enabled && place.settings.pass != PassMode::Off
}

fn since(at: Timestamp) -> Duration {
    Timestamp::now().duration_since(at).unsigned_abs()
}

/// A limit of nothing is none.
fn limit(time: Duration) -> Option<u64> {
    (!time.is_zero()).then(|| time.as_secs().max(1))
}

/// When the next window begins; now, while one is in effect.
fn next_window(place: &Place, now: Moment) -> Option<Timestamp> {
    let minutes = schedule::minutes_to(&place.settings.pass_windows, place.shifted(now))?;
    let second = Timestamp::now().as_second();
    let minute = Timestamp::from_second(if minutes == 0 { second } else { second - second.rem_euclid(60) }).ok()?;
    minute.checked_add(SignedDuration::from_mins(i64::from(minutes))).ok()
}
