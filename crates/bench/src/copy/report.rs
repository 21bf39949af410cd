//! The results of reading and copying.

use crate::device::per;
use crate::layouts::{Arrangement, LayoutSettings, Pass, modelled_busy};
use crate::{Chart, Findings, Table, Verdict, median};
use longrun_layout::Bytes;
use serde::Serialize;

/// One layout: medians of all its passes.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// How the files lie.
    #[serde(rename = "lie")]
    pub arrangement: Arrangement,
    /// How many fragments they are in, together.
    pub fragments: u64,
    /// How long reading them took.
    pub read_seconds: f64,
    /// How long copying them took, until the copy was durable.
    pub copy_seconds: f64,
    /// Transfers of the device for reading them.
    pub read_requests: f64,
    /// The same for copying, in both directions.
    pub copy_requests: f64,
    /// On a modelled disk, how many seconds that was busy by its model, reading and copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_busy_seconds: Option<(f64, f64)>,
    /// Every reading.
    pub reads: Vec<Pass>,
    /// Every copy.
    pub copies: Vec<Pass>,
}

impl Line {
    pub(super) fn of(arrangement: Arrangement, fragments: u64, reads: Vec<Pass>, copies: Vec<Pass>) -> Self {
        let of = |passes: &[Pass], value: fn(&Pass) -> f64| median(passes.iter().map(value).collect());
        let requests = |passes: &[Pass]| of(passes, |pass| pass.device.transfers() as f64);
        Self {
            arrangement,
            fragments,
            read_seconds: of(&reads, |pass| pass.seconds),
            copy_seconds: of(&copies, |pass| pass.seconds),
            read_requests: requests(&reads),
            copy_requests: requests(&copies),
            modelled_busy_seconds: modelled_busy(&reads).zip(modelled_busy(&copies)),
            reads,
            copies,
        }
    }
}

/// The effect of optimizing on one kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The time of the optimized files by the time of the same fragments before.
    pub optimized_by_fragmented: f64,
    /// What that means.
    pub verdict: Verdict,
}

impl Gain {
    fn of(lines: &[Line], passes: fn(&Line) -> &[Pass]) -> Self {
        let of = |wanted: fn(Arrangement) -> bool| {
            let passes = lines.iter().filter(|line| wanted(line.arrangement)).flat_map(passes);
            passes.map(|pass| pass.seconds).collect::<Vec<f64>>()
        };
        let (before, after) = (
            of(|arrangement| matches!(arrangement, Arrangement::Shuffled(_))),
            of(|arrangement| matches!(arrangement, Arrangement::Optimized(_))),
        );
        let (optimized_by_fragmented, verdict) = Verdict::of_runs(&before, &after);
        Self { optimized_by_fragmented, verdict }
    }

    fn sentence(self, what: &str) -> String {
        let percent = 100.0 * (1.0 - self.optimized_by_fragmented);
        match self.verdict {
            Verdict::Benefit => format!("Optimizing reduces the time of {what} by {percent:.0} %."),
            Verdict::NoBenefit => format!("No benefit for {what} beyond the noise (time reduced by {percent:+.1} %)."),
            Verdict::Harm => format!("Harm: {what} takes {:.0} % more time after optimizing.", -percent),
        }
    }
}

/// All layouts.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    /// How many files there are in each layout.
    pub files: u32,
    /// How large they are together.
    pub bytes: Bytes,
    /// How often each layout was read, and copied.
    pub iterations: u32,
    /// Each layout.
    pub lines: Vec<Line>,
    /// The effect of optimizing on reading.
    pub read: Gain,
    /// The effect of optimizing on copying.
    pub copy: Gain,
}

impl CopyReport {
    pub(super) fn of(settings: &LayoutSettings, lines: Vec<Line>) -> Self {
        let LayoutSettings { files, bytes, iterations, .. } = *settings;
        let read = Gain::of(&lines, |line| &line.reads);
        let copy = Gain::of(&lines, |line| &line.copies);
        Self { files, bytes, iterations, lines, read, copy }
    }
}

impl Findings for CopyReport {
    fn title(&self) -> String {
        let files = if self.files == 1 { "one file".to_owned() } else { format!("{} files", self.files) };
        format!("{files} of {} MiB together, read and copied cold, {} times", self.bytes.0 >> 20, self.iterations)
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "layout of the files",
            "fragments",
            "read, s",
            "contiguous = 1",
            "requests",
            "copy, s",
            "contiguous = 1",
            "requests",
        ]);
        let modelled = self.lines.iter().any(|line| line.modelled_busy_seconds.is_some());
        if modelled {
            table.columns.push("disk busy: read, copy, s".to_owned());
        }
        let whole = |seconds: fn(&Line) -> f64| self.lines.first().map_or(0.0, seconds);
        for line in &self.lines {
            let mut row = vec![
                line.arrangement.to_string(),
                line.fragments.to_string(),
                format!("{:.3}", line.read_seconds),
                format!("{:.2}", per(line.read_seconds, whole(|line| line.read_seconds))),
                format!("{:.0}", line.read_requests),
                format!("{:.3}", line.copy_seconds),
                format!("{:.2}", per(line.copy_seconds, whole(|line| line.copy_seconds))),
                format!("{:.0}", line.copy_requests),
            ];
            row.extend(line.modelled_busy_seconds.map(|(read, copy)| format!("{read:.3}, {copy:.3}")));
            table.rows.push(row);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        vec![self.read.sentence("reading"), self.copy.sentence("copying")]
    }

    fn charts(&self) -> Vec<Chart> {
        let of = |values: fn(&Line) -> [f64; 2]| {
            self.lines.iter().map(|line| (line.arrangement.to_string(), values(line).to_vec())).collect()
        };
        let parts = ["read", "copied"];
        vec![
            Chart::new("Time, s", &parts, of(|line| [line.read_seconds, line.copy_seconds])),
            Chart::new("Requests of the device", &parts, of(|line| [line.read_requests, line.copy_requests])),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn report(before: f64, after: f64) -> CopyReport {
        let pass = |seconds| vec![Pass { seconds, ..Pass::default() }; 3];
        // Writing takes 4 seconds whatever lies how.
        let line = |arrangement, seconds| Line::of(arrangement, 1, pass(seconds), pass(seconds + 4.0));
        let piece = Bytes(64 << 10);
        let lines = vec![
            line(Arrangement::Whole, 1.0),
            line(Arrangement::Shuffled(piece), before),
            line(Arrangement::Optimized(piece), after),
        ];
        let settings =
            LayoutSettings { program: PathBuf::new(), files: 1, bytes: Bytes(8 << 20), iterations: 3, seed: 1 };
        CopyReport::of(&settings, lines)
    }

    #[test]
    fn reading_and_copying_are_judged_apart() {
        let said = report(4.0, 1.0).sentences();
        assert_eq!(said[0], "Optimizing reduces the time of reading by 75 %.");
        assert_eq!(said[1], "Optimizing reduces the time of copying by 38 %.");
        let said = report(1.1, 1.0).sentences();
        assert!(
            said[0].starts_with("Optimizing reduces the time of reading by 9 %") && said[1].starts_with("No benefit"),
            "{said:?}"
        );
        let said = report(1.0, 2.0).sentences();
        assert!(said[0].starts_with("Harm: reading takes 100 % more"), "{said:?}");
    }

    #[test]
    fn rows_have_what_the_columns_promise() {
        let table = report(4.0, 2.0).table();
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let shuffled = &table.rows[1];
        assert_eq!((shuffled[0].as_str(), shuffled[3].as_str()), ("64 KiB fragments, shuffled", "4.00"));
        assert_eq!(shuffled[6], "1.60");
    }
}
