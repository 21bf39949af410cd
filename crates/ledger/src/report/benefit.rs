//! The benefit: only what the counted figures show, and "none" if they show nothing.

use super::{Benefit, GaugeShown, Tallies};
use crate::Counter;
use longrun_layout::{grouped, shown_duration};
use std::time::Duration;

/// Microseconds from which time saved is told: what is shown begins at 0.01 s.
const WORTH_TELLING: u64 = 10_000;

/// The benefit, from the counters and from the scans of each volume.
pub fn of<'a>(totals: &Tallies, scans: impl Iterator<Item = &'a [GaugeShown]>) -> Benefit {
    let prevented = totals.get(Counter::FragmentsPrevented);
    let mended = totals.get(Counter::FragmentsMended);
    let avoided = prevented.saturating_add(mended);
    let would_have = prevented.saturating_add(totals.get(Counter::FragmentsSlipped));
    let share = (would_have > 0).then(|| per_mille(prevented, would_have));
    let mut statements = Vec::new();
    if prevented > 0 {
        let share = share.map_or_else(String::new, |share| format!(", {} of those that were expected", percent(share)));
        statements.push(format!("{} excess {} prevented{share}.", grouped(prevented), fragments(prevented)));
    }
    if mended > 0 {
        let files = totals.get(Counter::FilesMended);
        let noun = if files == 1 { "file" } else { "files" };
        statements.push(format!(
            "{} excess {} mended, in {} {noun}.",
            grouped(mended),
            fragments(mended),
            grouped(files)
        ));
    }
    let removed = totals.get(Counter::FragmentsByPasses);
    if removed > 0 {
        statements.push(format!("{} excess {} removed by passes.", grouped(removed), fragments(removed)));
    }
    let (saved, time) = (avoided.saturating_add(removed), totals.get(Counter::ReadTimeSaved));
    if saved > 0 {
        let noun = if saved == 1 { "request" } else { "requests" };
        let time = if time >= WORTH_TELLING {
            format!(", about {} of the time of the disks", shown_duration(Duration::from_micros(time)))
        } else {
            String::new()
        };
        statements.push(format!(
            "Reading all these files once from end to end takes up to {} fewer device {noun}{time}.",
            grouped(saved)
        ));
    }
    statements.extend(scanned(scans));
    if statements.is_empty() {
        statements.push("Benefit: none in the figures of this period.".to_owned());
    }
    Benefit {
        excess_avoided: avoided,
        prevented_per_mille: share,
        requests_saved_per_full_read: saved,
        microseconds_saved_per_full_read: time,
        statements,
    }
}

/// The excess fragments at the first and at the last scan, of the volumes that were scanned at least twice. `None` if they
/// have not fallen: this is not a benefit, and the report shows the figures anyway.
fn scanned<'a>(scans: impl Iterator<Item = &'a [GaugeShown]>) -> Option<String> {
    let (mut first, mut last) = (0u64, 0u64);
    for scans in scans {
        let mut known = scans.iter().filter_map(|scan| scan.gauge.excess_fragments);
        if let (Some(oldest), Some(latest)) = (known.next(), known.next_back()) {
            first = first.saturating_add(oldest);
            last = last.saturating_add(latest);
        }
    }
    let (from, to) = (grouped(first), grouped(last));
    (last < first).then(|| format!("Excess fragments of the scanned volumes fell from {from} to {to}."))
}

fn per_mille(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1000 / u128::from(whole).max(1)).unwrap_or_default()
}

/// Rounded down, so that only the whole is 100 %.
fn percent(per_mille: u64) -> String {
    match per_mille % 10 {
        0 => format!("{} %", per_mille / 10),
        tenth => format!("{}.{tenth} %", per_mille / 10),
    }
}

fn fragments(count: u64) -> &'static str {
    if count == 1 { "fragment" } else { "fragments" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gauge;
    use jiff::Timestamp;

    fn scan(excess: u64) -> GaugeShown {
        GaugeShown { at: Timestamp::UNIX_EPOCH, gauge: Gauge { excess_fragments: Some(excess), ..Gauge::default() } }
    }

    #[test]
    fn nothing_to_show_is_reported_as_none() {
        let benefit = of(&Tallies::default(), [[scan(5), scan(9)].as_slice()].into_iter());
        assert_eq!(benefit.statements, ["Benefit: none in the figures of this period."]);
        assert_eq!((benefit.excess_avoided, benefit.prevented_per_mille), (0, None));
    }

    #[test]
    fn what_was_saved_is_told_with_its_time_where_that_is_known() {
        let mut totals = Tallies::default();
        totals.add(Counter::FragmentsMended, 1);
        totals.add(Counter::FragmentsByPasses, 1999);
        let told = |totals: &Tallies| of(totals, std::iter::empty()).statements.pop().unwrap();
        assert_eq!(
            told(&totals),
            "Reading all these files once from end to end takes up to 2,000 fewer device requests."
        );
        totals.add(Counter::ReadTimeSaved, 16_000_000);
        assert!(told(&totals).ends_with("2,000 fewer device requests, about 16.0 s of the time of the disks."));
        assert_eq!(of(&totals, std::iter::empty()).requests_saved_per_full_read, 2000);
    }

    #[test]
    fn what_is_not_all_is_never_called_all() {
        let mut totals = Tallies::default();
        totals.add(Counter::FragmentsPrevented, 99_999);
        totals.add(Counter::FragmentsSlipped, 1);
        let benefit = of(&totals, std::iter::empty());
        assert_eq!(benefit.prevented_per_mille, Some(999));
        assert!(benefit.statements[0].contains("99.9 % of those"), "{:?}", benefit.statements);
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let mut totals = Tallies::default();
        for counter in Counter::ALL {
            totals.add(*counter, u64::MAX);
        }
        let benefit = of(&totals, [[scan(u64::MAX), scan(0)].as_slice(), &[scan(u64::MAX), scan(1)]].into_iter());
        assert_eq!(benefit.excess_avoided, u64::MAX);
    }
}
