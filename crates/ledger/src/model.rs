//! The records of the history: volumes, hourly counts, figures of scans, events, and bytes spent. No I/O, no clock.

use crate::Counter;
use crate::time::{Day, Hour};
use jiff::Timestamp;
use longrun_layout::{Bytes, Fragmentation};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The owner of a count: a volume, or the service itself. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Arc<str>);

impl Account {
    /// The account of counts that belong to no volume, for example processor time.
    #[must_use]
    pub fn service() -> Self {
        Self(Arc::from(""))
    }

    /// The volume with this UUID (or another permanent identifier).
    #[must_use]
    pub fn volume(uuid: &str) -> Self {
        Self(Arc::from(uuid))
    }

    /// Whether it is the service's own.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.0.is_empty()
    }

    /// The UUID; empty for the service.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.0
    }
}

/// A volume, as it was last seen. Its UUID identifies it, independent of label and mount point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeIdentity {
    /// UUID of the file system, or another permanent identifier.
    pub uuid: String,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// The mount point. Invalid UTF-8 is serialised as U+FFFD.
    #[serde(serialize_with = "lossy")]
    pub point: PathBuf,
    /// The block device.
    #[serde(serialize_with = "lossy")]
    pub device: PathBuf,
    /// Type of the file system.
    pub filesystem: String,
}

/// A name that is not UTF-8 must not make the whole report fail.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl VolumeIdentity {
    /// Its account.
    #[must_use]
    pub fn account(&self) -> Account {
        Account::volume(&self.uuid)
    }
}

/// The state of a volume at some time. Figures that are not known are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Files.
    pub files: Option<u64>,
    /// Files with more than one fragment.
    pub fragmented_files: Option<u64>,
    /// Sum over files of (fragments - 1).
    pub excess_fragments: Option<u64>,
    /// Contiguous free ranges.
    pub free_pieces: Option<u64>,
    /// The longest of them.
    pub largest_free_bytes: Option<u64>,
    /// All free space.
    pub free_bytes: Option<u64>,
    /// Everything that is not free.
    pub used_bytes: Option<u64>,
    /// The smallest number of pieces that the immovable areas allow.
    pub floor_pieces: Option<u64>,
}

impl From<&Fragmentation> for Gauge {
    /// The result of a scan of the whole volume.
    fn from(figures: &Fragmentation) -> Self {
        let free = figures.free_space;
        Self {
            files: Some(figures.files),
            fragmented_files: Some(figures.fragmented_files),
            excess_fragments: Some(figures.excess_fragments),
            free_pieces: Some(free.pieces),
            largest_free_bytes: Some(free.largest_bytes.0),
            free_bytes: Some(free.bytes.0),
            used_bytes: Some(figures.used_bytes.0),
            floor_pieces: Some(free.floor_pieces),
        }
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For information.
    Info,
    /// A part of the service does not work.
    Warning,
    /// The administrator should act.
    Alert,
}

impl Severity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Alert];

    /// The name in the database and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Alert => "alert",
        }
    }

    /// The severity with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time.
    pub at: Timestamp,
    /// The volume, or the service.
    pub account: Account,
    /// The severity.
    pub severity: Severity,
    /// A word for programs, like "mended" or "space-alert".
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The file, if the event concerns one.
    pub path: Option<PathBuf>,
}

/// The records of one transaction. All of them are written, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The volumes that were seen, and when each was seen last.
    pub seen: BTreeMap<Account, (VolumeIdentity, Timestamp)>,
    /// Counts, by account and hour.
    pub tallies: BTreeMap<(Account, Hour, Counter), u64>,
    /// Results of scans.
    pub gauges: Vec<(Account, Timestamp, Gauge)>,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Bytes that Longrun wrote to volumes, by day.
    pub spent: BTreeMap<(Account, Day), u64>,
}

impl Batch {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many rows it will touch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len() + self.tallies.len() + self.gauges.len() + self.events.len() + self.spent.len()
    }

    /// Notes that a volume was seen.
    pub fn saw(&mut self, volume: VolumeIdentity, at: Timestamp) {
        self.seen.insert(volume.account(), (volume, at));
    }

    /// Counts.
    pub fn count(&mut self, account: &Account, counter: Counter, amount: u64, at: Timestamp) {
        let tally = self.tallies.entry((account.clone(), Hour::of(at), counter)).or_default();
        *tally = tally.saturating_add(amount);
    }

    /// Merges an earlier batch that could not be written. Where both have a record of the same volume, this one is newer.
    pub fn take_over(&mut self, mut earlier: Self) {
        for (account, seen) in earlier.seen {
            self.seen.entry(account).or_insert(seen);
        }
        for (key, amount) in earlier.tallies {
            let tally = self.tallies.entry(key).or_default();
            *tally = tally.saturating_add(amount);
        }
        earlier.gauges.append(&mut self.gauges);
        self.gauges = earlier.gauges;
        earlier.events.append(&mut self.events);
        self.events = earlier.events;
        for (key, bytes) in earlier.spent {
            let spent = self.spent.entry(key).or_default();
            *spent = spent.saturating_add(bytes);
        }
    }

    /// Notes that Longrun wrote `bytes` to a volume.
    pub fn spend(&mut self, account: &Account, bytes: Bytes, at: Timestamp) {
        let spent = self.spent.entry((account.clone(), Day::of(at))).or_default();
        *spent = spent.saturating_add(bytes.0);
    }
}
