//! The results of unpacking.

use super::{Known, Software, Unpacking};
use crate::report::number;
use crate::{Chart, Findings, SpaceState, Table, Verdict, median};
use longrun_iotrace::Recording;
use longrun_layout::Bytes;
use serde::Serialize;

/// The I/O trace of one run: all reads and writes of the device, and the requests of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traced {
    /// Requests that were issued to the device.
    pub requests: u64,
    /// KiB of the average one.
    pub kib_per_request: Option<f64>,
    /// The percentage of requests that began where the previous one ended.
    pub sequential_percent: Option<f64>,
    /// Milliseconds that the device took on average.
    pub latency_mean: Option<f64>,
    /// What 95 of 100 of them took at most, in milliseconds; up to a quarter too high.
    pub latency_p95: Option<f64>,
    /// Requests of the file system for files.
    pub asked: Option<u64>,
    /// Of these, those that needed more than one piece of the device.
    pub split: Option<u64>,
    /// Pieces of the device beyond one for each request of the file system.
    pub wasted_seeks: Option<u64>,
}

impl Traced {
    pub(super) fn of(recording: &Recording) -> Self {
        let transfers = recording.total().transfers();
        let (reads, writes) = (&recording.asked.reads, &recording.asked.writes);
        let both = |reads: Option<u64>, writes: Option<u64>| reads.zip(writes).map(|(reads, writes)| reads + writes);
        Self {
            requests: transfers.requests,
            kib_per_request: transfers.mean_bytes().map(|bytes| bytes / 1024.0),
            sequential_percent: transfers.sequential_percent(),
            latency_mean: transfers.mean_latency().map(|micros| micros / 1000.0),
            latency_p95: transfers.latency.quantile(0.95).map(|micros| micros as f64 / 1000.0),
            asked: both(reads.requests, writes.requests),
            split: both(reads.split, writes.split),
            wasted_seeks: both(reads.wasted_seeks, writes.wasted_seeks),
        }
    }

    /// Wasted seeks in a hundred requests of the device.
    fn wasted_percent(&self) -> Option<f64> {
        let wasted = self.wasted_seeks?;
        (self.requests > 0).then(|| 100.0 * wasted as f64 / self.requests as f64)
    }
}

/// One of both volumes.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Its free space before anything was unpacked.
    pub space: SpaceState,
    /// How long unpacking took.
    pub seconds: f64,
    /// Transfers of the device.
    pub requests: f64,
    /// Every run; the figures above are medians of them.
    pub runs: Vec<Unpacking>,
}

impl Side {
    fn of(known: Known) -> Self {
        let Known { space, runs } = known;
        let mut side = Self { space, seconds: 0.0, requests: 0.0, runs };
        side.seconds = median(side.each(|run| run.seconds));
        side.requests = median(side.each(requests));
        side
    }

    fn each(&self, value: impl Fn(&Unpacking) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    /// A figure that is known of every run; otherwise `None`.
    fn known(&self, value: impl Fn(&Unpacking) -> Option<f64>) -> Option<Vec<f64>> {
        let known: Option<Vec<f64>> = self.runs.iter().map(value).collect();
        known.filter(|known| !known.is_empty())
    }

    /// The median of that.
    fn middle(&self, value: impl Fn(&Unpacking) -> Option<f64>) -> Option<f64> {
        self.known(value).map(median)
    }

    fn wasted_percent(&self) -> Option<f64> {
        self.middle(|run| run.traced?.wasted_percent())
    }
}

fn requests(run: &Unpacking) -> f64 {
    run.device.transfers() as f64
}

/// The effect of optimizing on one figure. Less is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// After by before.
    pub ratio: f64,
    /// What that means.
    pub verdict: Verdict,
}

impl Gain {
    fn of(aged: &[f64], optimized: &[f64]) -> Self {
        let (ratio, verdict) = Verdict::of_runs(aged, optimized);
        Self { ratio, verdict }
    }

    fn sentence(self, less: &str, what: &str) -> String {
        let percent = 100.0 * (self.ratio - 1.0);
        match self.verdict {
            Verdict::Benefit => format!("On the optimized volume it {less} ({percent:+.0} %)."),
            Verdict::NoBenefit => format!("No benefit in {what} beyond the noise ({percent:+.1} %)."),
            Verdict::Harm => format!("Harm: on the optimized volume there is more {what} ({percent:+.0} %)."),
        }
    }
}

/// Both volumes.
#[derive(Clone, Debug, Serialize)]
pub struct InstallReport {
    /// What was unpacked: files, directories and links.
    pub entries: u64,
    /// How large that is.
    pub bytes: Bytes,
    /// The volume as it was.
    pub aged: Side,
    /// The one that has been optimized.
    pub optimized: Side,
    /// The effect on the time.
    pub time: Gain,
    /// The effect on the transfers of the device.
    pub requests: Gain,
    /// On modelled disks, the effect on the busy time of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_busy: Option<Gain>,
}

impl InstallReport {
    pub(super) fn of(software: &Software, aged: Known, optimized: Known) -> Self {
        let (aged, optimized) = (Side::of(aged), Side::of(optimized));
        let of = |value: fn(&Unpacking) -> f64| Gain::of(&aged.each(value), &optimized.each(value));
        let (time, requests) = (of(|run| run.seconds), of(requests));
        let busy = |side: &Side| side.known(|run| run.modelled_busy_seconds);
        let modelled_busy = busy(&aged).zip(busy(&optimized)).map(|(aged, optimized)| Gain::of(&aged, &optimized));
        let (entries, bytes) = (software.entries(), software.bytes());
        Self { entries, bytes, aged, optimized, time, requests, modelled_busy }
    }

    /// The rows of the table: name, value before, value after. Rows without a value are left out.
    fn rows(&self) -> Vec<(&'static str, [Option<f64>; 2])> {
        let both = |value: &dyn Fn(&Side) -> Option<f64>| [value(&self.aged), value(&self.optimized)];
        let runs = |value: fn(&Unpacking) -> Option<f64>| both(&|side| side.middle(value));
        let rows = [
            ("pieces of free space", both(&|side| side.space.pieces.map(|pieces| pieces as f64))),
            ("largest free piece, MiB", both(&|side| side.space.largest.map(Bytes::mebibytes))),
            ("unpacking, s", runs(|run| Some(run.seconds))),
            ("disk busy, s", runs(|run| run.modelled_busy_seconds)),
            ("requests of the device", runs(|run| Some(requests(run)))),
            ("reads", runs(|run| Some(run.device.reads as f64))),
            ("writes", runs(|run| Some(run.device.writes as f64))),
            ("KiB/request", runs(|run| Some(run.device.kib_per_transfer()))),
            ("sequential, %", runs(|run| run.traced?.sequential_percent)),
            ("latency, mean, ms", runs(|run| run.traced?.latency_mean)),
            ("latency, 95 %, ms", runs(|run| run.traced?.latency_p95)),
            ("requests of the file system", runs(|run| Some(run.traced?.asked? as f64))),
            ("split", runs(|run| Some(run.traced?.split? as f64))),
            ("wasted seeks", runs(|run| Some(run.traced?.wasted_seeks? as f64))),
            ("wasted seeks of the requests, %", runs(|run| run.traced?.wasted_percent())),
            ("excess fragments of the unpacked files", runs(|run| Some(run.layout.excess_fragments as f64))),
        ];
        rows.into_iter().filter(|(_, values)| values.iter().any(Option::is_some)).collect()
    }
}

impl Findings for InstallReport {
    fn title(&self) -> String {
        let (mebibytes, times) = (self.bytes.0 >> 20, self.aged.runs.len());
        format!("{} files, directories and links of {mebibytes} MiB unpacked, {times} times on each", self.entries)
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&["medians", "aged", "optimized", "change"]);
        for (name, [aged, optimized]) in self.rows() {
            let shown = |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), number);
            let change = aged.zip(optimized).filter(|(aged, _)| *aged > 0.0);
            let change = change.map_or_else(String::new, |(a, o)| format!("{:+.0} %", 100.0 * (o / a - 1.0)));
            table.rows.push(vec![name.to_owned(), shown(aged), shown(optimized), change]);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let mut said = vec![
            self.time.sentence("takes less time", "time"),
            self.requests.sentence("takes fewer requests of the device", "requests of the device"),
        ];
        said.extend(
            self.modelled_busy.map(|busy| busy.sentence("keeps the disk busy for less time", "time of the disk")),
        );
        said.push(match (self.aged.wasted_percent(), self.optimized.wasted_percent()) {
            (Some(aged), Some(optimized)) => {
                format!(
                    "Wasted seeks are {aged:.1} % of the requests on the aged volume, {optimized:.1} % on the other."
                )
            }
            _ => "Wasted seeks are not known: this kernel does not support tracing them.".to_owned(),
        });
        said
    }

    fn charts(&self) -> Vec<Chart> {
        let of = |title: &str, value: &dyn Fn(&Side) -> Option<f64>| {
            let sides = [("aged", value(&self.aged)?), ("optimized", value(&self.optimized)?)];
            Some(Chart::new(title, &[], sides.map(|(name, value)| (name.to_owned(), vec![value])).into()))
        };
        [
            of("Unpacking, s", &|side| Some(side.seconds)),
            of("Requests of the device", &|side| Some(side.requests)),
            of("Sequential, % of requests", &|side| side.middle(|run| run.traced?.sequential_percent)),
            of("Wasted seeks, % of requests", &Side::wasted_percent),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Activity;
    use crate::install::Source;
    use std::sync::atomic::AtomicBool;

    fn run(seconds: f64, writes: u64, wasted: Option<u64>) -> Unpacking {
        let traced = wasted.map(|wasted| Traced { requests: writes, wasted_seeks: Some(wasted), ..Traced::default() });
        let device = Activity { writes, ..Activity::default() };
        Unpacking { seconds, device, modelled_busy_seconds: None, layout: crate::Layout::default(), traced }
    }

    fn report(aged: [Unpacking; 2], optimized: [Unpacking; 2]) -> InstallReport {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), [1; 5000]).unwrap();
        let source = Source::Tree { path: tree.path().to_owned(), most: Bytes(1 << 20) };
        let software = Software::prepare(&source, &AtomicBool::new(false)).unwrap();
        let known = |runs: [Unpacking; 2]| Known { space: SpaceState::default(), runs: runs.into() };
        InstallReport::of(&software, known(aged), known(optimized))
    }

    #[test]
    fn time_and_requests_are_judged_apart() {
        let (slow, fast) = (|| run(4.0, 1000, Some(71)), || run(3.9, 800, Some(13)));
        let said = report([slow(), slow()], [fast(), fast()]).sentences();
        assert_eq!(said[0], "No benefit in time beyond the noise (-2.5 %).");
        assert_eq!(said[1], "On the optimized volume it takes fewer requests of the device (-20 %).");
        assert_eq!(said[2], "Wasted seeks are 7.1 % of the requests on the aged volume, 1.6 % on the other.");
        let said = report([fast(), fast()], [slow(), slow()]).sentences();
        assert!(said[1].starts_with("Harm") && said[1].contains("+25 %"), "{said:?}");
        let said = report([fast(), slow()], [slow(), fast()]).sentences();
        assert!(said[0].starts_with("No benefit") && said[1].starts_with("No benefit"), "{said:?}");
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let report = report([run(1.0, 10, None), run(1.0, 10, None)], [run(1.0, 10, None), run(1.0, 10, Some(3))]);
        assert!(report.sentences()[2].contains("not known"));
        let table = report.table();
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert!(!names.contains(&"wasted seeks") && !names.contains(&"disk busy, s"), "{names:?}");
        assert!(names.contains(&"requests of the device"), "{names:?}");
    }
}
