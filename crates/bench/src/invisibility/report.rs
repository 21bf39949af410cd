//! What the turns come to.

use super::{InvisibilitySettings, Mode, Turn};
use crate::device::per;
use crate::protocol::median;
use longrun_layout::Bytes;
use serde::Serialize;

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
    /// What 95 of 100 of them took at most.
    pub read_p95: f64,
    /// MB a second that the optimizer wrote while nobody else wanted anything.
    pub alone: f64,
    /// Turns in which the optimizer came to its end too early: their figures flatter it.
    pub ran_dry: u32,
    /// Every turn.
    pub turns: Vec<Turn>,
}

impl Line {
    pub(super) fn of(mode: Mode, turns: Vec<Turn>) -> Self {
        let of = |value: fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        let reads: Vec<f64> = turns.iter().flat_map(|turn| turn.reads.iter().copied()).collect();
        Self {
            mode,
            copy_seconds: of(|turn| turn.copy_seconds),
            beside_copy: of(|turn| turn.beside_copy),
            read_p50: percentile(reads.clone(), 50),
            read_p95: percentile(reads, 95),
            alone: of(|turn| turn.alone),
            ran_dry: turns.iter().filter(|turn| !turn.busy).count() as u32,
            turns,
        }
    }
}

/// The value that so many of a hundred do not exceed; 0 of none.
fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(rank).copied().unwrap_or_default()
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
    /// Rounds.
    pub iterations: u32,
    /// Each mode.
    pub lines: Vec<Line>,
}

impl InvisibilityReport {
    pub(super) fn of(settings: &InvisibilitySettings, lines: Vec<Line>) -> Self {
        let &InvisibilitySettings { copy, reads, reads_per_second, iterations, .. } = settings;
        Self { copy, reads, reads_per_second, iterations, lines }
    }

    /// The names of the columns of [`Self::rows`].
    pub const COLUMNS: [&'static str; 8] = [
        "beside it",
        "copy, s",
        "slower",
        "reads p50, ms",
        "p95, ms",
        "p50, p95, alone = 1",
        "optimizer alone, MB/s",
        "beside the copy",
    ];

    /// The table as text, a row for each mode.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 8]> {
        let alone = self.lines.iter().find(|line| line.mode == Mode::Alone);
        let row = |line: &Line| {
            let than = |value: fn(&Line) -> f64| per(value(line), alone.map_or(0.0, value));
            let dry = if line.ran_dry > 0 { format!(" (ran dry {} times)", line.ran_dry) } else { String::new() };
            [
                format!("{}{dry}", line.mode),
                format!("{:.2}", line.copy_seconds),
                format!("{:+.1} %", 100.0 * (than(|l| l.copy_seconds) - 1.0)),
                format!("{:.2}", line.read_p50),
                format!("{:.2}", line.read_p95),
                format!("{:.2}, {:.2}", than(|l| l.read_p50), than(|l| l.read_p95)),
                format!("{:.1}", line.alone),
                format!("{:.1}", line.beside_copy),
            ]
        };
        self.lines.iter().map(row).collect()
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

    #[test]
    fn rows_are_told_against_being_alone() {
        let turn = |copy_seconds, read| Turn { copy_seconds, reads: vec![read; 10], busy: true, ..Turn::default() };
        let alone = Line::of(Mode::Alone, vec![turn(4.0, 6.0); 3]);
        let beside = Line::of(Mode::Unthrottled, vec![Turn { busy: false, ..turn(10.0, 12.0) }; 3]);
        let report = InvisibilityReport {
            copy: Bytes(1),
            reads: 10,
            reads_per_second: 1.0,
            iterations: 3,
            lines: vec![alone, beside],
        };
        let rows = report.rows();
        assert_eq!(rows[0][2], "+0.0 %");
        assert_eq!((rows[1][2].as_str(), rows[1][5].as_str()), ("+150.0 %", "2.00, 2.00"));
        assert_eq!(rows[1][0], "unthrottled (ran dry 3 times)");
    }
}
