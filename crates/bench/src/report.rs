//! The two columns of a comparison as rows of text: the same for terminals, web pages and documents.
//!
//! Owns the order, the names and the rounding. Never decides how a table is drawn.

use crate::Verdict;
use crate::device::per;
use crate::protocol::{Averages, Comparison};

/// A measure without the service and with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was measured, with its unit.
    pub name: &'static str,
    /// Without the service.
    pub off: String,
    /// With it.
    pub on: String,
    /// With it by without it; empty where that says nothing.
    pub ratio: String,
}

type Measure = (&'static str, fn(&Averages) -> f64);

/// What is shown whenever it was measured.
const MEASURES: [Measure; 10] = [
    ("excess fragments", |a| a.excess_fragments),
    ("fragments per file", |a| a.fragments_per_file),
    ("extents per file", |a| a.extents_per_file),
    ("split I/Os per second, writing", |a| a.split_writes_per_second),
    ("device transfers per second", |a| a.transfers_per_second),
    ("KB per transfer", |a| a.kib_per_transfer),
    ("MB per second", |a| a.mb_per_second),
    ("average queue length", |a| a.queue_length),
    ("percent idle", |a| a.idle_percent),
    ("seconds (median)", |a| a.seconds),
];

const READING: [Measure; 5] = [
    ("split I/Os, cold re-read", |a| a.split_reads),
    ("split I/Os per second, cold re-read", |a| a.split_reads_per_second),
    ("transfers beyond requests, cold re-read", |a| a.more_read_transfers),
    ("KB per transfer, cold re-read", |a| a.read_kib_per_transfer),
    ("MB per second, cold re-read", |a| a.read_mb_per_second),
];

/// The measures of a comparison.
#[must_use]
pub fn rows(comparison: &Comparison) -> Vec<Row> {
    let (off, on) = (&comparison.off, &comparison.on);
    let row = |&(name, value): &Measure| Row {
        name,
        off: number(value(off)),
        on: number(value(on)),
        ratio: ratio(value(off), value(on)),
    };
    let mut rows: Vec<Row> = MEASURES.iter().map(row).collect();
    if comparison.iterations.iter().any(|iteration| iteration.reread.is_some()) {
        rows.extend(READING.iter().map(row));
    }
    let service = |name, on: String| Row { name, off: String::new(), on, ratio: String::new() };
    rows.push(service("service: processor, % of one core", number(on.processor_percent)));
    if let Some(percent) = on.in_kernel_percent {
        rows.push(service("service: watching in the kernel, % of one core", number(percent)));
    }
    rows.push(service("service: memory at most, MiB", number(on.peak_memory.mebibytes())));
    let counts: [Measure; 3] = [
        ("bytes left beyond the ends of files", |a| a.bytes_behind_end),
        ("programs not executed (busy)", |a| a.failed_executions as f64),
        ("opens refused (EAGAIN)", |a| a.refused_opens as f64),
    ];
    // Nothing is what is expected of these.
    rows.extend(counts.iter().filter(|(_, value)| value(off) + value(on) > 0.0).map(row));
    rows
}

/// The result of the comparison, in one sentence.
#[must_use]
pub fn sentence(comparison: &Comparison) -> String {
    let (off, on) = (comparison.off.excess_fragments, comparison.on.excess_fragments);
    let excess = format!("{} excess fragments without, {} with", number(off), number(on));
    let time = format!("{:.3} of the time without", comparison.time_ratio);
    match (comparison.verdict, comparison.prevented_percent) {
        (Verdict::Benefit, Some(percent)) => {
            format!("{percent:.*} % prevented ({excess}), in {time}", if percent > 99.0 { 2 } else { 1 })
        }
        (Verdict::Harm, _) => format!("more than without: {excess}, in {time}"),
        _ if off < 0.5 && on < 0.5 => format!("no benefit: these files do not fragment, in {time}"),
        _ => format!("no benefit: {excess}, in {time}"),
    }
}

/// With about three digits.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn ratio(off: f64, on: f64) -> String {
    if off > 0.0 { number(per(on, off)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameters, Profile};

    fn comparison(off: f64, on: f64) -> Comparison {
        let mut comparison = Comparison::of(Profile::Direct, Parameters::default(), Vec::new());
        comparison.off = Averages { excess_fragments: off, files: 8.0, ..Averages::default() };
        comparison.on = Averages { excess_fragments: on, files: 8.0, ..Averages::default() };
        comparison.prevented_percent = (off > 0.0).then(|| 100.0 * (1.0 - on / off));
        comparison.verdict = if off > on { Verdict::Benefit } else { Verdict::NoBenefit };
        comparison.time_ratio = 0.987;
        comparison
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.00123, 0.5, 9.99, 12.34, 1234.5].map(number),
            ["0", "0.0012", "0.50", "9.99", "12.3", "1234"]
        );
    }

    #[test]
    fn what_stands_beside_each_other_has_its_ratio() {
        let rows = rows(&comparison(800.0, 4.0));
        let excess = rows.first().unwrap();
        assert_eq!((&*excess.off, &*excess.on, &*excess.ratio), ("800", "4.00", "0.0050"));
        let idle = rows.iter().find(|row| row.name == "percent idle").unwrap();
        assert_eq!(idle.ratio, "", "nothing to compare with");
    }

    #[test]
    fn no_benefit_is_called_so() {
        assert_eq!(
            sentence(&comparison(800.0, 4.0)),
            "99.50 % prevented (800 excess fragments without, 4.00 with), in 0.987 of the time without"
        );
        assert!(sentence(&comparison(0.0, 0.0)).starts_with("no benefit: these files do not fragment"));
    }
}
