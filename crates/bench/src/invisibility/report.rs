//! The results of the turns.

use super::{InvisibilitySettings, Mode, Turn};
use crate::device::per;
use crate::protocol::median;
use crate::{Beside, Chart, Findings, Notice, Table};
use longrun_layout::Bytes;
use serde::Serialize;

/// The ratios to the time alone that count as not noticed: for the copy, for the median small read, and for a slow one.
const PERMITTED: (f64, f64, f64) = (1.01, 1.1, 1.2);

/// One mode: copies are medians of the turns, reads are taken together.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Which.
    pub mode: Mode,
    /// How long the copy took.
    pub copy_seconds: f64,
    /// MB a second that the optimizer wrote beside the copy.
    pub beside_copy: f64,
    /// The median of the small reads, in milliseconds.
    pub read_p50: f64,
    /// What 95 and 99 of 100 of them took at most.
    pub read_p95: f64,
    /// As above.
    pub read_p99: f64,
    /// Their average, in milliseconds.
    pub read_mean: f64,
    /// The average of the small writes, and what 99 of 100 of them took at most; 0 without writes.
    pub write_mean: f64,
    /// As above.
    pub write_p99: f64,
    /// MB a second that the device wrote beside the small requests.
    pub beside_reads: f64,
    /// MB per second that the optimizer wrote without other I/O.
    pub alone: f64,
    /// Turns in which the optimizer finished too early, so that its figures look better than they are.
    pub ran_dry: u32,
    /// The comparison with the mode without an optimizer; `None` for that mode, and where it was not measured.
    pub beside: Option<Seen>,
    /// Every turn.
    pub turns: Vec<Turn>,
}

/// The effect of an optimizer on other programs. Reads are judged turn by turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seen {
    /// By the copy.
    pub copy: Beside,
    /// By small reads as they usually are (their median).
    pub read_p50: Beside,
    /// By slow ones (what 95 of 100 took at most).
    pub read_p95: Beside,
}

impl Seen {
    fn of(alone: &Line, line: &Line) -> Self {
        let (copy, usual, slow) = PERMITTED;
        let reads = |percent, permitted| Beside::of_runs(&alone.reads(percent), &line.reads(percent), permitted);
        Self {
            copy: Beside::of_runs(&alone.copies(), &line.copies(), copy),
            read_p50: reads(50, usual),
            read_p95: reads(95, slow),
        }
    }

    /// The overall notice: an effect on one figure is enough.
    #[must_use]
    pub fn notice(&self) -> Notice {
        self.copy.notice.max(self.read_p50.notice).max(self.read_p95.notice)
    }
}

impl Line {
    pub(super) fn of(mode: Mode, turns: Vec<Turn>) -> Self {
        let of = |value: fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        let reads: Vec<f64> = turns.iter().flat_map(|turn| turn.reads.iter().copied()).collect();
        let writes: Vec<f64> = turns.iter().flat_map(|turn| turn.writes.iter().copied()).collect();
        Self {
            mode,
            copy_seconds: of(|turn| turn.copy_seconds),
            beside_copy: of(|turn| turn.beside_copy),
            read_p50: percentile(reads.clone(), 50),
            read_p95: percentile(reads.clone(), 95),
            read_mean: mean(&reads),
            read_p99: percentile(reads, 99),
            write_mean: mean(&writes),
            write_p99: percentile(writes, 99),
            beside_reads: of(|turn| turn.beside_reads),
            alone: of(|turn| turn.alone),
            ran_dry: turns.iter().filter(|turn| !turn.busy).count() as u32,
            beside: None,
            turns,
        }
    }

    /// How long the copy took in each turn.
    fn copies(&self) -> Vec<f64> {
        self.turns.iter().map(|turn| turn.copy_seconds).collect()
    }

    /// A percentile of the times of the small reads in each turn.
    fn reads(&self, percent: usize) -> Vec<f64> {
        self.turns.iter().map(|turn| percentile(turn.reads.clone(), percent)).collect()
    }
}

/// A percentile of the values; 0 if there are none.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(rank).copied().unwrap_or_default()
}

fn mean(values: &[f64]) -> f64 {
    per(values.iter().sum(), values.len() as f64)
}

/// All modes.
#[derive(Clone, Debug, Serialize)]
pub struct InvisibilityReport {
    /// How large the copied file is.
    pub copy: Bytes,
    /// Small reads in a round.
    pub reads: u32,
    /// How many of them came in a second.
    pub reads_per_second: f64,
    /// Small durable writes in a second meanwhile.
    pub writes_per_second: f64,
    /// Rounds.
    pub iterations: u32,
    /// Each mode.
    pub lines: Vec<Line>,
}

impl InvisibilityReport {
    pub(super) fn of(settings: &InvisibilitySettings, mut lines: Vec<Line>) -> Self {
        let &InvisibilitySettings { copy, reads, reads_per_second, writes_per_second, iterations, .. } = settings;
        if let Some(alone) = lines.iter().find(|line| line.mode == Mode::Alone).cloned() {
            let others = lines.iter_mut().filter(|line| line.mode != Mode::Alone);
            others.for_each(|line| line.beside = Some(Seen::of(&alone, line)));
        }
        Self { copy, reads, reads_per_second, writes_per_second, iterations, lines }
    }

    fn of_mode(&self, mode: Mode) -> Option<&Line> {
        self.lines.iter().find(|line| line.mode == mode)
    }

    /// A figure of a line divided by that of the mode without an optimizer; `None` where it was not measured.
    fn by_alone(&self, line: &Line, value: fn(&Line) -> f64) -> Option<f64> {
        let alone = value(self.of_mode(Mode::Alone)?);
        (alone > 0.0).then(|| value(line) / alone)
    }
}

impl Findings for InvisibilityReport {
    fn title(&self) -> String {
        let Self { copy, reads, reads_per_second, writes_per_second, iterations, .. } = self;
        let writes = if *writes_per_second > 0.0 {
            format!(" with {writes_per_second} durable writes per second")
        } else {
            String::new()
        };
        format!(
            "A copy of {} MiB, and {reads} reads of 4 KiB at random times ({reads_per_second} per second){writes}, beside \
             an optimizer, {iterations} times",
            copy.0 >> 20
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "optimizer",
            "copy, s",
            "slower",
            "reads mean, p50, p95, p99, ms",
            "mean, p50, p95, p99, alone = 1",
            "optimizer alone, MB/s",
            "beside the copy",
            "beside the reads",
        ]);
        let writes = self.lines.iter().any(|line| line.write_mean > 0.0);
        if writes {
            table.columns.extend(["durable writes mean, p99, ms", "mean, p99, alone = 1"].map(str::to_owned));
        }
        let journal = self.of_mode(Mode::Alone).map_or(0.0, |alone| alone.beside_reads);
        for line in &self.lines {
            let than = |value| self.by_alone(line, value);
            let dry = if line.ran_dry > 0 { format!(" (ran dry {} times)", line.ran_dry) } else { String::new() };
            let slower = than(|line| line.copy_seconds).map(|ratio| format!("{:+.1} %", 100.0 * (ratio - 1.0)));
            let reads: [fn(&Line) -> f64; 4] =
                [|line| line.read_mean, |line| line.read_p50, |line| line.read_p95, |line| line.read_p99];
            let durable: [fn(&Line) -> f64; 2] = [|line| line.write_mean, |line| line.write_p99];
            let figures = |of: &[fn(&Line) -> f64]| {
                of.iter().map(|value| format!("{:.2}", value(line))).collect::<Vec<_>>().join(", ")
            };
            let ratios = |of: &[fn(&Line) -> f64]| {
                let ratio = |value: &fn(&Line) -> f64| than(*value).map(|ratio| format!("{ratio:.2}"));
                of.iter().map(ratio).collect::<Option<Vec<_>>>().unwrap_or_default().join(", ")
            };
            let mut row = vec![
                format!("{}{dry}", line.mode),
                format!("{:.2}", line.copy_seconds),
                slower.unwrap_or_default(),
                figures(&reads),
                ratios(&reads),
                format!("{:.1}", line.alone),
                format!("{:.1}", line.beside_copy),
                format!("{:.2}", (line.beside_reads - journal).max(0.0)),
            ];
            if writes {
                row.extend([figures(&durable), ratios(&durable)]);
            }
            table.rows.push(row);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let of = |line: &Line| {
            let seen = line.beside?;
            let what = match seen.notice() {
                Notice::Noticed => "is noticed",
                Notice::NotNoticed => "is not noticed",
                Notice::NothingShown => "was not shown to be noticed or unnoticed",
            };
            let (mode, Seen { copy, read_p50, read_p95 }) = (line.mode, seen);
            Some(format!(
                "The optimizer ({mode}) {what}: the copy takes {copy}, a median small read {read_p50}, and a slow one (95th \
                 percentile) {read_p95}."
            ))
        };
        let mut said: Vec<String> = self.lines.iter().filter_map(of).collect();
        if let (Some(free), Some(ours)) = (self.of_mode(Mode::Unthrottled), self.of_mode(Mode::Invisible)) {
            said.push(format!(
                "Without other I/O the invisible optimizer moves {:.1} MB/s, {:.0} % of the unthrottled one.",
                ours.alone,
                100.0 * per(ours.alone, free.alone)
            ));
        }
        if self.lines.iter().any(|line| line.ran_dry > 0) {
            said.push(
                "In turns in which it ran dry, the optimizer finished before the measurement did, so its figures look \
                 better than they are."
                    .to_owned(),
            );
        }
        said
    }

    fn charts(&self) -> Vec<Chart> {
        let of = |values: fn(&Line) -> Vec<f64>| {
            self.lines.iter().map(|line| (line.mode.to_string(), values(line))).collect()
        };
        vec![
            Chart::new("The copy, s", &[], of(|line| vec![line.copy_seconds])),
            Chart::new(
                "Small reads, ms",
                &["mean", "median", "95 of 100", "99 of 100"],
                of(|line| vec![line.read_mean, line.read_p50, line.read_p95, line.read_p99]),
            ),
            Chart::new(
                "What the optimizer writes, MB/s",
                &["alone", "beside the copy", "beside the reads"],
                of(|line| vec![line.alone, line.beside_copy, line.beside_reads]),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(values.clone(), 50), 50.0);
        assert_eq!(percentile(values, 95), 95.0);
        assert_eq!(percentile(vec![3.0], 95), 3.0);
        assert_eq!(percentile(Vec::new(), 50), 0.0);
    }

    fn turn(copy_seconds: f64, read: f64) -> Turn {
        Turn { copy_seconds, reads: vec![read; 10], busy: true, ..Turn::default() }
    }

    fn report(alone: Vec<Turn>, beside: Vec<Turn>) -> InvisibilityReport {
        let settings = InvisibilitySettings {
            program: "longrun".into(),
            modes: Mode::ALL.to_vec(),
            copy: Bytes(1),
            reads: 10,
            reads_per_second: 1.0,
            writes_per_second: 0.0,
            iterations: 3,
            seed: 1,
        };
        InvisibilityReport::of(&settings, vec![Line::of(Mode::Alone, alone), Line::of(Mode::Unthrottled, beside)])
    }

    #[test]
    fn what_is_noticed_what_is_not_and_what_nobody_knows_are_told_apart() {
        let alone = || vec![turn(4.0, 6.0), turn(4.1, 6.1), turn(4.7, 6.2)];
        let said = |beside| report(alone(), beside).sentences().remove(0);
        let unknown = said(vec![turn(4.2, 6.0), turn(4.67, 6.1), turn(5.0, 6.2)]);
        let figures = "1.14 times as long as without it (inconclusive; the runs without it differ by 17.1 %), a median small read 1.00 times";
        assert!(
            unknown.contains("was not shown to be noticed or unnoticed: the copy takes ") && unknown.contains(figures),
            "{unknown}"
        );
        let unnoticed = said(vec![turn(4.0, 6.5), turn(4.12, 6.6), turn(4.2, 6.7)]);
        assert!(unnoticed.contains("is not noticed: the copy takes 1.00 times"), "{unnoticed}");
        let slow_reads = said(vec![turn(4.0, 12.0), turn(4.1, 12.0), turn(4.2, 12.0)]);
        assert!(slow_reads.contains(") is noticed: the copy takes 1.00 times"), "{slow_reads}");
    }

    #[test]
    fn its_speed_when_nobody_else_is_there_is_told_against_the_unthrottled() {
        let of = |mode, alone| Line::of(mode, vec![Turn { alone, ..turn(4.0, 6.0) }; 3]);
        let mut report = report(vec![turn(4.0, 6.0); 3], vec![Turn { alone: 20.0, ..turn(9.0, 6.0) }; 3]);
        assert!(!report.sentences().iter().any(|said| said.contains("Without other I/O")), "it was not measured");
        report.lines.push(of(Mode::Invisible, 17.0));
        assert!(report.sentences().iter().any(|said| said.contains("moves 17.0 MB/s, 85 % of the unthrottled")));
    }

    #[test]
    fn rows_are_told_against_being_alone() {
        let report = report(vec![turn(4.0, 6.0); 3], vec![Turn { busy: false, ..turn(10.0, 12.0) }; 3]);
        let said = report.sentences();
        assert!(said[0].contains("(unthrottled) is noticed: the copy takes 2.50 times"), "{said:?}");
        assert!(said[1].contains("ran dry"), "{said:?}");
        let rows = report.table().rows;
        assert_eq!(rows[0][2], "+0.0 %");
        assert_eq!((rows[1][2].as_str(), rows[1][4].as_str()), ("+150.0 %", "2.00, 2.00, 2.00, 2.00"));
        assert_eq!(rows[1][0], "unthrottled (ran dry 3 times)");
    }
}
