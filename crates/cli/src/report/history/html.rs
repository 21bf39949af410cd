//! The report as one page that needs nothing else: no script, no picture, no font from elsewhere.
//!
//! Owns the escaping. Labels, paths and texts are chosen by others, and end up as text whatever they contain.

use super::chart::{Columns, Line, columns, line};
use super::scale::Kind;
use super::text::sentence;
use super::{NO_HISTORY, lines, minute, name_of, step_name, volume_name};
use crate::text::{count, duration, printable, printable_path, size};
use jiff::Timestamp;
use longrun_layout::Bytes;
use longrun_ledger::{Counter, Gauge, Report, SeriesPoint, Step, VolumeReport};
use std::fmt::Write as _;
use std::time::Duration;

const STYLE: &str = include_str!("style.css");
/// A period of many years by the month is some hundred columns; nothing sensible is more.
const MOST_SLOTS: usize = 400;

/// One of the figures of a scan.
type Figure = fn(&Gauge) -> Option<u64>;

/// As text of a page or within quotation marks.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The head of a page, up to where its content begins.
fn head(title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header>\n<h1>{title}</h1>\n<p class=\"period\">{subtitle}</p>\n</header>\n<main>\n"
    )
}

/// A whole page around `body`, which must be escaped already; title and subtitle need not be.
pub fn shell(title: &str, subtitle: &str, body: &str) -> String {
    let foot = format!("Made by longrun {}.", env!("CARGO_PKG_VERSION"));
    head(title, subtitle) + body + &format!("</main>\n<footer>{foot}</footer>\n</body>\n</html>\n")
}

/// The whole page.
pub fn page(report: &Report) -> String {
    let period = format!("{} to {} UTC", minute(report.period.from), minute(report.period.to));
    let mut page = head("Longrun report", &period);
    if report.has_history {
        tiles(&mut page, report);
        benefit(&mut page, &report.benefit.statements);
        activity(&mut page, report);
        report.volumes.iter().for_each(|volume| one_volume(&mut page, volume, report.volumes.len() > 1));
        events(&mut page, report);
        figures(&mut page, report);
    } else {
        _ = writeln!(page, "<section class=\"card\"><p class=\"none\">{NO_HISTORY}</p></section>");
    }
    _ = write!(
        page,
        "</main>\n<footer>Made by longrun {} from the history of this machine. A step of time is not cut: what is older \
         than some weeks is known by the day, later by the month.</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    page
}

fn tiles(page: &mut String, report: &Report) {
    let get = |counter| report.totals.get(counter);
    let share = report.benefit.prevented_per_mille.map_or_else(
        || "nothing was coming".to_owned(),
        |share| format!("{}.{} % of those that were coming", share / 10, share % 10),
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
            "free space in too many pieces".to_owned(),
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

/// Every step of time from the first to the last of which something is known, with nothing where nothing was counted.
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

/// A picture with its title, and with what its colours mean where there are several. What is drawn is escaped already.
pub fn figure(page: &mut String, title: &str, drawn: &str, parts: &[&str]) {
    _ = write!(page, "<figure class=\"card\"><figcaption>{}", escape(title));
    if parts.len() > 1 {
        page.push_str("<span class=\"legend\">");
        for (nth, part) in parts.iter().enumerate() {
            _ = write!(page, "<span><i class=\"key{nth}\"></i>{}</span>", escape(part));
        }
        page.push_str("</span>");
    }
    _ = write!(page, "</figcaption>\n{drawn}</figure>\n");
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
