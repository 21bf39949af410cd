//! What the service did and observed: recent events in memory, and counters and gauges for the history.
//!
//! Owns the recent events and the only access to the ledger. Never blocks its callers, and never fails: the service
//! works without a ledger.

use crate::threads::lock;
use jiff::Timestamp;
use longrun_api::model;
use longrun_layout::Bytes;
use longrun_ledger::{Account, Counter, Event, Gauge, Recorder, RecorderStatus, Severity, VolumeIdentity};
use longrun_prevention::{Happening, Sink};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How many events are kept in memory.
const EVENTS: usize = 1000;

/// The record of events, counters and gauges.
pub struct Activity {
    recorder: Result<Recorder, String>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    accounts: BTreeMap<PathBuf, Account>,
    mended: BTreeMap<PathBuf, model::Mended>,
    /// What fewer fragments save on each volume, by UUID.
    savings: BTreeMap<String, Savings>,
    events: VecDeque<model::Event>,
    last: u64,
}

/// What fewer fragments save on a volume.
#[derive(Default)]
struct Savings {
    /// The time of the device for one request, on average; zero where it is not known.
    per_request: Duration,
    saved: model::Saved,
}

impl Activity {
    /// Opens the ledger at `path` in the background.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let recorder = Recorder::start(path, longrun_ledger::Settings::default(), Timestamp::now);
        let recorder =
            recorder.map_err(|error| format!("{}: starting the history thread failed: {error}", path.display()));
        Self { recorder, open: Mutex::default() }
    }

    /// The volume at `point` is called so from now on.
    pub fn saw(&self, volume: VolumeIdentity) {
        lock(&self.open).accounts.insert(volume.point.clone(), volume.account());
        if let Ok(recorder) = &self.recorder {
            recorder.saw(volume);
        }
    }

    /// Nothing is watched at `point` any more.
    pub fn forget(&self, point: &Path) {
        let mut open = lock(&self.open);
        if let Some(account) = open.accounts.remove(point) {
            open.savings.remove(account.uuid());
        }
        open.mended.remove(point);
    }

    /// The account of the volume at `point`.
    #[must_use]
    pub fn account(&self, point: &Path) -> Account {
        lock(&self.open).accounts.get(point).cloned().unwrap_or_else(Account::service)
    }

    /// Counts for the volume at `point`.
    pub fn count(&self, point: &Path, counter: Counter, amount: u64) {
        self.count_for(&self.account(point), counter, amount);
    }

    /// The device of the volume needs so much time for a request, on average. It applies to the fragments that are counted from now on.
    pub fn request_takes(&self, account: &Account, time: Duration) {
        lock(&self.open).savings.entry(account.uuid().to_owned()).or_default().per_request = time;
    }

    /// Counts for `account`; for fragments that were saved the time, too.
    pub fn count_for(&self, account: &Account, counter: Counter, amount: u64) {
        if amount == 0 {
            return;
        }
        let count = |counter, amount| {
            if let Ok(recorder) = &self.recorder
                && amount > 0
            {
                recorder.count(account, counter, amount);
            }
        };
        count(counter, amount);
        if matches!(counter, Counter::FragmentsPrevented | Counter::FragmentsMended | Counter::FragmentsByPasses) {
            count(Counter::ReadTimeSaved, self.save(account, amount));
        }
    }

    /// Adds to what was saved. Returns the microseconds of the device, zero where its speed is not known.
    fn save(&self, account: &Account, fragments: u64) -> u64 {
        let mut open = lock(&self.open);
        let Savings { per_request, saved } = open.savings.entry(account.uuid().to_owned()).or_default();
        let microseconds = u128::from(fragments).saturating_mul(per_request.as_nanos()) / 1000;
        saved.requests = saved.requests.saturating_add(fragments);
        saved.seconds += microseconds as f64 / 1e6;
        u64::try_from(microseconds).unwrap_or(u64::MAX)
    }

    /// What was saved on a volume since the service started.
    #[must_use]
    pub fn saved(&self, account: &Account) -> model::Saved {
        lock(&self.open).savings.get(account.uuid()).map(|savings| savings.saved).unwrap_or_default()
    }

    /// Keeps the figures of a scan.
    pub fn scanned(&self, account: &Account, gauge: Gauge) {
        if let Ok(recorder) = &self.recorder {
            recorder.scanned(account, gauge);
        }
    }

    /// Keeps an event, and logs it.
    pub fn tell(&self, account: &Account, severity: Severity, kind: &str, text: String, path: Option<&Path>) {
        match severity {
            Severity::Info => tracing::debug!(kind, volume = account.uuid(), "{text}"),
            Severity::Warning => tracing::warn!(kind, volume = account.uuid(), "{text}"),
            Severity::Alert => tracing::error!(kind, volume = account.uuid(), "{text}"),
        }
        let at = Timestamp::now();
        {
            let mut open = lock(&self.open);
            open.last += 1;
            let event = model::Event {
                number: open.last,
                at: at.to_string(),
                volume: account.uuid().to_owned(),
                severity: severity.name().to_owned(),
                kind: kind.to_owned(),
                text: text.clone(),
                path: path.map(|path| path.to_string_lossy().into_owned()),
            };
            open.events.push_back(event);
            if open.events.len() > EVENTS {
                open.events.pop_front();
            }
        }
        if let Ok(recorder) = &self.recorder {
            let path = path.map(Path::to_owned);
            recorder.event(Event { at, account: account.clone(), severity, kind: kind.to_owned(), text, path });
        }
    }

    /// The events after number `since`, at most `limit`, the oldest first.
    #[must_use]
    pub fn events(&self, since: u64, limit: usize) -> model::Events {
        let open = lock(&self.open);
        let events: Vec<_> = open.events.iter().filter(|event| event.number > since).take(limit).cloned().collect();
        let last = events.last().map_or(open.last, |event| event.number);
        model::Events { events, last }
    }

    /// A file on the volume at `point` was mended.
    pub fn mended(&self, point: &Path, fragments: u64, moved: Bytes) {
        let account = self.account(point);
        {
            let mut open = lock(&self.open);
            let mended = open.mended.entry(point.to_owned()).or_default();
            mended.files += 1;
            mended.fragments += fragments;
            mended.moved_bytes += moved.0;
        }
        self.count_for(&account, Counter::FilesMended, 1);
        self.count_for(&account, Counter::FragmentsMended, fragments);
    }

    /// `moved` bytes were written to the volume at `point` for mending, whatever came of it.
    pub fn moved(&self, point: &Path, moved: Bytes) {
        let account = self.account(point);
        self.count_for(&account, Counter::BytesMoved, moved.0);
        if let Ok(recorder) = &self.recorder {
            recorder.spend(&account, moved);
        }
    }

    /// Mending a file of the volume at `point` failed.
    pub fn failed(&self, point: &Path) {
        lock(&self.open).mended.entry(point.to_owned()).or_default().failed += 1;
    }

    /// How much was written for mending the volume at `point` today (UTC), also by services before this one.
    #[must_use]
    pub fn moved_today(&self, point: &Path) -> Bytes {
        let account = self.account(point);
        self.recorder.as_ref().map_or(Bytes(0), |recorder| recorder.spent_today(&account))
    }

    /// What mending did on the volume at `point`.
    #[must_use]
    pub fn mending_of(&self, point: &Path) -> model::Mended {
        lock(&self.open).mended.get(point).cloned().unwrap_or_default()
    }

    /// How the ledger stands.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        match &self.recorder {
            Ok(recorder) => recorder.status(),
            Err(error) => RecorderStatus { note: Some(error.clone()), ..RecorderStatus::default() },
        }
    }

    /// Writes what is pending, for at most `patience`.
    pub fn flush(&self, patience: Duration) {
        if let Ok(recorder) = &self.recorder
            && !recorder.flush(patience)
        {
            tracing::warn!("the last entries of the history could not be written");
        }
    }
}

/// The word for a reason, as the API and the ledger have it.
#[must_use]
pub fn reason_word(reason: impl Serialize) -> String {
    match serde_json::to_value(reason) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "other".to_owned(),
    }
}

impl Sink for Activity {
    fn happened(&self, point: &Path, happening: &Happening) {
        match happening {
            Happening::Granted { range, .. } => {
                self.count(point, Counter::RunwaysGranted, 1);
                self.count(point, Counter::RunwayBytesGranted, range.length.0);
            }
            Happening::Left { reason, .. } => self.count(point, Counter::left(&reason_word(*reason)), 1),
            Happening::Settled { given_back, prevented, excess, .. } => {
                self.count(point, Counter::RunwaysGivenBack, 1);
                self.count(point, Counter::RunwayBytesGivenBack, given_back.0);
                self.count(point, Counter::FragmentsPrevented, *prevented);
                self.count(point, Counter::FragmentsSlipped, *excess);
            }
            Happening::Fragmented { excess, .. } => {
                self.count(point, Counter::FilesFragmenting, 1);
                self.count(point, Counter::FragmentsSlipped, *excess);
            }
            Happening::Yielded { given_back } => {
                self.count(point, Counter::RunwayBytesYielded, given_back.0);
                let text =
                    format!("{} bytes of runways were given back early, because the space was needed", given_back.0);
                self.tell(&self.account(point), Severity::Info, "yielded", text, None);
            }
            Happening::Hinted { directory, hint } => {
                let text =
                    format!("new files in {} inherit an extent-size hint of {} bytes", directory.display(), hint.0);
                self.tell(&self.account(point), Severity::Info, "hinted", text, None);
            }
            Happening::Lost { signals } => {
                self.count(point, Counter::SignalsLost, *signals);
                let text =
                    format!("{signals} sensor events were lost; some files may have fragmented without being noticed");
                self.tell(&self.account(point), Severity::Warning, "signals-lost", text, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_prevention::NoRunway;

    #[test]
    fn events_are_numbered_bounded_and_asked_for_by_number() {
        let directory = tempfile::tempdir().unwrap();
        let activity = Activity::open(&directory.path().join("ledger.db"));
        for number in 1..=EVENTS + 5 {
            activity.tell(&Account::service(), Severity::Info, "test", format!("event {number}"), None);
        }
        let first = activity.events(0, 2);
        assert_eq!(first.events.iter().map(|event| event.number).collect::<Vec<_>>(), [6, 7]);
        assert_eq!(first.last, 7);
        let last = EVENTS as u64 + 5;
        assert_eq!(activity.events(last - 1, 100).events.len(), 1);
        assert_eq!(activity.events(last, 100), model::Events { events: Vec::new(), last });
    }

    #[test]
    fn fragments_less_are_counted_as_time_where_the_device_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let activity = Activity::open(&directory.path().join("ledger.db"));
        let account = Account::volume("a");
        activity.count_for(&account, Counter::FragmentsMended, 3);
        assert_eq!(activity.saved(&account), model::Saved { requests: 3, seconds: 0.0 });
        activity.request_takes(&account, Duration::from_micros(8000));
        activity.count_for(&account, Counter::FragmentsPrevented, 2);
        activity.count_for(&account, Counter::FragmentsByPasses, 1000);
        activity.count_for(&account, Counter::FragmentsSlipped, 7);
        assert_eq!(activity.saved(&account), model::Saved { requests: 1005, seconds: 8.016 });
    }

    #[test]
    fn a_reason_has_the_same_word_in_events_and_in_the_ledger() {
        assert_eq!(reason_word(NoRunway::LowSpace), "low-space");
        assert_eq!(Counter::left(&reason_word(NoRunway::KeptWhole)), Counter::LeftKeptWhole);
    }
}
