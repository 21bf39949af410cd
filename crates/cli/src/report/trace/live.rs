//! The live view: redrawn in place on a terminal; elsewhere one line per interval.

use super::text::{process_line, table};
use super::{asked, stack};
use crate::text::{count, printable};
use longrun_iotrace::{Class, Device, Process, Recording, Requests};
use std::fmt::Write as _;
use terminal_size::{Height, Width, terminal_size};

/// The size where there is no terminal: columns and lines.
const SIZE: (usize, usize) = (100, 30);
/// So many processes are shown.
const PROCESSES: usize = 8;

/// Shows the changes since the last view.
pub struct Live {
    before: Recording,
    on_terminal: bool,
    drawn: usize,
}

impl Live {
    /// From this state on.
    pub fn new(before: Recording, on_terminal: bool) -> Self {
        Self { before, on_terminal, drawn: 0 }
    }

    /// What to print for this state.
    pub fn next(&mut self, now: Recording) -> String {
        let recent = since(&now, &self.before);
        self.before = now;
        if !self.on_terminal {
            return line(&self.before, &recent);
        }
        let (width, height) =
            terminal_size().map_or(SIZE, |(Width(width), Height(height))| (width.into(), height.into()));
        let frame = frame(&self.before, &recent);
        // A line that is broken by the terminal, or more lines than it has, could not be taken back.
        let lines: Vec<String> = frame
            .lines()
            .take(height.saturating_sub(1))
            .map(|line| line.chars().take(width.saturating_sub(1)).collect())
            .collect();
        let shown = self.clear() + &lines.join("\n") + "\n";
        self.drawn = lines.len();
        shown
    }

    /// The control sequence that erases the view.
    pub fn clear(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }
}

/// The difference between two states of one trace.
fn since(now: &Recording, before: &Recording) -> Recording {
    let devices = now.devices.iter().zip(&before.devices).map(|(now, before)| {
        let of = |now: &Option<Requests>, before: &Option<Requests>| Some(now.as_ref()?.since(before.as_ref()?));
        Device { all: now.all.since(&before.all), ours: of(&now.ours, &before.ours), ..now.clone() }
    });
    let mut processes: Vec<Process> = now.processes.iter().map(|process| recent(process, &before.processes)).collect();
    processes.retain(|process| process.reads + process.writes > 0);
    processes.sort_by_key(|process| std::cmp::Reverse(process.read_bytes + process.written_bytes));
    Recording { seconds: now.seconds - before.seconds, devices: devices.collect(), processes, ..now.clone() }
}

fn recent(now: &Process, before: &[Process]) -> Process {
    let Some(before) = before.iter().find(|before| before.id == now.id) else { return now.clone() };
    Process {
        reads: now.reads.saturating_sub(before.reads),
        read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
        writes: now.writes.saturating_sub(before.writes),
        written_bytes: now.written_bytes.saturating_sub(before.written_bytes),
        others: now.others.saturating_sub(before.others),
        ..now.clone()
    }
}

/// The view of a terminal: the last interval, and since the start.
fn frame(all: &Recording, recent: &Recording) -> String {
    let mut text = format!("{}: {}\n\n", printable(&all.target), stack(all));
    _ = writeln!(text, "The last {:.1} s", recent.seconds);
    table(&mut text, recent);
    for process in recent.processes.iter().take(PROCESSES) {
        _ = writeln!(text, "  {}", process_line(process));
    }
    _ = writeln!(text, "\nSince the start, {:.0} s ago", all.seconds);
    table(&mut text, all);
    asked(&all.asked, &all.total()).iter().for_each(|sentence| _ = writeln!(text, "{sentence}"));
    text + "\nCtrl-C ends the trace and prints the totals.\n"
}

/// The line for logs.
fn line(all: &Recording, recent: &Recording) -> String {
    let total = recent.total();
    let of = |name: &str, class: &Class| {
        let rate = class.requests as f64 / recent.seconds.max(0.001);
        let megabytes = class.bytes as f64 / 1e6 / recent.seconds.max(0.001);
        let latency = class.latency.quantile(0.95).map_or_else(|| "-".to_owned(), |bound| super::time(bound as f64));
        let sequential = class.sequential_percent().map_or_else(|| "-".to_owned(), |share| format!("{share:.0} %"));
        format!("{name} {}/s {megabytes:.1} MB/s seq. {sequential} 95 % {latency}", count(rate.round() as u64))
    };
    format!("{:>7.1} s  {}  {}\n", all.seconds, of("reads", &total.reads), of("writes", &total.writes))
}
