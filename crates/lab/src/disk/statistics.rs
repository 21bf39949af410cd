//! The counters of a modelled disk.

use super::model::Access;
use serde::{Deserialize, Serialize};

/// Of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that came.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that the model has served.
    pub modelled: u64,
    /// What these took by the model, from coming to being complete, added up.
    pub modelled_nanos: u64,
    /// By how much their answers were late, added up: what this machine adds to the model.
    pub late_nanos: u64,
    /// The latest of them.
    pub latest_nanos: u64,
}

/// Of a disk, all its clients together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// From it.
    pub reads: Counts,
    /// To it.
    pub writes: Counts,
    /// Flushes; with no write cache there is nothing to do for them.
    pub flushes: u64,
    /// Discards, and ranges that were zeroed.
    pub discards: u64,
    /// The most reads that were under way at a time, of those that the model had.
    pub most_reads_at_once: u64,
    /// How long, by the model, at least one request was under way: what a load takes on a host that takes no time.
    pub busy_nanos: u64,
}

impl Counts {
    fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            modelled: self.modelled.saturating_sub(earlier.modelled),
            modelled_nanos: self.modelled_nanos.saturating_sub(earlier.modelled_nanos),
            late_nanos: self.late_nanos.saturating_sub(earlier.late_nanos),
            latest_nanos: self.latest_nanos,
        }
    }
}

impl Statistics {
    pub(super) fn of(&mut self, access: Access) -> &mut Counts {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }

    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.since(earlier.reads),
            writes: self.writes.since(earlier.writes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.saturating_sub(earlier.discards),
            most_reads_at_once: self.most_reads_at_once,
            busy_nanos: self.busy_nanos.saturating_sub(earlier.busy_nanos),
        }
    }

    /// By how much answers were late on average, in microseconds.
    #[must_use]
    pub fn late_micros(&self) -> f64 {
        let [requests, nanos] =
            [self.reads.modelled + self.writes.modelled, self.reads.late_nanos + self.writes.late_nanos];
        nanos as f64 / requests.max(1) as f64 / 1000.0
    }

    pub(super) fn to_json(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }
}
