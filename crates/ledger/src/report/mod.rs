//! What the history tells about a period.
//!
//! Owns the form of a report and how it is read from the database. Never writes, and never claims a benefit that the
//! figures do not show.

mod benefit;
pub(crate) mod read;

use crate::{Counter, Gauge, Severity, Step, VolumeIdentity};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Period {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, which does not belong to it.
    pub to: Timestamp,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which time.
    pub period: Period,
    /// Only this volume: a UUID, a label, a mount point or a device, as last seen. All of them otherwise.
    pub volume: Option<String>,
    /// At most this many events, the most severe and then the latest first.
    pub events: usize,
}

/// Sums of counters; what is not there is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tallies(pub BTreeMap<Counter, u64>);

impl Tallies {
    /// The sum of one.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(&counter).copied().unwrap_or_default()
    }

    /// Adds to one.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        let sum = self.0.entry(counter).or_default();
        *sum = sum.saturating_add(amount);
    }
}

/// What was counted in one step of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeriesPoint {
    /// When the step begins.
    pub at: Timestamp,
    /// What was counted.
    pub tallies: Tallies,
}

/// The state of a volume at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GaugeShown {
    /// When.
    pub at: Timestamp,
    /// The state.
    #[serde(flatten)]
    pub gauge: Gauge,
}

/// An event, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventShown {
    /// When.
    pub at: Timestamp,
    /// UUID of the volume, if it was about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// How much it matters.
    pub severity: Severity,
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The file. What is not UTF-8 is shown as U+FFFD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The exact bytes of its name in hexadecimal, when that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
}

/// One volume in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeReport {
    /// The volume, as last seen.
    #[serde(flatten)]
    pub volume: VolumeIdentity,
    /// When it was first seen, if that is known.
    pub first_seen: Option<Timestamp>,
    /// When it was last seen.
    pub last_seen: Option<Timestamp>,
    /// What was counted in the period.
    pub totals: Tallies,
    /// The same in steps.
    pub series: Vec<SeriesPoint>,
    /// Scans within the period, oldest first.
    pub scans: Vec<GaugeShown>,
    /// What it was good for.
    pub benefit: Benefit,
}

/// What it was good for, by figures that can be checked. Each is absent where it cannot be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Benefit {
    /// Excess fragments that did not come to be or do not exist any more.
    pub excess_avoided: u64,
    /// Of the excess fragments that would have come to be, how many in a thousand did not.
    pub prevented_per_mille: Option<u64>,
    /// At most this many requests fewer go to the device whenever all these files are read once from end to end.
    pub requests_saved_per_full_read: u64,
    /// Sentences for people. One that says "none" when nothing shows.
    pub statements: Vec<String>,
}

/// What the history tells about a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Which time.
    pub period: Period,
    /// The length of the steps of all series.
    pub step: Step,
    /// Whether there is any history at all, of any time.
    pub has_history: bool,
    /// All volumes of the report together, and the service itself.
    pub totals: Tallies,
    /// The same in steps.
    pub series: Vec<SeriesPoint>,
    /// What it was good for.
    pub benefit: Benefit,
    /// Each volume.
    pub volumes: Vec<VolumeReport>,
    /// The most severe and then the latest events.
    pub events: Vec<EventShown>,
    /// How many further events there were.
    pub events_left_out: u64,
}

impl Report {
    /// What there is to tell before there is any history.
    #[must_use]
    pub fn empty(period: Period) -> Self {
        Self {
            period,
            step: Step::Hour,
            has_history: false,
            totals: Tallies::default(),
            series: Vec::new(),
            benefit: benefit::of(&Tallies::default(), std::iter::empty()),
            volumes: Vec::new(),
            events: Vec::new(),
            events_left_out: 0,
        }
    }
}
