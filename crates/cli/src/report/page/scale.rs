//! Axes: round numbers that people expect beside a chart, and names of times. Pure.

use crate::text::{count, size};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use longrun_layout::Bytes;
use longrun_ledger::Step;

/// What is shown along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of things.
    Count,
    /// Bytes, in powers of two.
    Bytes,
}

impl Kind {
    /// A value in words.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Count => count(value),
            Self::Bytes => size(Bytes(value)),
        }
    }

    /// A value in so few letters that they fit beside an axis.
    fn tick(self, value: u64) -> String {
        match self {
            Self::Bytes => whole_unit(value),
            Self::Count if value >= 10_000_000_000_000 => format!("{:.0e}", value as f64),
            Self::Count if value >= 10_000_000_000 => format!("{} G", count(value / 1_000_000_000)),
            Self::Count if value >= 10_000_000 => format!("{} M", count(value / 1_000_000)),
            Self::Count => count(value),
        }
    }
}

/// "256 MiB" rather than "256.0 MiB": ticks are whole.
fn whole_unit(value: u64) -> String {
    let shown = size(Bytes(value));
    match shown.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => shown,
    }
}

/// An axis from 0 upwards.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The value at its end.
    pub top: f64,
    /// Where lines are drawn, and what stands beside them.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// One that has room for `most`.
    pub fn up_to(most: u64, kind: Kind) -> Self {
        let wanted = most.max(4) as f64 / 4.0;
        let step = match kind {
            Kind::Count => {
                let ten = 10f64.powf(wanted.log10().floor());
                [1.0, 2.0, 5.0, 10.0].map(|m| m * ten).into_iter().find(|step| *step >= wanted).unwrap_or(wanted)
            }
            Kind::Bytes => 2f64.powf(wanted.log2().ceil()),
        };
        let steps = ((most as f64 / step).ceil() as u32).max(1);
        let ticks = (0..=steps).map(|n| f64::from(n) * step).map(|value| (value, kind.tick(value as u64))).collect();
        Self { top: f64::from(steps) * step, ticks }
    }

    /// Where a value lies: 0 at the foot, 1 at the top.
    pub fn share(&self, value: u64) -> f64 {
        (value as f64 / self.top).clamp(0.0, 1.0)
    }

    /// Letters of the longest mark.
    pub fn width(&self) -> usize {
        self.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0)
    }
}

/// "2026-11-21 10:20".
pub fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

/// The name of a step of time.
pub fn step_label(step: Step, at: Timestamp) -> String {
    let form = match step {
        Step::Hour => "%Y-%m-%d %H:00",
        Step::Day => "%Y-%m-%d",
        Step::Month => "%Y-%m",
    };
    at.strftime(form).to_string()
}

/// What stands below a time.
pub fn time_label(step: Step, at: Timestamp) -> String {
    let time = at.to_zoned(TimeZone::UTC);
    let form = match step {
        Step::Hour if time.hour() == 0 => "%b %-d",
        Step::Hour => "%H:%M",
        Step::Day => "%b %-d",
        Step::Month => "%b %Y",
    };
    time.strftime(form).to_string()
}

/// So many marks of time find room.
const TIMES: i64 = 5;
/// Distances of marks of time that people find round, in seconds: of minutes, hours and days.
const ROUND: [i64; 17] = [
    60,
    300,
    900,
    1800,
    3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
    91 * DAY,
    182 * DAY,
    365 * DAY,
];
const DAY: i64 = 86400;

/// Round times from `first` to `last`, and what stands below them.
pub fn time_marks(first: Timestamp, last: Timestamp) -> Vec<(Timestamp, String)> {
    let (from, to) = (first.as_second(), last.as_second());
    let wanted = (to - from) / TIMES;
    let each = ROUND.into_iter().find(|each| *each > wanted).unwrap_or(wanted.max(1));
    let step = match each {
        months if months >= 30 * DAY => Step::Month,
        days if days >= DAY => Step::Day,
        _ => Step::Hour,
    };
    let start = from + (-from).rem_euclid(each);
    let times = (0..=TIMES).map(|n| start + n * each).take_while(|time| *time <= to);
    let mut marks: Vec<_> = times.filter_map(|time| Timestamp::from_second(time).ok()).collect();
    if marks.is_empty() {
        marks.push(first);
    }
    marks.into_iter().map(|at| (at, time_label(step, at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(most: u64, kind: Kind) -> String {
        let axis = Axis::up_to(most, kind);
        assert!(axis.top >= most as f64 && axis.ticks.len() <= 6, "{most}: {axis:?}");
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(marks(0, Kind::Count), "0 | 1");
        assert_eq!(marks(7, Kind::Count), "0 | 2 | 4 | 6 | 8");
        assert_eq!(marks(98_500, Kind::Count), "0 | 50,000 | 100,000");
        assert_eq!(marks(900 << 20, Kind::Bytes), "0 B | 256 MiB | 512 MiB | 768 MiB | 1 GiB");
    }

    #[test]
    fn marks_of_time_are_round_and_few() {
        let labels = |first: &str, last: &str| {
            let marks = time_marks(first.parse().unwrap(), last.parse().unwrap());
            marks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" | ")
        };
        let day = labels("2026-11-20T13:10:00Z", "2026-11-21T13:10:00Z");
        assert_eq!(day, "18:00 | Nov 21 | 06:00 | 12:00");
        let week = labels("2026-11-14T13:10:00Z", "2026-11-21T13:10:00Z");
        assert_eq!(week, "Nov 15 | Nov 17 | Nov 19 | Nov 21");
        assert_eq!(labels("2026-11-14T13:10:00Z", "2026-11-14T13:10:00Z"), "13:10");
        assert_eq!(labels("0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z").split(" | ").count(), 5);
    }

    #[test]
    fn any_number_has_its_axis() {
        for most in [1, 2, 3, 9, 10, 11, 1 << 33, u64::MAX - 1, u64::MAX] {
            for kind in [Kind::Count, Kind::Bytes] {
                marks(most, kind);
                assert!(Axis::up_to(most, kind).width() <= 12);
            }
        }
    }
}
