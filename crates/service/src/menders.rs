//! Mending of each volume by its own settings, fed by the observations of prevention.
//!
//! Owns one queue with its worker per volume, because budgets, quiet times and windows differ, and a slow device must
//! not delay another one. Owns also the times without mending.

use crate::activity::Activity;
use crate::config::{Moment, VolumeSettings};
use crate::fleet::Permissions;
use crate::governed::{Governed, Manner};
use crate::mending::{Candidate, MendEvent, MendSettings, MendSink, Mending, Waits};
use crate::threads::lock;
use jiff::Timestamp;
use longrun_api::model;
use longrun_layout::Bytes;
use longrun_ledger::Severity;
use longrun_prevention::{Happening, Sink, Watched};
use longrun_sys::DeviceNumber;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The menders of all volumes.
pub struct Menders {
    activity: Arc<Activity>,
    open: Mutex<BTreeMap<DeviceNumber, Mender>>,
    /// Told to end, but the kernel has not come back from a file.
    stuck: Mutex<BTreeMap<DeviceNumber, Arc<Mending>>>,
    /// Paused on request, until this time.
    paused: Mutex<Option<Timestamp>>,
    /// Where a pass is at work.
    passes: Mutex<BTreeSet<PathBuf>>,
    /// What the fleet permits.
    fleet: Arc<Permissions>,
}

/// A mender that has been silent for so long is reported as a trouble.
const SILENCE: Duration = Duration::from_secs(30);
/// Files that are due are to be mended within this time; otherwise that is a trouble.
const LATE: Duration = Duration::from_secs(3600);
/// Why work on shared storage waits.
pub const NOT_PERMITTED: &str =
    "it waits for permission of the fleet: other hosts use the same storage, or the agent is silent";
/// So long all of them together are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What mends one volume.
#[derive(Clone)]
struct Mender {
    mending: Arc<Mending>,
    governed: Arc<Governed>,
}

/// Why mending of a volume is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// An operator has asked for it.
    Request,
    /// The configuration says so of this time.
    Window,
    /// What may be written in a day has been written, if not by this service then by one before.
    Budget,
    /// A job is at work on the volume.
    Pass,
    /// The fleet has not permitted work on the storage.
    Fleet,
}

impl Rest {
    fn of(paused: bool, settings: &VolumeSettings, moved_today: Bytes, now: Moment) -> Option<Self> {
        if paused {
            return Some(Self::Request);
        }
        let spent = settings.mending_budget.0 > 0 && moved_today >= settings.mending_budget;
        if settings.rests(now) { Some(Self::Window) } else { spent.then_some(Self::Budget) }
    }

    /// For programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Window => "window",
            Self::Budget => "budget",
            Self::Pass => "pass",
            Self::Fleet => "fleet",
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "an operator has paused it",
            Self::Window => "a configured window (mending_rests) is in effect",
            Self::Budget => "the daily budget (mending_budget) is used up",
            Self::Pass => "a job is at work on the volume",
            Self::Fleet => NOT_PERMITTED,
        })
    }
}

/// What `settings` mean now.
fn mend_settings(settings: &VolumeSettings, worth: Bytes, rest: Option<Rest>) -> MendSettings {
    let daily_budget = if settings.mending_budget.0 == 0 { Bytes(u64::MAX) } else { settings.mending_budget };
    let resting = rest.is_some();
    MendSettings {
        quiet: settings.mending_quiet,
        patience: settings.mending_patience,
        daily_budget,
        worth,
        resting,
        ..MendSettings::default()
    }
}

impl Menders {
    /// None yet.
    pub fn new(activity: Arc<Activity>, fleet: Arc<Permissions>) -> Arc<Self> {
        Arc::new(Self {
            activity,
            fleet,
            open: Mutex::default(),
            stuck: Mutex::default(),
            paused: Mutex::default(),
            passes: Mutex::default(),
        })
    }

    /// The volume is mended by `settings` from now on; not at all, when these say so.
    pub fn set(&self, volume: &Watched, settings: &VolumeSettings) {
        if !settings.enabled || !settings.mending {
            return self.end(volume.device);
        }
        if self.is_stuck(volume.device) {
            return;
        }
        let (manner, rest) = (Manner::of(settings), self.rest(&volume.point, settings));
        let known = lock(&self.open).get(&volume.device).cloned();
        if let Some(Mender { mending, governed }) = known {
            governed.set(manner);
            return mending.reconfigure(mend_settings(settings, governed.worth(), rest));
        }
        let governed = Arc::new(Governed::new(volume.point.clone(), manner, Arc::clone(&self.fleet)));
        let how = mend_settings(settings, governed.worth(), rest);
        match Mending::start(how, Arc::clone(&governed) as _, Arc::clone(&self.activity) as Arc<dyn MendSink>) {
            Ok(mending) => {
                mending.watch(volume.clone());
                lock(&self.open).insert(volume.device, Mender { mending: Arc::new(mending), governed });
            }
            Err(error) => tracing::error!("{}: starting the mending thread failed: {error}", volume.point.display()),
        }
    }

    /// Ends mending of the volume. Returns when no file of it is being mended, or when it does not respond for some
    /// seconds. No new mender starts there before this one has returned.
    pub fn end(&self, device: DeviceNumber) {
        let mender = lock(&self.open).remove(&device);
        if let Some(Mender { mending, .. }) = mender
            && !mending.unwatch(device)
        {
            tracing::warn!("{device}: a system call of mending does not return; its thread is left behind");
            mending.end();
            lock(&self.stuck).insert(device, mending);
        }
    }

    /// No volume is mended any more. What does not answer is left behind.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *lock(&self.open));
        all.values().for_each(|mender| mender.mending.end());
        let until = Instant::now() + PATIENCE;
        for (device, Mender { mending, .. }) in all {
            while !mending.has_ended() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !mending.has_ended() {
                tracing::warn!("{device}: a system call of mending does not return");
                lock(&self.stuck).insert(device, mending);
            }
        }
    }

    /// Whether a mender that was told to end is still in the hands of the kernel.
    fn is_stuck(&self, device: DeviceNumber) -> bool {
        let mut stuck = lock(&self.stuck);
        stuck.retain(|_, mending| !mending.has_ended());
        stuck.contains_key(&device)
    }

    /// A pass of the volume at `point` is at work: mending rests. It takes effect with the next [`Self::set`], as the end does.
    pub fn begin_pass(&self, point: &Path) {
        lock(&self.passes).insert(point.to_owned());
    }

    /// It has ended.
    pub fn end_pass(&self, point: &Path) {
        lock(&self.passes).remove(point);
    }

    /// What is wrong with mending on a volume.
    pub fn trouble(&self, volume: &Watched) -> Option<String> {
        let point = volume.point.display();
        let mending = self.of(volume.device);
        let snapshot = mending.as_ref().map(|mending| mending.snapshot()).unwrap_or_default();
        let silent = snapshot.silent;
        if silent > SILENCE || self.is_stuck(volume.device) {
            let why = "the volume is frozen, or its device hangs: thaw it (fsfreeze -u), or check the device";
            return Some(format!("{point}: a system call of mending does not return; {why}"));
        }
        let late = || {
            let governed = lock(&self.open).get(&volume.device).map(|mender| Arc::clone(&mender.governed))?;
            late(snapshot.behind, &governed.loads())
        };
        let trouble = mending?.trouble(volume.device).or_else(late);
        trouble.map(|trouble| format!("{point}: {trouble}"))
    }

    /// Pauses all of them until a time ([`Timestamp::MAX`]: until this is called with none). It takes effect with the next [`Self::set`].
    pub fn set_pause(&self, until: Option<Timestamp>) {
        *lock(&self.paused) = until;
    }

    /// Until when they are paused on request, if they are.
    pub fn pause(&self) -> Option<Timestamp> {
        lock(&self.paused).filter(|until| *until > Timestamp::now())
    }

    /// What they do.
    pub fn snapshot(&self) -> model::Mending {
        let paused = self.pause();
        let none = model::Mending {
            paused: paused.is_some(),
            paused_until: paused.filter(|until| *until != Timestamp::MAX).map(|until| until.to_string()),
            ..model::Mending::default()
        };
        let open = lock(&self.open);
        open.values().map(|mender| mender.mending.snapshot()).fold(none, |sum, one| model::Mending {
            queued: sum.queued + one.queued,
            queued_excess: sum.queued_excess + one.queued_excess,
            waiting: added(&sum.waiting, one.waits),
            at_work: sum.at_work || one.at_work,
            ..sum
        })
    }

    fn of(&self, device: DeviceNumber) -> Option<Arc<Mending>> {
        lock(&self.open).get(&device).map(|mender| Arc::clone(&mender.mending))
    }

    /// Why the volume at `point` is not mended now, if it would be otherwise.
    pub fn rest(&self, point: &Path, settings: &VolumeSettings) -> Option<Rest> {
        if lock(&self.passes).contains(point) {
            return Some(Rest::Pass);
        }
        let rest = Rest::of(self.pause().is_some(), settings, self.activity.moved_today(point), Moment::now());
        rest.or_else(|| (!self.fleet.permits(point)).then_some(Rest::Fleet))
    }

    /// Whether files of the volume could be mended now, or are.
    pub fn has_work(&self, volume: &Watched, settings: &VolumeSettings) -> bool {
        let rest = self.rest(&volume.point, settings);
        let snapshot = self.of(volume.device).map(|mending| mending.snapshot());
        rest.is_none_or(|rest| rest == Rest::Fleet) && snapshot.is_some_and(|now| now.waits.turn > 0 || now.at_work)
    }

    /// The governor of work on a volume: that of mending, so that there is only one, or a separate one if
    /// nothing is mended.
    pub fn governed(&self, volume: &Watched, settings: &VolumeSettings) -> Arc<Governed> {
        let known = lock(&self.open).get(&volume.device).map(|mender| Arc::clone(&mender.governed));
        known.unwrap_or_else(|| {
            Arc::new(Governed::new(volume.point.clone(), Manner::of(settings), Arc::clone(&self.fleet)))
        })
    }

    /// How mending of a volume gives way to others.
    pub fn governor(&self, device: DeviceNumber, settings: &VolumeSettings) -> model::Governor {
        let governed = lock(&self.open).get(&device).map(|mender| Arc::clone(&mender.governed));
        let idle = || model::Governor { pace: settings.pace.to_string(), ..model::Governor::default() };
        governed.map_or_else(idle, |governed| governed.loads())
    }
}

fn added(sum: &model::Waiting, one: Waits) -> model::Waiting {
    model::Waiting {
        turn: sum.turn + one.turn,
        quiet: sum.quiet + one.quiet,
        tried: sum.tried + one.tried,
        dear: sum.dear + one.dear,
        short_lived: sum.short_lived + one.short_lived,
        again: sum.again + one.again,
    }
}

/// That mending does not keep up, and why, if it has been `behind` for so long.
fn late(behind: Duration, governor: &model::Governor) -> Option<String> {
    let minutes = behind.as_secs() / 60;
    let program = governor.other_program.as_ref().filter(|_| governor.waits_for.as_deref() == Some("foreign"));
    let last = program.map_or_else(String::new, |program| format!(" (last: {program})"));
    let cause = match &governor.pausing {
        Some(why) => format!("it waits now: {why}{last}"),
        None => format!("it has waited {} times for other I/O", governor.pauses),
    };
    (behind > LATE).then(|| {
        format!(
            "mending has not kept up for {minutes} minutes; {cause}. Set a larger min_progress or another pace, or set \
             mending = false"
        )
    })
}

impl Sink for Menders {
    fn happened(&self, point: &Path, happening: &Happening) {
        self.activity.happened(point, happening);
        if let Some(candidate) = Candidate::of(happening) {
            if let Some(mending) = self.of(candidate.file.volume) {
                mending.offer(candidate);
            }
        } else if let Happening::Granted { file, .. } = happening
            && let Some(mending) = self.of(file.volume)
        {
            // It is growing: if it waits to be mended, its quiet time starts again.
            mending.touched(file);
        }
    }
}

impl MendSink for Activity {
    fn mending(&self, point: &Path, event: &MendEvent) {
        let account = self.account(point);
        match event {
            MendEvent::Mended { path, before, after, moved, .. } => {
                self.mended(point, before.saturating_sub(*after), *moved);
                self.moved(point, *moved);
                let text = format!("a file in {} fragments now has {}", before + 1, after + 1);
                self.tell(&account, Severity::Info, "mended", text, path.as_deref());
            }
            MendEvent::Left { path, excess, reason, moved, .. } => {
                self.moved(point, *moved);
                let text = format!("a file with {excess} excess fragments was not mended: {}", reason.phrase());
                self.tell(&account, Severity::Info, "mending-left", text, path.as_deref());
            }
            MendEvent::Postponed { moved, .. } => self.moved(point, *moved),
            MendEvent::Failed { path, problem, failures, again, .. } => {
                self.failed(point);
                let (seconds, times) = (again.as_secs(), if *failures == 1 { "" } else { " again" });
                let text =
                    format!("mending a file failed{times}: {problem}; mending on this volume pauses for {seconds} s");
                self.tell(&account, Severity::Warning, "mending-failed", text, path.as_deref());
            }
            MendEvent::VolumeRefused { problem } => {
                let text = format!("{}: mending is not possible on this volume: {problem}", point.display());
                self.tell(&account, Severity::Warning, "mending-refused", text, None);
            }
            MendEvent::Forgotten { files } => {
                let text = format!(
                    "{}: too many files are waiting to be mended; {files} were dropped from the queue",
                    point.display()
                );
                self.tell(&account, Severity::Info, "mending-forgotten", text, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_ledger::VolumeIdentity;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn mending_rests_in_its_windows_and_a_budget_of_nothing_is_no_bound() {
        let rests = vec!["mon 08:00-18:00".parse().unwrap()];
        let settings = VolumeSettings { mending_rests: rests, mending_budget: Bytes(0), ..VolumeSettings::default() };
        let at = |hour: u16| Rest::of(false, &settings, Bytes(u64::MAX), Moment { day: 0, minute: hour * 60 });
        assert_eq!((at(9), at(19)), (Some(Rest::Window), None));
        let asked = Rest::of(true, &settings, Bytes(0), Moment { day: 0, minute: 19 * 60 });
        assert_eq!(asked, Some(Rest::Request));
        let how = mend_settings(&settings, Bytes(1), at(9));
        assert!(how.resting && how.daily_budget == Bytes(u64::MAX));
        assert!(!mend_settings(&settings, Bytes(1), at(19)).resting);
    }

    #[test]
    fn mending_that_does_not_keep_up_is_a_trouble_with_its_cause() {
        let busy = model::Governor {
            pausing: Some("other processes use the device".into()),
            waits_for: Some("foreign".into()),
            other_program: Some("fio".into()),
            ..model::Governor::default()
        };
        assert_eq!(late(LATE, &busy), None);
        let told = late(LATE * 2, &busy).unwrap();
        assert!(told.starts_with("mending has not kept up for 120 minutes; it waits now: other processes"), "{told}");
        assert!(told.contains("(last: fio)") && told.contains("min_progress"), "{told}");
        let elsewhere = model::Governor { waits_for: Some("external".into()), ..busy };
        assert!(!late(LATE * 2, &elsewhere).unwrap().contains("fio"));
        let working = model::Governor { pauses: 7, ..model::Governor::default() };
        assert!(late(LATE * 2, &working).unwrap().contains("waited 7 times for other I/O"));
    }

    /// A service that was started anew began with all of the day's budget.
    #[test]
    fn what_was_written_today_counts_when_the_service_starts_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, point) = (directory.path().join("ledger.db"), Path::new("/srv/data"));
        let volume = VolumeIdentity {
            uuid: "u".into(),
            label: None,
            point: point.into(),
            device: "/dev/sdb".into(),
            filesystem: "xfs".into(),
        };
        let settings = VolumeSettings { mending_budget: Bytes(5 << 20), ..VolumeSettings::default() };
        let open = || {
            let activity = Arc::new(Activity::open(&path));
            activity.saw(volume.clone());
            activity.flush(PATIENCE);
            Menders::new(activity, Arc::default())
        };
        let first = open();
        assert_eq!(first.rest(point, &settings), None);
        first.activity.moved(point, Bytes(5 << 20));
        assert_eq!(first.rest(point, &settings), Some(Rest::Budget));
        first.activity.flush(PATIENCE);
        drop(first);
        let second = open();
        assert_eq!(second.rest(point, &settings), Some(Rest::Budget));
        assert_eq!(second.rest(Path::new("/elsewhere"), &settings), None);
    }
}
