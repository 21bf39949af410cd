//! Mending for each volume by its own settings, and the way from what prevention saw to what is mended.
//!
//! Owns one queue with its worker per volume: budgets, quiet times and windows differ, and a slow device holds up no other; and
//! when each of them rests.

use crate::books::{Books, lock};
use crate::config::{Moment, VolumeSettings};
use crate::governed::{Governed, Manner};
use crate::mending::{Candidate, MendEvent, MendSettings, MendSink, Mending};
use crate::model;
use longrun_layout::Bytes;
use longrun_ledger::Severity;
use longrun_prevention::{Happening, Sink, Watched};
use longrun_sys::DeviceNumber;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The menders of all volumes.
pub struct Menders {
    books: Arc<Books>,
    open: Mutex<BTreeMap<DeviceNumber, Mender>>,
}

/// What mends one volume.
#[derive(Clone)]
struct Mender {
    mending: Arc<Mending>,
    governed: Arc<Governed>,
}

/// Why a volume is not mended for the time being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The configuration says so of this time.
    Window,
    /// What may be written in a day has been written, if not by this service then by one before.
    Budget,
}

impl Rest {
    fn of(settings: &VolumeSettings, moved_today: Bytes, now: Moment) -> Option<Self> {
        let spent = settings.mending_budget.0 > 0 && moved_today >= settings.mending_budget;
        if settings.rests(now) { Some(Self::Window) } else { spent.then_some(Self::Budget) }
    }

    /// For programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Budget => "budget",
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "it rests at this time, as configured",
            Self::Budget => "what may be written today has been written",
        })
    }
}

/// What `settings` mean now.
fn mend_settings(settings: &VolumeSettings, worth: Bytes, rest: Option<Rest>) -> MendSettings {
    let daily_budget = if settings.mending_budget.0 == 0 { Bytes(u64::MAX) } else { settings.mending_budget };
    let resting = rest.is_some();
    MendSettings { quiet: settings.mending_quiet, daily_budget, worth, resting, ..MendSettings::default() }
}

impl Menders {
    /// None yet.
    pub fn new(books: Arc<Books>) -> Arc<Self> {
        Arc::new(Self { books, open: Mutex::default() })
    }

    /// The volume is mended by `settings` from now on; not at all, when these say so.
    pub fn set(&self, volume: &Watched, settings: &VolumeSettings) {
        if !settings.enabled || !settings.mending {
            return self.end(volume.device);
        }
        let (manner, rest) = (Manner::of(settings), self.rest(&volume.point, settings));
        let known = lock(&self.open).get(&volume.device).cloned();
        if let Some(Mender { mending, governed }) = known {
            governed.set(manner);
            return mending.reconfigure(mend_settings(settings, governed.worth(), rest));
        }
        let governed = Arc::new(Governed::new(volume.point.clone(), manner));
        let how = mend_settings(settings, governed.worth(), rest);
        match Mending::start(how, Arc::clone(&governed) as _, Arc::clone(&self.books) as Arc<dyn MendSink>) {
            Ok(mending) => {
                mending.watch(volume.clone());
                lock(&self.open).insert(volume.device, Mender { mending: Arc::new(mending), governed });
            }
            Err(error) => tracing::error!("{}: no thread for mending: {error}", volume.point.display()),
        }
    }

    /// The volume is mended no more; returns when no file of it is.
    pub fn end(&self, device: DeviceNumber) {
        let mending = lock(&self.open).remove(&device);
        if let Some(mender) = mending {
            mender.mending.unwatch(device);
        }
    }

    /// No volume is mended any more.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *lock(&self.open));
        for (device, mender) in all {
            mender.mending.unwatch(device);
        }
    }

    /// What they do.
    pub fn snapshot(&self) -> model::Mending {
        let open = lock(&self.open);
        open.values().map(|mender| mender.mending.snapshot()).fold(model::Mending::default(), |sum, one| {
            model::Mending {
                queued: sum.queued + one.queued,
                queued_excess: sum.queued_excess + one.queued_excess,
                at_work: sum.at_work || one.at_work,
                rests: false,
            }
        })
    }

    fn of(&self, device: DeviceNumber) -> Option<Arc<Mending>> {
        lock(&self.open).get(&device).map(|mender| Arc::clone(&mender.mending))
    }

    /// Why the volume at `point` is not mended now, if it would be otherwise.
    pub fn rest(&self, point: &Path, settings: &VolumeSettings) -> Option<Rest> {
        Rest::of(settings, self.books.moved_today(point), Moment::now())
    }

    /// By what work on a volume gives way to others: the governor of mending, so that there is one, or one of its own where
    /// nothing is mended.
    pub fn governed(&self, volume: &Watched, settings: &VolumeSettings) -> Arc<Governed> {
        let known = lock(&self.open).get(&volume.device).map(|mender| Arc::clone(&mender.governed));
        known.unwrap_or_else(|| Arc::new(Governed::new(volume.point.clone(), Manner::of(settings))))
    }

    /// How mending of a volume gives way to others.
    pub fn governor(&self, device: DeviceNumber, settings: &VolumeSettings) -> model::Governor {
        let governed = lock(&self.open).get(&device).map(|mender| Arc::clone(&mender.governed));
        let idle = || model::Governor { pace: settings.pace.to_string(), ..model::Governor::default() };
        governed.map_or_else(idle, |governed| governed.loads())
    }
}

impl Sink for Menders {
    fn happened(&self, point: &Path, happening: &Happening) {
        self.books.happened(point, happening);
        if let Some(candidate) = Candidate::of(happening) {
            if let Some(mending) = self.of(candidate.file.volume) {
                mending.offer(candidate);
            }
        } else if let Happening::Granted { file, .. } = happening
            && let Some(mending) = self.of(file.volume)
        {
            // It is growing: what waits to be mended waits anew.
            mending.touched(file);
        }
    }
}

impl MendSink for Books {
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
                let text = format!("a file with {excess} excess fragments is left as it is: {reason:?}");
                self.tell(&account, Severity::Info, "mending-left", text, path.as_deref());
            }
            MendEvent::Postponed { moved, .. } => self.moved(point, *moved),
            MendEvent::VolumeRefused { problem } => {
                let text = format!("{}: nothing is mended there: {problem}", point.display());
                self.tell(&account, Severity::Warning, "mending-refused", text, None);
            }
            MendEvent::Forgotten { files } => {
                let text = format!("{}: too many files wait to be mended; {files} were forgotten", point.display());
                self.tell(&account, Severity::Info, "mending-forgotten", text, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_ledger::VolumeIdentity;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn mending_rests_in_its_windows_and_a_budget_of_nothing_is_no_bound() {
        let rests = vec!["mon 08:00-18:00".parse().unwrap()];
        let settings = VolumeSettings { mending_rests: rests, mending_budget: Bytes(0), ..VolumeSettings::default() };
        let at = |hour: u16| Rest::of(&settings, Bytes(u64::MAX), Moment { day: 0, minute: hour * 60 });
        assert_eq!((at(9), at(19)), (Some(Rest::Window), None));
        let how = mend_settings(&settings, Bytes(1), at(9));
        assert!(how.resting && how.daily_budget == Bytes(u64::MAX));
        assert!(!mend_settings(&settings, Bytes(1), at(19)).resting);
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
            let books = Arc::new(Books::open(&path));
            books.saw(volume.clone());
            books.flush(PATIENCE);
            Menders::new(books)
        };
        let first = open();
        assert_eq!(first.rest(point, &settings), None);
        first.books.moved(point, Bytes(5 << 20));
        assert_eq!(first.rest(point, &settings), Some(Rest::Budget));
        first.books.flush(PATIENCE);
        drop(first);
        let second = open();
        assert_eq!(second.rest(point, &settings), Some(Rest::Budget));
        assert_eq!(second.rest(Path::new("/elsewhere"), &settings), None);
    }
}
