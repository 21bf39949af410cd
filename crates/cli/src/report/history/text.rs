//! The report for a terminal.

use super::{NO_HISTORY, lines, name_of, step_name, volume_name};
use crate::report::page::scale::{minute, step_label};
use crate::text::{count, counted, printable, size};
use longrun_layout::Bytes;
use longrun_ledger::{Counter, EventShown, Gauge, Report, VolumeReport};
use std::fmt::Write as _;

/// The number of time steps listed: the latest ones.
const STEPS: usize = 31;
/// Columns of the longest bar.
const BAR: u64 = 24;

/// The whole report.
pub fn text(report: &Report) -> String {
    let period = report.period;
    let mut text = format!("History from {} to {} UTC\n", minute(period.from), minute(period.to));
    if !report.has_history {
        _ = writeln!(text, "\n{NO_HISTORY}");
        return text;
    }
    text.push('\n');
    for statement in &report.benefit.statements {
        _ = writeln!(text, "  {}", printable(statement));
    }
    text.push('\n');
    for (name, value) in lines(&report.totals) {
        _ = writeln!(text, "  {name:<18}{value}");
    }
    volumes(&mut text, &report.volumes);
    steps(&mut text, report);
    events(&mut text, report);
    text
}

fn volumes(text: &mut String, volumes: &[VolumeReport]) {
    if volumes.is_empty() {
        return;
    }
    let width = volumes.iter().map(|volume| volume_name(volume).chars().count()).max().unwrap_or(0).clamp(6, 40);
    _ = writeln!(
        text,
        "\n  {:<width$}  {:>10}  {:>8}  {:>19}  {:>19}  {:>23}",
        "volume", "prevented", "mended", "excess", "free pieces", "largest free piece"
    );
    for volume in volumes {
        let pair = |figure: fn(&Gauge) -> Option<u64>, show: fn(u64) -> String| {
            let mut known = volume.scans.iter().filter_map(|scan| figure(&scan.gauge));
            match (known.next(), known.next_back()) {
                (None, _) => "-".to_owned(),
                (Some(only), None) => show(only),
                (Some(first), Some(last)) => format!("{} → {}", show(first), show(last)),
            }
        };
        _ = writeln!(
            text,
            "  {:<width$}  {:>10}  {:>8}  {:>19}  {:>19}  {:>23}",
            volume_name(volume),
            count(volume.totals.get(Counter::FragmentsPrevented)),
            count(volume.totals.get(Counter::FragmentsMended)),
            pair(|gauge| gauge.excess_fragments, count),
            pair(|gauge| gauge.free_pieces, count),
            pair(|gauge| gauge.largest_free_bytes, |bytes| size(Bytes(bytes)))
        );
    }
}

fn steps(text: &mut String, report: &Report) {
    let left_out = report.series.len().saturating_sub(STEPS);
    let shown = report.series.get(left_out..).unwrap_or_default();
    if shown.is_empty() {
        return;
    }
    let name = step_name(report.step);
    let header = [name, "prevented", "mended", "moved", "own I/O"];
    let [step, prevented, mended, moved, own] = header;
    _ = writeln!(text, "\n  {step:<16}  {prevented:>10}  {mended:>8}  {moved:>10}  {own:>10}");
    let most = shown.iter().map(|point| point.tallies.get(Counter::FragmentsPrevented)).max().unwrap_or(0);
    for point in shown {
        let get = |counter| point.tallies.get(counter);
        let prevented = get(Counter::FragmentsPrevented);
        let bar = u128::from(prevented) * u128::from(BAR) / u128::from(most.max(1));
        let line = format!(
            "  {:<16}  {:>10}  {:>8}  {:>10}  {:>10}  {}",
            step_label(report.step, point.at),
            count(prevented),
            count(get(Counter::FragmentsMended)),
            size(Bytes(get(Counter::BytesMoved))),
            size(Bytes(get(Counter::OwnIoBytes))),
            "█".repeat(usize::try_from(bar).unwrap_or(0))
        );
        _ = writeln!(text, "{}", line.trim_end());
    }
    if left_out > 0 {
        _ = writeln!(text, "  and {} before that", counted(left_out as u64, name, &format!("{name}s")));
    }
}

fn events(text: &mut String, report: &Report) {
    if report.events.is_empty() {
        return;
    }
    _ = writeln!(text, "\nEvents");
    for event in &report.events {
        let where_ = name_of(report, event.volume.as_deref());
        _ = writeln!(text, "  {}  {:<7}  {where_}: {}", minute(event.at), event.severity.name(), sentence(event));
    }
    if report.events_left_out > 0 {
        _ = writeln!(text, "  and {} more", count(report.events_left_out));
    }
}

/// What happened, and to which file.
pub(super) fn sentence(event: &EventShown) -> String {
    let path = event.path.as_ref().map_or_else(String::new, |path| format!(" ({})", printable(path)));
    printable(&event.text) + &path
}
