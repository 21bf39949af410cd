//! Measures the time from a signal to its runway. Pure.

use crate::state::Reaction;
use std::time::Duration;

/// Four steps for each power of two of microseconds, up to an hour.
const STEPS: usize = 128;

/// A histogram of times.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [u64; STEPS],
    longest: Duration,
    sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; STEPS], longest: Duration::ZERO, sum: Duration::ZERO }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = micros.ilog2();
        let quarter = if power < 2 { 0 } else { (micros >> (power - 2)) & 3 };
        let step = usize::try_from(u64::from(power) * 4 + quarter).unwrap_or(STEPS).min(STEPS - 1);
        if let Some(count) = self.counts.get_mut(step) {
            *count += 1;
        }
        self.longest = self.longest.max(time);
        self.sum = self.sum.saturating_add(time);
    }

    pub(super) fn reaction(&self) -> Reaction {
        Reaction {
            count: self.counts.iter().sum(),
            total_us: u64::try_from(self.sum.as_micros()).unwrap_or(u64::MAX),
            p50_us: self.quantile(50),
            p99_us: self.quantile(99),
            max_us: u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// The upper end of the step that holds it.
    fn quantile(&self, percent: u64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let mut wanted = (all * percent).div_ceil(100);
        for (step, count) in self.counts.iter().enumerate() {
            if *count >= wanted && wanted > 0 {
                let (power, quarter) = (step as u64 / 4, step as u64 % 4);
                let upper = (4 + quarter + 1) << power >> 2;
                return upper.min(u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX));
            }
            wanted = wanted.saturating_sub(*count);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_quarter() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.reaction(), Reaction::default());
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros));
        }
        let Reaction { count, total_us, p50_us, p99_us, max_us } = histogram.reaction();
        assert_eq!((count, total_us, max_us), (1000, 500_500, 1000));
        assert!((500..=640).contains(&p50_us), "{p50_us}");
        assert!((990..=1000).contains(&p99_us), "{p99_us}");
    }

    #[test]
    fn an_absurd_time_is_counted_all_the_same() {
        let mut histogram = Histogram::default();
        histogram.add(Duration::MAX);
        histogram.add(Duration::ZERO);
        assert_eq!(histogram.reaction().count, 2);
    }
}
