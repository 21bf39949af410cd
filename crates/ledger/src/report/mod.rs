//! The report on a period of the history.
//!
//! Owns the type of a report and reads it from the database. Never writes, and never claims a benefit that the figures do
//! not show.

mod benefit;
pub(crate) mod read;

use crate::{Counter, Gauge, Severity, Step, VolumeIdentity};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// A period of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Period {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, exclusive.
    pub to: Timestamp,
}

/// What a report is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The period.
    pub period: Period,
    /// Only this volume: a UUID, a label, a mount point or a device, as last seen. All volumes if `None`.
    pub volume: Option<String>,
    /// At most this many events, the most severe and then the latest first.
    pub events: usize,
}

/// Sums of counters. A counter without an entry is 0.
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
    /// The benefit.
    pub benefit: Benefit,
}

/// The benefit, as figures that can be checked. A figure that is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Benefit {
    /// Excess fragments that were prevented or mended.
    pub excess_avoided: u64,
    /// The share of the expected excess fragments that was prevented, per thousand.
    pub prevented_per_mille: Option<u64>,
    /// How many device requests are saved, at most, when all these files, and those that passes made whole, are read once from end to end.
    pub requests_saved_per_full_read: u64,
    /// The time that the devices need for so many requests, as far as their speed was known, in microseconds.
    pub microseconds_saved_per_full_read: u64,
    /// Sentences for people. If there is no benefit, one says "none".
    pub statements: Vec<String>,
}

/// The report on a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The period.
    pub period: Period,
    /// The length of the steps of all series.
    pub step: Step,
    /// Whether there is any history, of any time.
    pub has_history: bool,
    /// All volumes of the report together, and the service itself.
    pub totals: Tallies,
    /// The same in steps.
    pub series: Vec<SeriesPoint>,
    /// The benefit.
    pub benefit: Benefit,
    /// Each volume.
    pub volumes: Vec<VolumeReport>,
    /// The most severe and then the latest events.
    pub events: Vec<EventShown>,
    /// How many further events there were.
    pub events_left_out: u64,
}

impl Report {
    /// The report before there is any history.
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
