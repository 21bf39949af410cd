//! A trace for people: text, the live view, pages with charts, and the comparison of two recordings.
//!
//! Owns the names of buckets and figures. Never counts: the kernel has done that.

mod compare;
mod html;
mod live;
mod text;

pub use compare::comparison_text;
pub use html::{comparison_page, page};
pub use live::Live;
pub use text::text;

use crate::text::{count, printable, size};
use longrun_iotrace::{Asked, AskedClass, Histogram, Recording, Requests, Scale, Unit};
use longrun_layout::Bytes;

/// Stands for a figure that the kernel does not provide.
const NOT_KNOWN: &str = "not known";

/// A time in microseconds with about two digits.
fn time(us: f64) -> String {
    match us {
        us if us < 9.95 => format!("{us:.1} µs"),
        us if us < 999.5 => format!("{us:.0} µs"),
        us if us < 9950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// A figure with its unit. A figure that is not known is a dash.
fn show(value: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match unit {
        Unit::Count => count(value as u64),
        Unit::PerSecond if value < 99.95 => format!("{value:.1}"),
        Unit::PerSecond => count(value.round() as u64),
        Unit::Bytes => size(Bytes(value as u64)),
        Unit::Percent => format!("{value:.1} %"),
        Unit::Microseconds => time(value),
        Unit::Seconds => format!("{value:.1} s"),
    }
}

/// The name of a bucket. `before` is the bound of the bucket before it.
fn bucket(scale: Scale, before: Option<i64>, upto: Option<i64>) -> String {
    let name = |bound: i64| match scale {
        // vscsiStats has buckets of one length, and between them those for all that is shorter than it.
        Scale::Bytes if bound % 512 == 0 => length(bound),
        Scale::Bytes => format!("< {}", length(bound + 1)),
        Scale::Microseconds => format!("< {}", time(bound as f64 + 1.0)),
        Scale::Sectors | Scale::Requests if bound < 0 => format!("-{}", count(bound.unsigned_abs())),
        Scale::Sectors | Scale::Requests => count(bound.unsigned_abs()),
    };
    match (scale, before, upto) {
        (Scale::Bytes, _, Some(bound)) if matches!(bound, 4096 | 8192 | 16384 | 65536) => format!("= {}", name(bound)),
        (Scale::Bytes, _, Some(bound)) if bound % 512 == 0 => format!("≤ {}", name(bound)),
        (Scale::Sectors | Scale::Requests, _, Some(bound)) => format!("≤ {}", name(bound)),
        (_, _, Some(bound)) => name(bound),
        (Scale::Microseconds, Some(before), None) => format!("≥ {}", time(before as f64 + 1.0)),
        (_, Some(before), None) => format!("> {}", name(before)),
        (_, None, None) => "all".to_owned(),
    }
}

/// A length in whole units: `48 KiB`.
fn length(bytes: i64) -> String {
    match bytes {
        bytes if bytes % 1024 == 0 => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    }
}

/// The rows of one or two histograms of one scale, from the first bucket with something in it to the last.
fn rows(first: &Histogram, second: &Histogram) -> Vec<(String, u64, u64)> {
    let (one, other) = (first.shown(), second.shown());
    let all: Vec<(Option<i64>, u64, u64)> =
        one.into_iter().zip(other).map(|((upto, one), (_, other))| (upto, one, other)).collect();
    let filled = |(_, one, other): &(Option<i64>, u64, u64)| one + other > 0;
    let (Some(from), Some(to)) = (all.iter().position(filled), all.iter().rposition(filled)) else { return Vec::new() };
    let mut before = from.checked_sub(1).and_then(|at| all.get(at)?.0);
    let mut rows = Vec::new();
    for (upto, one, other) in all.into_iter().skip(from).take(to - from + 1) {
        rows.push((bucket(first.scale(), before, upto), one, other));
        before = upto;
    }
    rows
}

/// The device or devices in words: "vda1 on vda", "loop0 (the file /x on vda)".
fn stack(recording: &Recording) -> String {
    let mut words = Vec::new();
    for layer in &recording.stack {
        let file = layer.backing.as_ref().map_or_else(String::new, |file| format!(" (the file {})", printable(file)));
        let on = if layer.on.is_empty() { String::new() } else { format!(" on {}", layer.on.join(" and ")) };
        if !(file.is_empty() && on.is_empty()) {
            words.push(format!("{}{file}{on}", layer.name));
        }
    }
    let traced: Vec<&str> = recording.devices.iter().map(|device| device.name.as_str()).collect();
    match words.is_empty() {
        true => format!("traced: {}", traced.join(", ")),
        false => format!("{}; traced: {}", words.join(", "), traced.join(", ")),
    }
}

/// The requests of file systems and their wasted seeks, in sentences.
fn asked(asked: &Asked, total: &Requests) -> Vec<String> {
    let sentence = |what: &str, of: &AskedClass, requests: u64| {
        let (Some(asked), Some(split), Some(wasted)) = (of.requests, of.split, of.wasted_seeks) else {
            return format!(
                "file-system {what}: {NOT_KNOWN} on this kernel; breaks within files: {}",
                count(of.breaks)
            );
        };
        if asked == 0 {
            return match of.other_bytes {
                0 => format!("file-system {what}: none"),
                bytes => format!(
                    "file-system {what}: {NOT_KNOWN} (all {} are metadata, raw access or unassigned)",
                    size(Bytes(bytes))
                ),
            };
        }
        let covered = of.covered_percent().unwrap_or(100.0);
        let rest = if covered < 99.95 { format!("; about {covered:.0} % of the bytes") } else { String::new() };
        format!(
            "file-system {what}: {}, split {}, wasted seeks {} ({} of the device's {what}){rest}",
            count(asked),
            count(split),
            count(wasted),
            show(of.wasted_percent(requests), Unit::Percent)
        )
    };
    vec![
        sentence("reads", &asked.reads, total.reads.requests),
        sentence("writes", &asked.writes, total.writes.requests),
    ]
}

/// What the recording lacks, in sentences; empty if it is complete.
fn missed(recording: &Recording) -> Vec<String> {
    let missed = recording.missed;
    let mut said = Vec::new();
    let mut say = |number: u64, what: &str| {
        if number > 0 {
            said.push(format!("{} {what}", count(number)));
        }
    };
    say(missed.untracked, "requests have no latency, because too many were in flight at once");
    say(missed.nameless, "requests are not assigned to a process, because the table of processes was full");
    say(missed.events, "events were missed");
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_called_by_what_they_hold() {
        let name = |scale: Scale, value: i64| {
            let mut histogram = Histogram::new(scale);
            histogram.count(value);
            rows(&histogram, &Histogram::new(scale)).first().map(|row| row.0.clone()).unwrap()
        };
        let sizes = [512, 3000, 4096, 5000, 40_000, 131_072, 1 << 20].map(|bytes| name(Scale::Bytes, bytes));
        assert_eq!(sizes, ["≤ 512 B", "< 4 KiB", "= 4 KiB", "< 8 KiB", "≤ 48 KiB", "≤ 128 KiB", "> 512 KiB"]);
        let times = [0, 900, 3_000_000, i64::MAX].map(|us| name(Scale::Microseconds, us));
        assert_eq!(times, ["< 4.0 µs", "< 1.0 ms", "< 4.2 s", "≥ 33.6 s"]);
        let seeks = [-600_000, -1, 0, 1, 600_000].map(|sectors| name(Scale::Sectors, sectors));
        assert_eq!(seeks, ["≤ -500,000", "≤ 0", "≤ 0", "≤ 2", "> 500,000"]);
        assert_eq!(name(Scale::Requests, 100), "> 64");
    }

    #[test]
    fn what_is_not_known_is_said_and_not_shown_as_nothing() {
        let unknown = AskedClass { breaks: 7, file_bytes: 4096, ..AskedClass::default() };
        let metadata =
            AskedClass { requests: Some(0), split: Some(0), wasted_seeks: Some(0), other_bytes: 9, ..unknown };
        let said = asked(&Asked { reads: unknown, writes: metadata }, &Requests::new());
        assert!(said.iter().all(|sentence| sentence.contains(NOT_KNOWN)), "{said:?}");
        assert_eq!(show(None, Unit::Count), "-");
    }
}
