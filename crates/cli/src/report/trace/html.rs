//! A recording, and the comparison of two, as self-contained pages.

use super::compare::change;
use super::{asked, missed, rows, show, stack};
use crate::report::page::chart::{Groups, groups};
use crate::report::page::{escape, figure, shell};
use crate::text::{count, printable, size};
use longrun_iotrace::{Comparison, Histogram, Recording, Unit};
use longrun_layout::Bytes;
use std::fmt::Write as _;

/// So many processes are shown.
const PROCESSES: usize = 50;

/// The page of one recording.
pub fn page(recording: &Recording) -> String {
    let total = recording.total();
    let both = total.transfers();
    let mut body = "<section class=\"tiles\">\n".to_owned();
    let rate = (recording.seconds > 0.0).then(|| both.requests as f64 / recording.seconds);
    let wasted = recording.asked.reads.wasted_seeks.zip(recording.asked.writes.wasted_seeks).map(|(r, w)| r + w);
    let tiles = [
        ("Requests", count(both.requests), format!("{} per second", show(rate, Unit::PerSecond))),
        ("Mean size", show(both.mean_bytes(), Unit::Bytes), format!("{} in all", size(Bytes(both.bytes)))),
        ("Mean latency", show(both.mean_latency(), Unit::Microseconds), "from issue to completion".to_owned()),
        (
            "Wasted seeks",
            wasted.map_or_else(|| super::NOT_KNOWN.to_owned(), count),
            "extra device ranges per file-system request, caused by fragmentation".to_owned(),
        ),
    ];
    for (name, value, note) in tiles {
        _ = writeln!(
            body,
            "<div class=\"tile\"><h2>{name}</h2><p class=\"value\">{}</p><p class=\"note\">{}</p></div>",
            escape(&value),
            escape(&note)
        );
    }
    body.push_str("</section>\n<section class=\"card\"><ul class=\"benefit\">\n");
    for sentence in asked(&recording.asked, &total).into_iter().chain(missed(recording)) {
        _ = writeln!(body, "<li>{}</li>", escape(&sentence));
    }
    body.push_str("</ul></section>\n<section class=\"charts\">\n");
    for (title, reads, writes) in [
        ("Size", &total.reads.sizes, &total.writes.sizes),
        ("Latency", &total.reads.latency, &total.writes.latency),
        ("Seek distance, sectors", &total.reads.seeks, &total.writes.seeks),
        ("Queue depth", &total.reads.depths, &total.writes.depths),
    ] {
        chart(&mut body, title, ["reads", "writes"], reads, writes);
    }
    body.push_str("</section>\n");
    figures(&mut body, recording);
    processes(&mut body, recording);
    let subtitle = format!(
        "{}: {}; {} UTC, {:.1} s",
        printable(&recording.target),
        stack(recording),
        recording.started.strftime("%Y-%m-%d %H:%M:%S"),
        recording.seconds
    );
    shell("Longrun I/O trace", &subtitle, &body)
}

/// The page of two recordings.
pub fn comparison_page(before: &Recording, after: &Recording, comparison: &Comparison) -> String {
    let mut body = "<section class=\"card\"><table class=\"figures\"><thead><tr><th></th><th>before</th><th>after</th>\
                    <th>change</th></tr></thead><tbody>\n"
        .to_owned();
    for figure in &comparison.figures {
        _ = writeln!(
            body,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(figure.label),
            escape(&show(figure.before, figure.unit)),
            escape(&show(figure.after, figure.unit)),
            escape(&change(figure))
        );
    }
    body.push_str("</tbody></table></section>\n<section class=\"charts\">\n");
    for pair in &comparison.histograms {
        chart(&mut body, pair.label, ["before", "after"], &pair.before, &pair.after);
    }
    body.push_str("</section>\n");
    let name = |recording: &Recording| {
        format!("{} ({} UTC)", printable(&recording.target), recording.started.strftime("%Y-%m-%d %H:%M"))
    };
    shell("Longrun I/O traces compared", &format!("before: {}; after: {}", name(before), name(after)), &body)
}

fn chart(body: &mut String, title: &str, parts: [&str; 2], first: &Histogram, second: &Histogram) {
    let rows = rows(first, second);
    if rows.is_empty() {
        return;
    }
    let groups = groups(&Groups {
        title,
        parts: &parts,
        groups: rows.into_iter().map(|(name, first, second)| (name, vec![first, second])).collect(),
    });
    figure(body, title, &groups, &parts);
}

fn figures(body: &mut String, recording: &Recording) {
    body.push_str("<section class=\"card\"><h2>All figures</h2><table class=\"figures\">\n");
    for figure in recording.figures() {
        _ = writeln!(
            body,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escape(figure.label),
            escape(&show(figure.value, figure.unit))
        );
    }
    body.push_str("</table></section>\n");
}

fn processes(body: &mut String, recording: &Recording) {
    if recording.processes.is_empty() {
        return;
    }
    body.push_str(
        "<section class=\"card\"><h2>Processes</h2><div class=\"wide\"><table><thead><tr><th>Process</th><th>Reads</th>\
         <th>Bytes</th><th>Writes</th><th>Bytes</th></tr></thead><tbody>\n",
    );
    for process in recording.processes.iter().take(PROCESSES) {
        _ = writeln!(
            body,
            "<tr><td>{} {}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&printable(&process.name)),
            process.id,
            if process.ours { " (ours)" } else { "" },
            count(process.reads),
            size(Bytes(process.read_bytes)),
            count(process.writes),
            size(Bytes(process.written_bytes))
        );
    }
    body.push_str("</tbody></table></div></section>\n");
}
