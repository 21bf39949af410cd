//! The figures of a recording, and the comparison of two recordings. Pure.

use crate::histogram::Histogram;
use crate::recording::{AskedClass, Class, Recording};
use serde::Serialize;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count.
    Count,
    /// A rate per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Per cent.
    Percent,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The value; `None` if it is not known or not defined.
    pub value: Option<f64>,
}

/// A quotient; `None` if the divisor is 0.
fn per(amount: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| amount / of)
}

impl Class {
    /// Bytes of the average request.
    #[must_use]
    pub fn mean_bytes(&self) -> Option<f64> {
        per(self.bytes as f64, self.requests as f64)
    }

    /// The share of requests that began where the previous one of their class ended, in per cent. Only requests with a
    /// predecessor count.
    #[must_use]
    pub fn sequential_percent(&self) -> Option<f64> {
        per(self.sequential as f64 * 100.0, self.distances as f64)
    }

    /// The mean latency of the device, in microseconds.
    #[must_use]
    pub fn mean_latency(&self) -> Option<f64> {
        per(self.latency_seconds * 1e6, self.completed as f64)
    }

    /// The mean number of requests in flight at an issue. It is the mean of the bounds of the buckets, so an upper bound.
    #[must_use]
    pub fn mean_depth(&self) -> Option<f64> {
        let sum: f64 = self.depths.buckets().map(|(upto, count)| upto.unwrap_or(128) as f64 * count as f64).sum();
        per(sum, self.depths.total() as f64)
    }
}

impl AskedClass {
    /// Wasted seeks per hundred of the device's `requests` of this class; `None` if they are not known or there are none.
    #[must_use]
    pub fn wasted_percent(&self, requests: u64) -> Option<f64> {
        per(self.wasted_seeks? as f64 * 100.0, requests as f64)
    }

    /// The share of the traffic that the figures cover, in per cent of bytes.
    #[must_use]
    pub fn covered_percent(&self) -> Option<f64> {
        per(self.file_bytes as f64 * 100.0, (self.file_bytes + self.other_bytes) as f64)
    }
}

impl Recording {
    /// The figures, in the order in which they are shown.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        use Unit::{Bytes, Count, Microseconds, PerSecond, Percent, Seconds};
        let total = self.total();
        let both = total.transfers();
        let (reads, writes) = (&total.reads, &total.writes);
        let (asked_reads, asked_writes) = (&self.asked.reads, &self.asked.writes);
        let some = |number: u64| Some(number as f64);
        let quantile = |histogram: &Histogram, share| histogram.quantile(share).map(|bound| bound as f64);
        let bios = |read: fn(&crate::Bios) -> u64| {
            Some(self.devices.iter().map(|device| read(&device.bios)).sum::<u64>() as f64)
        };
        let wasted = asked_reads.wasted_seeks.zip(asked_writes.wasted_seeks).map(|(reads, writes)| reads + writes);
        let figure = |name, label, unit, value| Figure { name, label, unit, value };
        vec![
            figure("seconds", "traced", Seconds, Some(self.seconds)),
            figure("requests", "reads and writes", Count, some(both.requests)),
            figure("requests_per_second", "  per second", PerSecond, per(both.requests as f64, self.seconds)),
            figure("reads", "reads", Count, some(reads.requests)),
            figure("read_bytes", "  bytes", Bytes, some(reads.bytes)),
            figure("read_mean_bytes", "  mean size", Bytes, reads.mean_bytes()),
            figure("read_sequential", "  sequential", Percent, reads.sequential_percent()),
            figure("read_latency_mean", "  latency, mean", Microseconds, reads.mean_latency()),
            figure("read_latency_p50", "  latency, median", Microseconds, quantile(&reads.latency, 0.5)),
            figure("read_latency_p95", "  latency, 95 %", Microseconds, quantile(&reads.latency, 0.95)),
            figure("read_latency_p99", "  latency, 99 %", Microseconds, quantile(&reads.latency, 0.99)),
            figure("writes", "writes", Count, some(writes.requests)),
            figure("written_bytes", "  bytes", Bytes, some(writes.bytes)),
            figure("write_mean_bytes", "  mean size", Bytes, writes.mean_bytes()),
            figure("write_sequential", "  sequential", Percent, writes.sequential_percent()),
            figure("write_latency_mean", "  latency, mean", Microseconds, writes.mean_latency()),
            figure("write_latency_p50", "  latency, median", Microseconds, quantile(&writes.latency, 0.5)),
            figure("write_latency_p95", "  latency, 95 %", Microseconds, quantile(&writes.latency, 0.95)),
            figure("write_latency_p99", "  latency, 99 %", Microseconds, quantile(&writes.latency, 0.99)),
            figure("discards", "discards", Count, some(total.discards.requests)),
            figure("flushes", "flushes", Count, some(total.flushes.requests)),
            figure("bios", "bios queued", Count, bios(|bios| bios.queued)),
            figure(
                "merges",
                "  merged",
                Count,
                bios(|bios| bios.back_merges + bios.front_merges + bios.request_merges),
            ),
            figure("splits", "  split at the device's limit", Count, bios(|bios| bios.splits)),
            figure("asked_reads", "file-system reads", Count, asked_reads.requests.map(|number| number as f64)),
            figure("split_reads", "  split", Count, asked_reads.split.map(|number| number as f64)),
            figure("wasted_read_seeks", "  wasted seeks", Count, asked_reads.wasted_seeks.map(|number| number as f64)),
            figure("asked_writes", "file-system writes", Count, asked_writes.requests.map(|number| number as f64)),
            figure("split_writes", "  split", Count, asked_writes.split.map(|number| number as f64)),
            figure(
                "wasted_write_seeks",
                "  wasted seeks",
                Count,
                asked_writes.wasted_seeks.map(|number| number as f64),
            ),
            figure(
                "wasted_seeks_share",
                "wasted seeks of all requests",
                Percent,
                wasted.and_then(|wasted| per(wasted as f64 * 100.0, both.requests as f64)),
            ),
        ]
    }
}

/// The comparison of two recordings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The figures of both.
    pub figures: Vec<Change>,
    /// The histograms of both, those of reads before those of writes.
    pub histograms: Vec<Pair>,
}

/// A figure before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its name for people.
    #[serde(skip)]
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Before.
    pub before: Option<f64>,
    /// After.
    pub after: Option<f64>,
    /// The increase in per cent; `None` if the earlier value is 0 or not known.
    pub change_percent: Option<f64>,
}

/// A histogram before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its name for people.
    #[serde(skip)]
    pub label: &'static str,
    /// Before.
    pub before: Histogram,
    /// After.
    pub after: Histogram,
}

impl Comparison {
    /// Compares `after` with `before`.
    #[must_use]
    pub fn of(before: &Recording, after: &Recording) -> Self {
        let change = |(before, after): (Figure, Figure)| {
            let change_percent =
                before.value.zip(after.value).and_then(|(before, after)| per((after - before) * 100.0, before));
            let Figure { name, label, unit, value } = before;
            Change { name, label, unit, before: value, after: after.value, change_percent }
        };
        let (first, second) = (before.total(), after.total());
        let histograms = HISTOGRAMS.into_iter().flat_map(|(names, labels, take)| {
            [(names[0], labels[0], &first.reads, &second.reads), (names[1], labels[1], &first.writes, &second.writes)]
                .map(|(name, label, before, after)| Pair {
                    name,
                    label,
                    before: take(before).clone(),
                    after: take(after).clone(),
                })
        });
        Self {
            figures: before.figures().into_iter().zip(after.figures()).map(change).collect(),
            histograms: histograms.collect(),
        }
    }
}

/// One of the histograms of a class.
type Take = fn(&Class) -> &Histogram;

/// The histograms that are compared: names and labels for reads and writes.
const HISTOGRAMS: [([&str; 2], [&str; 2], Take); 4] = [
    (["read_sizes", "write_sizes"], ["Sizes of reads", "Sizes of writes"], |class| &class.sizes),
    (["read_latency", "write_latency"], ["Latency of reads", "Latency of writes"], |class| &class.latency),
    (["read_seeks", "write_seeks"], ["Seek distance of reads", "Seek distance of writes"], |class| &class.seeks),
    (["read_depths", "write_depths"], ["Queue depth at reads", "Queue depth at writes"], |class| &class.depths),
];
