//! The results of reading.

use crate::device::per;
use crate::layouts::{Arrangement, Pass, modelled_busy};
use crate::protocol::median;
use crate::{Chart, Findings, Table, Verdict};
use longrun_layout::Bytes;
use serde::Serialize;

/// One layout: medians of all its readings.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// How the file lies.
    #[serde(rename = "lie")]
    pub arrangement: Arrangement,
    /// How many fragments it is in.
    pub fragments: u64,
    /// How long reading it took.
    pub seconds: f64,
    /// Transfers of the device.
    pub requests: f64,
    /// KiB of the average transfer.
    pub kib_per_request: f64,
    /// MB (millions of bytes) a second.
    pub mb_per_second: f64,
    /// On a modelled disk, how many seconds that was busy by its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_busy_seconds: Option<f64>,
    /// Every reading.
    pub reads: Vec<Pass>,
}

impl Line {
    pub(super) fn of(arrangement: Arrangement, fragments: u64, reads: Vec<Pass>) -> Self {
        let of = |value: fn(&Pass) -> f64| median(reads.iter().map(value).collect());
        Self {
            arrangement,
            fragments,
            seconds: of(|read| read.seconds),
            requests: of(|read| read.device.reads as f64),
            kib_per_request: of(|read| read.device.kib_per_transfer()),
            mb_per_second: of(|read| per(read.device.read_bytes.0 as f64 / 1e6, read.seconds)),
            modelled_busy_seconds: modelled_busy(&reads),
            reads,
        }
    }
}

/// All layouts.
#[derive(Clone, Debug, Serialize)]
pub struct ReadsReport {
    /// How large each file is.
    pub bytes: Bytes,
    /// How often each was read.
    pub iterations: u32,
    /// Each layout.
    pub lines: Vec<Line>,
    /// The time of the optimized file by the time of the same fragments before.
    pub optimized_by_fragmented: f64,
    /// What that means: whether the optimized file is read faster.
    pub verdict: Verdict,
}

impl ReadsReport {
    pub(super) fn of(bytes: Bytes, iterations: u32, lines: Vec<Line>) -> Self {
        let of = |wanted: fn(Arrangement) -> bool| {
            let reads = lines.iter().filter(|line| wanted(line.arrangement)).flat_map(|line| &line.reads);
            reads.map(|read| read.seconds).collect::<Vec<f64>>()
        };
        let (before, after) = (
            of(|arrangement| matches!(arrangement, Arrangement::Shuffled(_))),
            of(|arrangement| matches!(arrangement, Arrangement::Optimized(_))),
        );
        let (optimized_by_fragmented, verdict) = Verdict::of_runs(&before, &after);
        Self { bytes, iterations, lines, optimized_by_fragmented, verdict }
    }
}

impl Findings for ReadsReport {
    fn title(&self) -> String {
        format!("Cold sequential reads of {} MiB each, {} times", self.bytes.0 >> 20, self.iterations)
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "layout of the file",
            "fragments",
            "seconds",
            "MB/s",
            "requests",
            "KiB/request",
            "time, contiguous = 1",
        ]);
        let whole = self.lines.first().map_or(0.0, |line| line.seconds);
        let modelled = self.lines.iter().any(|line| line.modelled_busy_seconds.is_some());
        if modelled {
            table.columns.push("disk busy, s".to_owned());
        }
        for line in &self.lines {
            let mut row = vec![
                line.arrangement.to_string(),
                line.fragments.to_string(),
                format!("{:.3}", line.seconds),
                format!("{:.1}", line.mb_per_second),
                format!("{:.0}", line.requests),
                format!("{:.0}", line.kib_per_request),
                format!("{:.2}", per(line.seconds, whole)),
            ];
            row.extend(line.modelled_busy_seconds.map(|busy| format!("{busy:.3}")));
            table.rows.push(row);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let percent = 100.0 * (1.0 - self.optimized_by_fragmented);
        vec![match self.verdict {
            Verdict::Benefit => format!("Optimizing reduces the time of a sequential cold read by {percent:.0} %."),
            Verdict::NoBenefit => {
                "No benefit: beyond the noise, the optimized file is read no faster than the fragmented one.".to_owned()
            }
            Verdict::Harm => format!("Harm: the optimized file takes {:.0} % more time to read.", -percent),
        }]
    }

    fn charts(&self) -> Vec<Chart> {
        let of = |value: fn(&Line) -> f64| {
            self.lines.iter().map(|line| (line.arrangement.to_string(), vec![value(line)])).collect()
        };
        vec![
            Chart::new("Time of a sequential cold read, s", &[], of(|line| line.seconds)),
            Chart::new("Requests of the device", &[], of(|line| line.requests)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(before: f64, after: f64) -> ReadsReport {
        let line = |arrangement, seconds| Line::of(arrangement, 1, vec![Pass { seconds, ..Pass::default() }; 3]);
        let piece = Bytes(16 << 10);
        let lines = vec![
            line(Arrangement::Whole, 1.0),
            line(Arrangement::Shuffled(piece), before),
            line(Arrangement::Optimized(piece), after),
        ];
        ReadsReport::of(Bytes(1 << 20), 3, lines)
    }

    #[test]
    fn a_difference_is_called_what_it_is() {
        assert_eq!(report(4.0, 1.0).verdict, Verdict::Benefit);
        assert!(report(4.0, 1.0).sentences()[0].contains("by 75 %"), "{}", report(4.0, 1.0).sentences()[0]);
        assert_eq!(report(1.0, 0.99).verdict, Verdict::NoBenefit);
        assert!(report(1.0, 1.01).sentences()[0].starts_with("No benefit"));
        assert!(report(1.0, 1.5).sentences()[0].contains("50 % more"));
    }

    #[test]
    fn rows_have_what_the_columns_promise() {
        let rows = report(4.0, 2.0).table().rows;
        assert_eq!(rows.len(), 3);
        let shuffled = &rows[1];
        assert_eq!((shuffled[0].as_str(), shuffled[2].as_str()), ("16 KiB fragments, shuffled", "4.000"));
        assert_eq!(shuffled[6], "4.00");
    }
}
