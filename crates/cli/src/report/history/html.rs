//! The report as a page.

use super::text::sentence;
use super::{NO_HISTORY, lines, name_of, step_name, volume_name};
use crate::report::page::chart::{Columns, Line, columns, line};
use crate::report::page::scale::{Kind, minute};
use crate::report::page::{escape, figure, shell_with_foot};
use crate::text::{count, duration, printable, printable_path, size};
use jiff::Timestamp;
use longrun_layout::Bytes;
use longrun_ledger::{Counter, Gauge, Report, SeriesPoint, Step, VolumeReport};
use std::fmt::Write as _;
use std::time::Duration;

/// The most columns of a chart: many years by the month are some hundred.
const MOST_SLOTS: usize = 400;

/// One of the figures of a scan.
type Figure = fn(&Gauge) -> Option<u64>;

/// The whole page.
pub fn page(report: &Report) -> String {
    let period = format!("{} to {} UTC", minute(report.period.from), minute(report.period.to));
    let mut body = String::new();
    if report.has_history {
        tiles(&mut body, report);
        benefit(&mut body, &report.benefit.statements);
        activity(&mut body, report);
        report.volumes.iter().for_each(|volume| one_volume(&mut body, volume, report.volumes.len() > 1));
        events(&mut body, report);
        figures(&mut body, report);
    } else {
        _ = writeln!(body, "<section class=\"card\"><p class=\"none\">{NO_HISTORY}</p></section>");
    }
    let foot = " from the history of this machine. Time steps are shown whole; the history keeps hours for some weeks, then \
                days, then months";
    shell_with_foot("Longrun report", &period, &body, foot)
}

fn tiles(page: &mut String, report: &Report) {
    let get = |counter| report.totals.get(counter);
    let share = report.benefit.prevented_per_mille.map_or_else(
        || "no fragmentation occurred".to_owned(),
        |share| format!("{}.{} % of those that were expected", share / 10, share % 10),
    );
    let files = match get(Counter::FilesMended) {
        1 => "in 1 file".to_owned(),
        files => format!("in {} files", count(files)),
    };
    let cpu = match get(Counter::CpuMillis) {
        0 => "read and written by Longrun".to_owned(),
        milliseconds => format!("and {} of processor time", duration(Duration::from_millis(milliseconds))),
    };
    let alerts = get(Counter::SpaceAlerts);
    let tiles = [
        ("Excess fragments prevented", count(get(Counter::FragmentsPrevented)), share, "good"),
        ("Excess fragments mended", count(get(Counter::FragmentsMended)), files, "fine"),
        ("Own I/O", size(Bytes(get(Counter::OwnIoBytes))), cpu, ""),
        (
            "Space alerts",
            count(alerts),
            "free space too fragmented to use".to_owned(),
            if alerts > 0 { "bad" } else { "" },
        ),
    ];
    page.push_str("<section class=\"tiles\">\n");
    for (name, value, note, class) in tiles {
        _ = writeln!(
            page,
            "<div class=\"tile {class}\"><h2>{name}</h2><p class=\"value\">{}</p><p class=\"note\">{}</p></div>",
            escape(&value),
            escape(&note)
        );
    }
    page.push_str("</section>\n");
}

fn benefit(page: &mut String, statements: &[String]) {
    page.push_str("<section class=\"card\"><h2>Benefit</h2><ul class=\"benefit\">\n");
    for statement in statements {
        _ = writeln!(page, "<li>{}</li>", escape(&printable(statement)));
    }
    page.push_str("</ul></section>\n");
}

/// Every time step from the first to the last one with figures. Steps without figures are 0.
fn slots(series: &[SeriesPoint], step: Step, counters: &[Counter]) -> Vec<(Timestamp, Vec<u64>)> {
    let (Some(first), Some(last)) = (series.first(), series.last()) else { return Vec::new() };
    let parts = |at: Timestamp| {
        let point = series.iter().find(|point| point.at == at);
        counters.iter().map(|counter| point.map_or(0, |point| point.tallies.get(*counter))).collect()
    };
    let mut slots = Vec::new();
    let mut at = first.at;
    while at <= last.at && slots.len() < MOST_SLOTS {
        slots.push((at, parts(at)));
        let next = step.next(at);
        if next <= at {
            break;
        }
        at = next;
    }
    slots
}

fn activity(page: &mut String, report: &Report) {
    let step = step_name(report.step);
    let charts: [(String, Kind, &[Counter], &[&str]); 2] = [
        (
            format!("Excess fragments per {step}"),
            Kind::Count,
            &[Counter::FragmentsPrevented, Counter::FragmentsMended],
            &["prevented", "mended"],
        ),
        (format!("Own I/O per {step}"), Kind::Bytes, &[Counter::OwnIoBytes], &["read and written by Longrun"]),
    ];
    page.push_str("<section class=\"charts\">\n");
    for (title, kind, counters, parts) in charts {
        let slots = slots(&report.series, report.step, counters);
        let drawn = match slots.is_empty() {
            true => "<p class=\"none\">Nothing was counted in this period.</p>\n".to_owned(),
            false => columns(&Columns { title: &title, parts, kind, step: report.step, slots }),
        };
        figure(page, &title, &drawn, parts);
    }
    page.push_str("</section>\n");
}

fn one_volume(page: &mut String, volume: &VolumeReport, several: bool) {
    let identity = &volume.volume;
    let label =
        identity.label.as_ref().map_or_else(String::new, |label| format!("\u{201c}{}\u{201d}, ", printable(label)));
    let what = format!("{label}{} on {}", printable(&identity.filesystem), printable_path(&identity.device));
    _ = write!(
        page,
        "<section class=\"volume\">\n<h2>{} <small>{}</small></h2>\n",
        escape(&volume_name(volume)),
        escape(&what)
    );
    if several {
        benefit(page, &volume.benefit.statements);
    }
    let points = |figure: Figure| -> Vec<(Timestamp, u64)> {
        volume.scans.iter().filter_map(|scan| Some((scan.at, figure(&scan.gauge)?))).collect()
    };
    let charts: [(&str, Kind, Figure, usize); 3] = [
        ("Excess fragments", Kind::Count, |gauge| gauge.excess_fragments, 2),
        ("Free-space pieces", Kind::Count, |gauge| gauge.free_pieces, 1),
        ("Largest free piece", Kind::Bytes, |gauge| gauge.largest_free_bytes, 0),
    ];
    page.push_str("<div class=\"charts three\">\n");
    for (title, kind, read, class) in charts {
        let points = points(read);
        let drawn = match points.last() {
            None => "<p class=\"none\">No scan in this period.</p>\n".to_owned(),
            Some(_) => line(&Line { title, kind, class, points }),
        };
        figure(page, title, &drawn, &[]);
    }
    page.push_str("</div>\n");
    if several {
        details(page, "Figures of this volume", &lines(&volume.totals));
    }
    page.push_str("</section>\n");
}

fn details(page: &mut String, title: &str, lines: &[(&'static str, String)]) {
    _ = writeln!(page, "<section class=\"card\"><h2>{}</h2><table class=\"figures\">", escape(title));
    for (name, value) in lines {
        _ = writeln!(page, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    page.push_str("</table></section>\n");
}

fn figures(page: &mut String, report: &Report) {
    details(page, "All figures of the period", &lines(&report.totals));
}

fn events(page: &mut String, report: &Report) {
    if report.events.is_empty() {
        return;
    }
    page.push_str(
        "<section class=\"card\"><h2>Events</h2><div class=\"wide\"><table class=\"events\">\
         <thead><tr><th>Time (UTC)</th><th>Severity</th><th>Volume</th><th>What</th></tr></thead><tbody>\n",
    );
    for event in &report.events {
        let name = event.severity.name();
        _ = writeln!(
            page,
            "<tr><td class=\"time\">{}</td><td><span class=\"badge {name}\">{name}</span></td><td>{}</td><td>{}</td></tr>",
            minute(event.at),
            escape(&name_of(report, event.volume.as_deref())),
            escape(&sentence(event))
        );
    }
    page.push_str("</tbody></table></div>");
    if report.events_left_out > 0 {
        _ = write!(page, "<p class=\"note\">and {} more</p>", count(report.events_left_out));
    }
    page.push_str("</section>\n");
}
