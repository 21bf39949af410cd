//! A recording as text.

use super::{asked, missed, rows, show, stack, time};
use crate::text::{count, percent, printable, size};
use longrun_iotrace::{Class, Histogram, Process, Recording, Unit};
use longrun_layout::Bytes;
use std::fmt::Write as _;

/// The number of processes shown.
const PROCESSES: usize = 10;
/// Letters of the longest bar.
const BAR: usize = 24;

/// Everything.
pub fn text(recording: &Recording) -> String {
    let total = recording.total();
    let mut text = format!("{}: {}\n", printable(&recording.target), stack(recording));
    _ = writeln!(text, "{} UTC, {:.1} s\n", recording.started.strftime("%Y-%m-%d %H:%M:%S"), recording.seconds);
    table(&mut text, recording);
    text.push('\n');
    for sentence in asked(&recording.asked, &total) {
        _ = writeln!(text, "{sentence}");
    }
    for device in &recording.devices {
        let bios = &device.bios;
        _ = writeln!(
            text,
            "{}: {} bios queued, {} merged, {} split at the device's limit",
            device.name,
            count(bios.queued),
            count(bios.back_merges + bios.front_merges + bios.request_merges),
            count(bios.splits)
        );
    }
    missed(recording).iter().for_each(|sentence| _ = writeln!(text, "{sentence}"));
    let (reads, writes) = (&total.reads, &total.writes);
    histogram(&mut text, "Size", &reads.sizes, &writes.sizes);
    histogram(&mut text, "Latency", &reads.latency, &writes.latency);
    histogram(&mut text, "Seek distance, sectors", &reads.seeks, &writes.seeks);
    histogram(&mut text, "Queue depth", &reads.depths, &writes.depths);
    processes(&mut text, &recording.processes);
    text
}

/// One line for each class with requests. Ours are listed separately.
pub fn table(text: &mut String, recording: &Recording) {
    _ = writeln!(
        text,
        "{:<12}{:>11}{:>9}{:>10}{:>10}{:>8}{:>7}  {:>8}{:>8}{:>8}",
        "", "requests", "per s", "bytes", "size", "seq.", "depth", "latency", "95 %", "99 %"
    );
    let total = recording.total();
    let ours = recording.devices.iter().filter_map(|device| device.ours.as_ref());
    let ours = ours.fold(longrun_iotrace::Requests::new(), |sum, requests| sum.and(requests));
    let all = [
        ("reads", &total.reads, true),
        ("  ours", &ours.reads, false),
        ("writes", &total.writes, true),
        ("  ours", &ours.writes, false),
        ("discards", &total.discards, false),
        ("flushes", &total.flushes, false),
        ("other", &total.other, false),
    ];
    for (name, class, always) in all {
        if always || class.requests > 0 {
            line(text, name, class, recording.seconds);
        }
    }
}

fn line(text: &mut String, name: &str, class: &Class, seconds: f64) {
    let latency = |share| class.latency.quantile(share).map_or_else(|| "-".to_owned(), |bound| time(bound as f64));
    let rate = (seconds > 0.0).then(|| class.requests as f64 / seconds);
    _ = writeln!(
        text,
        "{name:<12}{:>11}{:>9}{:>10}{:>10}{:>8}{:>7}  {:>8}{:>8}{:>8}",
        count(class.requests),
        show(rate, Unit::PerSecond),
        size(Bytes(class.bytes)),
        show(class.mean_bytes(), Unit::Bytes),
        class.sequential_percent().map_or_else(|| "-".to_owned(), |share| format!("{share:.0} %")),
        class.mean_depth().map_or_else(|| "-".to_owned(), |depth| format!("{depth:.1}")),
        show(class.mean_latency(), Unit::Microseconds),
        latency(0.95),
        latency(0.99)
    );
}

fn histogram(text: &mut String, title: &str, reads: &Histogram, writes: &Histogram) {
    let rows = rows(reads, writes);
    if rows.is_empty() {
        return;
    }
    let (all_reads, all_writes) = (reads.total(), writes.total());
    let most = |pick: fn(&(String, u64, u64)) -> u64| rows.iter().map(pick).max().unwrap_or(0);
    let (most_reads, most_writes) = (most(|row| row.1), most(|row| row.2));
    _ = write!(text, "\n{title:<24}");
    for (name, all) in [("reads", all_reads), ("writes", all_writes)] {
        if all > 0 {
            _ = write!(text, "{name:>10}{:>8}{:width$}", "", "", width = BAR + 2);
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for (name, reads, writes) in &rows {
        let mut line = format!("{name:>22}  ");
        for (number, all, most) in [(*reads, all_reads, most_reads), (*writes, all_writes, most_writes)] {
            if all > 0 {
                _ = write!(line, "{:>10}{:>8} {:<BAR$} ", count(number), percent(number, all), bar(number, most));
            }
        }
        _ = writeln!(text, "{}", line.trim_end());
    }
}

/// A bar. A number above 0 always has at least one character.
pub fn bar(number: u64, most: u64) -> String {
    let letters = (number as f64 / most.max(1) as f64 * BAR as f64).round() as usize;
    "█".repeat(letters.max(usize::from(number > 0)))
}

fn processes(text: &mut String, processes: &[Process]) {
    if processes.is_empty() {
        return;
    }
    _ = writeln!(text, "\n{:<28}{:>11}{:>10}{:>11}{:>10}", "Process", "reads", "bytes", "writes", "bytes");
    for process in processes.iter().take(PROCESSES) {
        _ = writeln!(text, "{}", process_line(process));
    }
    if processes.len() > PROCESSES {
        _ = writeln!(text, "and {} more", processes.len() - PROCESSES);
    }
}

/// A process and its requests.
pub fn process_line(process: &Process) -> String {
    let ours = if process.ours { " (ours)" } else { "" };
    let name = format!("{} {}{ours}", printable(&process.name), process.id);
    format!(
        "{name:<28}{:>11}{:>10}{:>11}{:>10}",
        count(process.reads),
        size(Bytes(process.read_bytes)),
        count(process.writes),
        size(Bytes(process.written_bytes))
    )
}
