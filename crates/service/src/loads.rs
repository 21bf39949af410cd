//! The load of each volume's device over time: that of the service, that of other processes on this machine, and how long
//! small reads take, which shows users outside it.
//!
//! Owns the points of the last hour, in memory. Asks the kernel's counters only, so that no sleeping disk is woken.

use jiff::Timestamp;
use longrun_api::model::{self, LoadPoint};
use longrun_sys::DeviceCounts;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time between two points.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Points that are kept: one hour, 140 KiB a volume.
const MOST_POINTS: usize = 720;

/// What is known of a device and of the work on it at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// On the wall clock.
    pub at: Timestamp,
    /// On the monotonic clock.
    pub clock: Instant,
    /// The counters of the device.
    pub counts: DeviceCounts,
    /// The counters of our work on it.
    pub governor: model::Governor,
}

/// The load of one volume's device.
#[derive(Debug, Default)]
pub struct Series {
    last: Option<Sample>,
    points: VecDeque<LoadPoint>,
}

impl Series {
    /// Adds what happened since the last sample.
    pub fn add(&mut self, sample: Sample) {
        if let Some(last) = &self.last {
            if self.points.len() >= MOST_POINTS {
                self.points.pop_front();
            }
            self.points.push_back(point(last, &sample));
        }
        self.last = Some(sample);
    }

    /// The points after this moment, oldest first.
    #[must_use]
    pub fn since(&self, from: Option<Timestamp>) -> Vec<LoadPoint> {
        let is_later =
            |point: &&LoadPoint| from.is_none_or(|from| point.at.parse::<Timestamp>().is_ok_and(|at| at > from));
        self.points.iter().filter(is_later).cloned().collect()
    }
}

/// Counters that were set back (another device has the number now) count as unchanged.
fn point(last: &Sample, now: &Sample) -> LoadPoint {
    let seconds = now.clock.saturating_duration_since(last.clock).as_secs_f64();
    let read_bytes = now.counts.read.saturating_sub(last.counts.read).0;
    let written_bytes = now.counts.written.saturating_sub(last.counts.written).0;
    let busy = now.counts.busy.saturating_sub(last.counts.busy).as_secs_f64();
    let own = now.governor.own_bytes.saturating_sub(last.governor.own_bytes);
    let account = |sample: &Sample| sample.governor.account.unwrap_or_default();
    let (before, after) = (account(last), account(now));
    LoadPoint {
        at: now.at.to_string(),
        seconds,
        busy_share: if seconds > 0.0 { (busy / seconds).min(1.0) } else { 0.0 },
        read_bytes,
        written_bytes,
        own_bytes: own.min(read_bytes + written_bytes),
        usual_seconds: (after.usual_seconds - before.usual_seconds).max(0.0),
        charged_seconds: (after.charged_seconds - before.charged_seconds).max(0.0),
        probes: now.governor.probes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::Bytes;

    /// A device with one load more every 5 s, a third of it ours.
    fn sample(start: Instant, nth: u32) -> Sample {
        let time = INTERVAL * nth;
        let account = model::Account {
            usual_seconds: f64::from(nth),
            charged_seconds: f64::from(nth) / 50.0,
            ..model::Account::default()
        };
        Sample {
            at: Timestamp::UNIX_EPOCH + time,
            clock: start + time,
            counts: DeviceCounts {
                read: Bytes(u64::from(nth) * 2_000),
                written: Bytes(u64::from(nth) * 1_000),
                busy: Duration::from_secs(u64::from(nth)),
                ..DeviceCounts::default()
            },
            governor: model::Governor {
                own_bytes: u64::from(nth) * 1_000,
                account: Some(account),
                ..model::Governor::default()
            },
        }
    }

    fn series(samples: u32) -> Series {
        let (start, mut series) = (Instant::now(), Series::default());
        (0..samples).for_each(|nth| series.add(sample(start, nth)));
        series
    }

    #[test]
    fn a_point_is_what_happened_between_two_samples() {
        let points = series(2).since(None);
        let [point] = points.as_slice() else { panic!("{points:?}") };
        assert_eq!((point.read_bytes, point.written_bytes, point.own_bytes), (2_000, 1_000, 1_000));
        assert_eq!((point.seconds, point.busy_share), (5.0, 0.2));
        assert_eq!((point.usual_seconds, point.charged_seconds), (1.0, 0.02));
        assert_eq!(point.at, "1970-01-01T00:00:05Z");
    }

    #[test]
    fn one_hour_is_kept_and_points_can_be_asked_for_since_a_moment() {
        let series = series(1000);
        let points = series.since(None);
        assert_eq!((points.len(), points[0].at.as_str()), (720, "1970-01-01T00:23:20Z"));
        let later = series.since(points[717].at.parse().ok());
        assert_eq!(later, points[718..]);
    }

    #[test]
    fn counters_that_were_set_back_are_no_load() {
        let start = Instant::now();
        let mut series = Series::default();
        let mut earlier = sample(start, 0);
        series.add(Sample { at: earlier.at, clock: start, ..sample(start, 9) });
        (earlier.at, earlier.clock) = (earlier.at + INTERVAL, start + INTERVAL);
        series.add(earlier);
        let point = &series.since(None)[0];
        assert_eq!((point.read_bytes, point.own_bytes, point.busy_share, point.charged_seconds), (0, 0, 0.0, 0.0));
    }
}
