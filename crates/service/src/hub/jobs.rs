//! Decides which job may work now, and has it work.
//!
//! Owns the rules between jobs, volumes, scans, pauses and windows: one job at a time, so that the memory suffices, and never while
//! a scan goes on. The list and the states of the jobs are in `jobs/`.

use super::{Entry, Hub};
use crate::config::{Moment, VolumeSettings};
use crate::gauges::job_memory;
use crate::jobs::protocol::Order;
use crate::jobs::{Child, Done, Ending, Overrides, Record};
use crate::menders::NOT_PERMITTED;
use crate::threads::lock;
use jiff::Timestamp;
use longrun_api::jobs::{Job, JobOrigin, JobRequest, JobState, Task};
use longrun_governor::{Duty, MinProgress, Pace};
use longrun_ledger::{Account, Counter, Severity};
use longrun_prevention::Watched;
use longrun_sys::{BlockDevice, DeviceNumber, volume_members};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether a job may begin or has to end.
const ROUND: Duration = Duration::from_millis(500);
/// So long processes of jobs are waited for when the service ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a job is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum NoJob {
    /// There is no such volume, or no such job.
    Unknown,
    /// The request is not valid.
    Wrong(String),
    /// Another one is in the way, or the configuration; and what to do.
    Conflict(String, &'static str),
}

/// A volume, as far as jobs are concerned.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) id: String,
    pub(super) watched: Watched,
    pub(super) settings: VolumeSettings,
    pub(super) disks: BTreeSet<DeviceNumber>,
}

impl From<&Entry> for Place {
    fn from(entry: &Entry) -> Self {
        Self {
            id: entry.id.clone(),
            watched: entry.found.watched.clone(),
            settings: entry.settings.clone(),
            disks: entry.disks.clone(),
        }
    }
}

/// The devices of the volume that was mounted from `source`. The number that its files have is not that of a device on btrfs.
pub(super) fn members(source: &Path) -> Vec<DeviceNumber> {
    let number = std::fs::metadata(source).map(|meta| DeviceNumber::from_stat(meta.rdev()));
    number.map(volume_members).unwrap_or_default()
}

/// The disks below the volume that was mounted from `source`.
pub(super) fn disks(source: &Path) -> BTreeSet<DeviceNumber> {
    let below = |member: DeviceNumber| match BlockDevice::numbered(member) {
        Ok(device) => device.disks().into_iter().map(|disk| disk.number).collect(),
        Err(_) => vec![member],
    };
    members(source).into_iter().flat_map(below).collect()
}

/// Today (UTC), as a budget counts it.
pub(super) fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

impl Hub {
    pub(super) fn places(&self) -> Vec<Place> {
        lock(&self.volumes).values().map(Place::from).collect()
    }

    /// Accepts a job of an operator, which begins as soon as that is possible.
    ///
    /// # Errors
    /// Why not.
    pub fn ask_for(&self, request: JobRequest) -> Result<Job, NoJob> {
        check(&request).map_err(NoJob::Wrong)?;
        let places = self.places();
        let place = places.iter().find(|place| place.id == request.volume).ok_or(NoJob::Unknown)?;
        if !place.settings.enabled {
            let text = format!("{}: the configuration disables this volume", place.watched.point.display());
            return Err(NoJob::Conflict(text, "set enabled = true for it, and reload"));
        }
        let job = Job {
            volume: request.volume,
            mount: place.watched.point.to_string_lossy().into_owned(),
            task: request.task,
            mode: request.mode,
            dry_run: request.dry_run,
            consolidate: request.consolidate,
            budget: request.budget,
            deadline: request.deadline,
            by: JobOrigin::Operator,
            ..Job::default()
        };
        let overrides = Overrides {
            pace: request.pace,
            max_duty: request.max_duty,
            min_progress: request.min_progress,
            placement: request.placement,
            explain: request.explain,
        };
        let record = Record { job, overrides, ..Record::default() };
        // One after the other: two requests must not both find the disk free.
        let _one = lock(&self.asking);
        if let Some(other) = self.job_on_the_disk_of(place, &places) {
            let text = format!("job {} ({} of {}) already uses this disk", other.id, other.task.name(), other.mount);
            return Err(NoJob::Conflict(text, "wait until it has ended, or cancel it"));
        }
        let job = self.jobs.add(record);
        self.tell_job(&job);
        Ok(job)
    }

    /// A job that works or waits on a disk of `place`.
    fn job_on_the_disk_of(&self, place: &Place, places: &[Place]) -> Option<Job> {
        let shares = |job: &Job| {
            let other = places.iter().find(|other| other.id == job.volume);
            job.volume == place.id || other.is_some_and(|other| !other.disks.is_disjoint(&place.disks))
        };
        let active = self.jobs.active().into_iter();
        active.filter(|job| job.state != JobState::Paused).find(|job| shares(job))
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// Why not.
    pub fn cancel_job(&self, id: u64) -> Result<Job, NoJob> {
        let job = self.jobs.cancel(id).ok_or(NoJob::Unknown)?.map_err(|state| {
            let text = format!("job {id} is {} already", state.name());
            NoJob::Conflict(text, "GET /v1/jobs lists those that have not ended")
        })?;
        if job.state.has_ended() {
            self.conclude(&job);
        }
        Ok(job)
    }

    /// Has jobs work to the end of the service.
    pub fn work_on_jobs(self: &Arc<Self>) {
        while !self.threads.rest(ROUND) {
            self.threads.beat("jobs");
            self.round_of_jobs(Moment::now());
        }
        if let Some(id) = self.jobs.running() {
            self.jobs.halt(id, Ending::Service);
        }
        let until = Instant::now() + PATIENCE;
        while self.jobs.running().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.jobs.running().is_some() {
            tracing::warn!("the process of a job has not ended yet; it ends by itself, and gives back what it holds");
        }
        self.jobs.keep();
    }

    /// Ends, begins and writes down what is due at `now`.
    pub(super) fn round_of_jobs(self: &Arc<Self>, now: Moment) {
        self.follow_permissions();
        let places = self.places();
        self.schedule_passes(&places, now);
        if let Some(job) = self.jobs.running().and_then(|id| self.jobs.get(id)) {
            if let Some(why) = self.obstacle(&job, &places, now) {
                self.jobs.halt(job.id, Ending::Pause(why));
            }
        } else {
            self.begin_next(&places, now);
        }
        self.jobs.keep();
    }

    /// Begins the first job that may work, and says of the others why they do not.
    fn begin_next(self: &Arc<Self>, places: &[Place], now: Moment) {
        let mut jobs = self.jobs.active();
        jobs.sort_by_key(|job| (job.by == JobOrigin::Schedule, job.id));
        for job in jobs {
            let Some(place) = places.iter().find(|place| place.id == job.volume) else {
                self.jobs.say(job.id, "its volume is not mounted");
                continue;
            };
            if let Some(why) = self.obstacle(&job, places, now) {
                self.jobs.say(job.id, &why);
                continue;
            }
            if self.jobs.is_put_off(job.id) || self.end_what_is_spent(&job) {
                continue;
            }
            if let Some(other) = self.jobs.running() {
                self.jobs.say(job.id, &format!("job {other} is at work; one works at a time, so that memory suffices"));
            } else if let Err(why) = self.begin_job(&job, place) {
                self.jobs.say(job.id, &why);
            }
        }
    }

    /// Why a job may not work now, or not go on.
    fn obstacle(&self, job: &Job, places: &[Place], now: Moment) -> Option<String> {
        self.obstacle_at_home(job, places, now).or_else(|| {
            let place = places.iter().find(|place| place.id == job.volume)?;
            (!self.fleet.permits(&place.watched.point)).then(|| NOT_PERMITTED.to_owned())
        })
    }

    /// The same, as far as other hosts have nothing to do with it.
    pub(super) fn obstacle_at_home(&self, job: &Job, places: &[Place], now: Moment) -> Option<String> {
        if self.menders.pause().is_some() {
            return Some("an operator has paused the service".to_owned());
        }
        let place = places.iter().find(|place| place.id == job.volume)?;
        if !place.settings.enabled {
            return Some("the configuration disables this volume".to_owned());
        }
        self.obstacle_of_pass(job, place, now)
    }

    fn begin_job(self: &Arc<Self>, job: &Job, place: &Place) -> Result<(), String> {
        let record = self.jobs.record(job.id).ok_or("it is gone")?;
        let order = self.order(&record, place);
        // While this is held no scan begins, and none goes on.
        let scanning = lock(&self.scanning);
        if let Some(volume) = &*scanning {
            return Err(format!("volume {volume} is being scanned"));
        }
        if moves_files(job) && job.runs == 0 {
            let map = self.map_wanted(&job.volume).and_then(|(wanted, _)| self.maps().pass_begins(&wanted));
            self.jobs.change(job.id, |record| record.map_before = map);
        }
        let started = Child::start(&self.jobs.program, job.id, job.moved_bytes, &order);
        let (child, follower) = match started {
            Ok(started) => started,
            Err(error) => {
                let why = format!("starting its process failed: {error}");
                self.jobs.change(job.id, |record| record.over(JobState::Failed, Some(why.clone())));
                drop(scanning);
                self.jobs.get(job.id).iter().for_each(|job| self.conclude(job));
                return Err(why);
            }
        };
        self.jobs.began(child);
        drop(scanning);
        if record.changes_the_volume() {
            self.menders.begin_pass(&place.watched.point);
            self.menders.set(&place.watched, &place.settings);
        }
        self.jobs.get(job.id).iter().for_each(|job| self.tell_job(job));
        let (hub, point) = (Arc::clone(self), place.watched.point.clone());
        let follow = move || {
            let end = follower.follow(|progress| hub.jobs.progressed(progress));
            hub.job_ended(end, &point);
        };
        // Without a thread its process ends at once: its output is closed.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(follow) {
            self.job_ended(Err(format!("starting a thread failed: {error}")), &place.watched.point);
        }
        Ok(())
    }

    fn order(&self, record: &Record, place: &Place) -> Order {
        let (job, settings, chosen) = (&record.job, &place.settings, &record.overrides);
        let budget = self.budget_of_pass(record, place);
        Order {
            mount: place.watched.point.clone(),
            device: place.watched.device.to_string(),
            task: job.task,
            mode: job.mode,
            at_most_efficient: record.at_most_efficient,
            dry_run: job.dry_run,
            consolidate: job.consolidate,
            budget: budget.or_else(|| job.budget.map(|most| most.saturating_sub(job.moved_bytes))),
            deadline: job.deadline.map(|most| most.saturating_sub(job.worked_seconds).max(1)),
            pace: chosen.pace.clone().unwrap_or_else(|| settings.pace.to_string()),
            max_duty: chosen.max_duty.clone().unwrap_or_else(|| settings.max_duty.to_string()),
            min_progress: chosen.min_progress.clone().unwrap_or_else(|| settings.min_progress.to_string()),
            placement: chosen.placement.clone(),
            explain: chosen.explain,
            memory: job_memory().map(|most| most.0),
            state: Some(self.config().service.state_directory.clone()),
        }
    }

    fn job_ended(self: &Arc<Self>, end: Result<crate::jobs::protocol::End, String>, point: &Path) {
        // systemd sends the signal that ends the service to this process, too, and perhaps first.
        let interrupted = end.as_ref().is_ok_and(|end| end.status == 130) && !self.jobs.is_halted();
        let stopping = if interrupted { self.threads.rest(Duration::from_secs(1)) } else { self.threads.stopping() };
        self.menders.end_pass(point);
        let Some((job, done)) = self.jobs.ended(end, stopping, &today()) else { return };
        self.conclude(&job);
        if job.task != Task::Analyze && !job.dry_run {
            self.count_job(&job, done);
        }
        self.look_again(&job);
        if !stopping {
            self.set_menders();
        }
    }

    /// The figures of the last scan are no longer those of the volume.
    fn look_again(&self, job: &Job) {
        if job.moved_bytes == 0 && job.task == Task::Optimize || job.dry_run || job.task == Task::Analyze {
            return;
        }
        let mut volumes = lock(&self.volumes);
        for entry in volumes.values_mut().filter(|entry| entry.id == job.volume) {
            entry.pays = None;
            if job.state.has_ended() {
                entry.next_scan = entry.next_scan.map(|_| Instant::now());
            }
        }
    }

    /// For the history.
    fn count_job(&self, job: &Job, done: Done) {
        let account = Account::volume(&job.volume);
        self.activity.count_for(&account, Counter::Passes, u64::from(job.state == JobState::Finished));
        self.activity.count_for(&account, Counter::FragmentsByPasses, done.fragments);
        self.activity.count_for(&account, Counter::BytesByPasses, done.moved);
        self.activity.count_for(&account, Counter::BytesReclaimed, done.reclaimed);
    }

    /// What a job that has ended or pauses leaves: the map from before it, and an event.
    pub(super) fn conclude(&self, job: &Job) {
        self.keep_map_from_before(job);
        self.tell_job(job);
    }

    /// An event, which the history keeps.
    pub(super) fn tell_job(&self, job: &Job) {
        let severity = if job.state == JobState::Failed { Severity::Warning } else { Severity::Info };
        let what = match (job.by, job.task) {
            (JobOrigin::Schedule, _) => "the scheduled pass".to_owned(),
            (_, task) => format!("{}{}", task.name(), if job.dry_run { " (dry run)" } else { "" }),
        };
        let mut text = format!("{}: job {}, {what}, is {}", job.mount, job.id, job.state.name());
        let ended = job.state.has_ended() || job.state == JobState::Paused;
        let told = [job.reason.as_ref(), job.summary.as_ref().filter(|_| ended)];
        told.into_iter().flatten().for_each(|part| text.extend([": ", part]));
        let kind = format!("job-{}", job.state.name());
        self.activity.tell(&Account::volume(&job.volume), severity, &kind, text, None);
    }
}

/// Whether it is to change where files lie.
pub(super) fn moves_files(job: &Job) -> bool {
    job.task == Task::Optimize && !job.dry_run
}

fn check(request: &JobRequest) -> Result<(), String> {
    let wrong = |key: &str| Err(format!("{key} is not valid"));
    if request.pace.as_ref().is_some_and(|text| text.parse::<Pace>().is_err()) {
        return wrong("pace");
    }
    if request.max_duty.as_ref().is_some_and(|text| text.parse::<Duty>().is_err()) {
        return wrong("max_duty");
    }
    if request.min_progress.as_ref().is_some_and(|text| text.parse::<MinProgress>().is_err()) {
        return wrong("min_progress");
    }
    if request.placement.as_ref().is_some_and(|text| !["auto", "off", "plan"].contains(&text.as_str())) {
        return wrong("placement");
    }
    if request.deadline == Some(0) || request.budget == Some(0) {
        return Err("budget and deadline must be larger than 0, or absent".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::look::tests::hub;
    use longrun_lab::{LoopVolume, VolumeSpec};

    #[test]
    fn loop_a_disk_has_one_job_of_an_operator_and_another_disk_has_its_own() {
        let volumes = [(); 2].map(|()| LoopVolume::create(&VolumeSpec::ext4(64)).unwrap());
        let state = tempfile::tempdir().unwrap();
        let hub = hub(&volumes.iter().collect::<Vec<_>>(), state.path());
        hub.refresh();
        let id = |volume: &LoopVolume| {
            let places = hub.places();
            places.iter().find(|place| place.watched.point == volume.mount_point()).unwrap().id.clone()
        };
        let ids = volumes.each_ref().map(id);
        let ask = |id: &String| hub.ask_for(JobRequest { volume: id.clone(), ..JobRequest::default() });
        let first = ask(&ids[0]).unwrap();
        assert!(matches!(ask(&ids[0]), Err(NoJob::Conflict(..))));
        let second = ask(&ids[1]).unwrap();
        hub.cancel_job(second.id).unwrap();
        // As if they were partitions of one disk.
        let shared = hub.places().iter().find(|place| place.id == ids[0]).unwrap().disks.clone();
        assert_eq!(shared.len(), 1);
        lock(&hub.volumes).values_mut().for_each(|entry| entry.disks = shared.clone());
        assert!(matches!(ask(&ids[1]), Err(NoJob::Conflict(..))));
        hub.cancel_job(first.id).unwrap();
        ask(&ids[1]).unwrap();
    }
}
