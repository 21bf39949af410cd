//! What is kept: volumes, counts by the hour, figures of scans, events, and what was spent. No I/O, no clock.

use crate::Counter;
use crate::time::{Day, Hour};
use jiff::Timestamp;
use longrun_layout::{Bytes, Fragmentation};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whose counts they are: a volume's, or the service's own. Cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Arc<str>);

impl Account {
    /// What belongs to no volume: processor time, for instance.
    #[must_use]
    pub fn service() -> Self {
        Self(Arc::from(""))
    }

    /// The volume with this UUID (or whatever else names it for good).
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

/// A volume, as it was last seen. It is recognised by its UUID, whatever it is called and wherever it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeIdentity {
    /// UUID of the file system, or whatever else names it for good.
    pub uuid: String,
    /// Its label, when it has one.
    pub label: Option<String>,
    /// Where it is mounted. What is not UTF-8 is serialised as U+FFFD.
    #[serde(serialize_with = "lossy")]
    pub point: PathBuf,
    /// The device that it lies on.
    #[serde(serialize_with = "lossy")]
    pub device: PathBuf,
    /// Type of the file system.
    pub filesystem: String,
}

/// A name in a report must not make all of the report fail.
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

/// The state of a volume at some time. What was not found out is `None`.
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
    /// The least number of pieces that the free space could be in.
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
    /// Good to know.
    Info,
    /// Something does not work as it should; the rest does.
    Warning,
    /// Somebody should do something.
    Alert,
}

impl Severity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Alert];

    /// Under this name it is kept and reported.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Alert => "alert",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// Something worth telling, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// Where.
    pub account: Account,
    /// How much it matters.
    pub severity: Severity,
    /// A word for programs, like "mended" or "space-alert".
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The file, when it is about one.
    pub path: Option<PathBuf>,
}

/// What is written in one transaction: all of it, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Volumes that were seen, and when last.
    pub seen: BTreeMap<Account, (VolumeIdentity, Timestamp)>,
    /// What was counted, by account and hour.
    pub tallies: BTreeMap<(Account, Hour, Counter), u64>,
    /// Results of scans.
    pub gauges: Vec<(Account, Timestamp, Gauge)>,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// What was written to volumes at our instance, by day.
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

    /// Takes over what an earlier batch holds that could not be written. What is in both is younger here.
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

    /// Notes that `bytes` were written to a volume at our instance.
    pub fn spend(&mut self, account: &Account, bytes: Bytes, at: Timestamp) {
        let spent = self.spent.entry((account.clone(), Day::of(at))).or_default();
        *spent = spent.saturating_add(bytes.0);
    }
}
