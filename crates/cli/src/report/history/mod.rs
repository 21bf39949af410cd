//! The history in words and charts: how `report` shows a [`Report`].
//!
//! Owns the syntax of times and the names of figures. Never computes a benefit: the ledger does.

mod html;
mod text;

pub use html::page;
pub use text::text;

use crate::text::{count, counted, duration, printable, printable_path, size};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use longrun_layout::Bytes;
use longrun_ledger::{Counter, Report, Step, Tallies, VolumeReport};
use std::time::Duration;

/// What a report without history says.
pub const NO_HISTORY: &str = "There is no history yet. The service writes it: systemctl start longrun";

/// A time, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This long ago.
    Ago(SignedDuration),
    /// At this time.
    At(Timestamp),
}

impl Moment {
    /// The time that this means, given the current time.
    pub fn seen_from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(time) => now.checked_sub(time).unwrap_or(Timestamp::MIN),
            Self::At(time) => time,
        }
    }
}

/// Reads `7d`, `12h`, `2w`, `2026-11-01`, `2026-11-01T08:30`, `2026-11-01T08:30:00+01:00`. Without a zone it is UTC.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    let utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let date = || text.parse::<Date>().ok().filter(|_| text.len() == 10).and_then(|date| utc(date.at(0, 0, 0, 0)));
    let absolute =
        || text.parse().ok().or_else(|| text.parse::<DateTime>().ok().filter(|_| text.len() > 10).and_then(utc));
    if let Some(time) = date().or_else(absolute) {
        return Ok(Moment::At(time));
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let hours = match unit.trim() {
        "h" | "hour" | "hours" => Some(1),
        "d" | "day" | "days" => Some(24),
        "w" | "week" | "weeks" => Some(7 * 24),
        "y" | "year" | "years" => Some(366 * 24),
        _ => None,
    };
    let ago = number.parse::<u32>().ok().filter(|number| *number > 0).zip(hours);
    ago.map(|(number, hours)| Moment::Ago(SignedDuration::from_hours(i64::from(number) * hours))).ok_or_else(|| {
        format!("'{text}' is not a valid time; write for example 7d, 12h, 2w, 2026-11-01 or 2026-11-01T08:30")
    })
}

/// "hour", "day", "month".
fn step_name(step: Step) -> &'static str {
    match step {
        Step::Hour => "hour",
        Step::Day => "day",
        Step::Month => "month",
    }
}

/// The name of a volume: its mount point, or its UUID.
fn volume_name(volume: &VolumeReport) -> String {
    let point = &volume.volume.point;
    if point.as_os_str().is_empty() { printable(&volume.volume.uuid) } else { printable_path(point) }
}

/// The name of the volume of an event.
fn name_of(report: &Report, uuid: Option<&str>) -> String {
    let Some(uuid) = uuid else { return "service".to_owned() };
    let volume = report.volumes.iter().find(|volume| volume.volume.uuid == uuid);
    volume.map_or_else(|| printable(uuid), volume_name)
}

/// The figures, a line each: name and value. Except for the first two, figures that are 0 are left out.
fn lines(totals: &Tallies) -> Vec<(&'static str, String)> {
    let get = |counter| totals.get(counter);
    let bytes = |counter| size(Bytes(totals.get(counter)));
    let mut lines =
        vec![("prevented", counted(get(Counter::FragmentsPrevented), "excess fragment", "excess fragments"))];
    lines.push(match get(Counter::FilesMended) {
        0 => ("mended", "nothing".to_owned()),
        files => (
            "mended",
            format!(
                "{} in {}, {} moved",
                counted(get(Counter::FragmentsMended), "excess fragment", "excess fragments"),
                counted(files, "file", "files"),
                bytes(Counter::BytesMoved)
            ),
        ),
    });
    let mut line = |name, said: bool, value: String| {
        if said {
            lines.push((name, value));
        }
    };
    let (passes, removed) = (get(Counter::Passes), get(Counter::FragmentsByPasses));
    let moved = bytes(Counter::BytesByPasses);
    let told = counted(removed, "excess fragment", "excess fragments");
    line("passes", passes > 0 || removed > 0, format!("{} finished, {told} removed, {moved} moved", count(passes)));
    let saved = get(Counter::ReadTimeSaved);
    let told = format!("{} of the disks, each time all these files are read", duration(Duration::from_micros(saved)));
    line("time saved", saved > 0, told);
    line("given back", get(Counter::BytesReclaimed) > 0, format!("{} of storage", bytes(Counter::BytesReclaimed)));
    let slipped = get(Counter::FragmentsSlipped);
    line("not prevented", slipped > 0, counted(slipped, "excess fragment", "excess fragments"));
    let fragmenting = get(Counter::FilesFragmenting);
    line("seen fragmenting", fragmenting > 0, counted(fragmenting, "file", "files"));
    let granted = get(Counter::RunwaysGranted);
    let back = format!(
        "{}, {}; {} given back unused",
        count(granted),
        bytes(Counter::RunwayBytesGranted),
        bytes(Counter::RunwayBytesGivenBack)
    );
    line("runways", granted > 0, back);
    let yielded = get(Counter::RunwayBytesYielded);
    line("given back early", yielded > 0, format!("{} of runways, because space was short", size(Bytes(yielded))));
    let left: Vec<(u64, &str)> = Counter::ALL
        .iter()
        .filter_map(|counter| Some((get(*counter), counter.left_reason()?)))
        .filter(|(files, _)| *files > 0)
        .collect();
    let reasons: Vec<String> = left.iter().map(|(files, reason)| format!("{reason} {}", count(*files))).collect();
    line("left alone", !left.is_empty(), reasons.join(", "));
    let alerts = get(Counter::SpaceAlerts);
    line("space alerts", alerts > 0, count(alerts));
    let signals = get(Counter::Signals);
    let lost = match get(Counter::SignalsLost) {
        0 => String::new(),
        lost => format!(", and {} lost", count(lost)),
    };
    line("signals", signals > 0 || !lost.is_empty(), count(signals) + &lost);
    line("own I/O", get(Counter::OwnIoBytes) > 0, bytes(Counter::OwnIoBytes));
    let cpu = get(Counter::CpuMillis);
    line("processor time", cpu > 0, duration(Duration::from_millis(cpu)));
    lines
}

#[cfg(test)]
mod tests;
