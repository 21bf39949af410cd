//! What the readings come to.

use super::{ColdRead, Lie};
use crate::Verdict;
use crate::device::per;
use crate::protocol::median;
use longrun_layout::Bytes;
use serde::Serialize;

/// One layout: medians of all its readings.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// How the file lies.
    pub lie: Lie,
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
    /// Every reading.
    pub reads: Vec<ColdRead>,
}

impl Line {
    pub(super) fn of(lie: Lie, fragments: u64, reads: Vec<ColdRead>) -> Self {
        let of = |value: fn(&ColdRead) -> f64| median(reads.iter().map(value).collect());
        Self {
            lie,
            fragments,
            seconds: of(|read| read.seconds),
            requests: of(|read| read.device.reads as f64),
            kib_per_request: of(|read| read.device.kib_per_transfer()),
            mb_per_second: of(|read| per(read.device.read_bytes.0 as f64 / 1e6, read.seconds)),
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
        let seconds =
            |wanted: &dyn Fn(Lie) -> bool| lines.iter().find(|line| wanted(line.lie)).map_or(0.0, |line| line.seconds);
        let after = seconds(&|lie| matches!(lie, Lie::Optimized(_)));
        let before = seconds(&|lie| matches!(lie, Lie::Shuffled(_)));
        let ratio = per(after, before);
        Self { bytes, iterations, lines, optimized_by_fragmented: ratio, verdict: Verdict::of_times(ratio) }
    }

    /// The names of the columns of [`Self::rows`].
    pub const COLUMNS: [&'static str; 7] =
        ["the file lies", "fragments", "seconds", "MB/s", "requests", "KiB/request", "time, whole = 1"];

    /// The table as text, a row for each layout.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 7]> {
        let whole = self.lines.first().map_or(0.0, |line| line.seconds);
        let row = |line: &Line| {
            [
                line.lie.to_string(),
                line.fragments.to_string(),
                format!("{:.3}", line.seconds),
                format!("{:.1}", line.mb_per_second),
                format!("{:.0}", line.requests),
                format!("{:.0}", line.kib_per_request),
                format!("{:.2}", per(line.seconds, whole)),
            ]
        };
        self.lines.iter().map(row).collect()
    }

    /// What it comes to, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let percent = 100.0 * (1.0 - self.optimized_by_fragmented);
        match self.verdict {
            Verdict::Benefit => format!("Optimizing takes {percent:.0} % off the time of a sequential cold read."),
            Verdict::NoBenefit => "No benefit: the optimized file is read as fast as the fragmented one.".to_owned(),
            Verdict::Harm => format!("Harm: the optimized file takes {:.0} % more time to read.", -percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(before: f64, after: f64) -> ReadsReport {
        let line = |lie, seconds| Line::of(lie, 1, vec![ColdRead { seconds, ..ColdRead::default() }; 3]);
        let piece = Bytes(16 << 10);
        let lines = vec![line(Lie::Whole, 1.0), line(Lie::Shuffled(piece), before), line(Lie::Optimized(piece), after)];
        ReadsReport::of(Bytes(1 << 20), 3, lines)
    }

    #[test]
    fn a_difference_is_called_what_it_is() {
        assert_eq!(report(4.0, 1.0).verdict, Verdict::Benefit);
        assert!(report(4.0, 1.0).sentence().contains("75 % off"), "{}", report(4.0, 1.0).sentence());
        assert_eq!(report(1.0, 0.99).verdict, Verdict::NoBenefit);
        assert!(report(1.0, 1.01).sentence().starts_with("No benefit"));
        assert!(report(1.0, 1.5).sentence().contains("50 % more"));
    }

    #[test]
    fn rows_have_what_the_columns_promise() {
        let rows = report(4.0, 2.0).rows();
        assert_eq!(rows.len(), 3);
        let shuffled = &rows[1];
        assert_eq!((shuffled[0].as_str(), shuffled[2].as_str()), ("16 KiB fragments, shuffled", "4.000"));
        assert_eq!(shuffled[6], "4.00");
    }
}
