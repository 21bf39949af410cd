//! What a comparison comes to, in one word.

use crate::device::per;
use crate::protocol::median;
use serde::Serialize;

/// Differences of times below this share are noise.
const NOISE: f64 = 0.03;
/// Of so many runs, one may have met something else that was at work.
const MANY: usize = 5;

/// Whether something showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is better with it than without.
    Benefit,
    /// It makes no difference beyond noise, or there was nothing to be made better.
    NoBenefit,
    /// It is worse.
    Harm,
}

impl Verdict {
    /// Of a time with it by the time without.
    #[must_use]
    pub fn of_times(ratio: f64) -> Self {
        match ratio {
            faster if faster < 1.0 - NOISE => Self::Benefit,
            slower if slower > 1.0 + NOISE => Self::Harm,
            _ => Self::NoBenefit,
        }
    }

    /// Of what each run took before and after: the ratio of the medians, after by before, and what it means. Where runs of the
    /// one were as good as runs of the other, nothing is known; of many, the best and the worst of each may be.
    #[must_use]
    pub fn of_runs(before: &[f64], after: &[f64]) -> (f64, Self) {
        let range = |runs: &[f64]| {
            let mut runs = runs.to_vec();
            runs.sort_by(f64::total_cmp);
            let outliers = usize::from(runs.len() >= MANY);
            let inner = runs.get(outliers..runs.len() - outliers).unwrap_or_default();
            (inner.first().copied().unwrap_or(f64::INFINITY), inner.last().copied().unwrap_or(f64::NEG_INFINITY))
        };
        let ((least, most), (after_least, after_most)) = (range(before), range(after));
        let ratio = per(median(after.to_vec()), median(before.to_vec()));
        let overlap = least <= after_most && after_least <= most;
        (ratio, if overlap || ratio == 0.0 { Self::NoBenefit } else { Self::of_times(ratio) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_difference() {
        let verdicts = [0.5, 0.96, 0.98, 1.0, 1.02, 1.04, 3.0].map(Verdict::of_times);
        let (better, same, worse) = (Verdict::Benefit, Verdict::NoBenefit, Verdict::Harm);
        assert_eq!(verdicts, [better, better, same, same, same, worse, worse]);
    }

    #[test]
    fn runs_that_overlap_show_nothing() {
        assert_eq!(Verdict::of_runs(&[4.0, 4.2, 3.9], &[2.0, 2.1, 2.2]), (2.1 / 4.0, Verdict::Benefit));
        assert_eq!(Verdict::of_runs(&[4.0, 2.0, 3.0], &[2.0, 2.1, 2.2]).1, Verdict::NoBenefit);
        assert_eq!(Verdict::of_runs(&[2.0, 2.1], &[3.0, 3.0]).1, Verdict::Harm);
        let (before, after) = ([4.0, 4.1, 4.2, 4.3, 1.0], [2.0, 2.1, 2.2, 2.3, 9.0]);
        assert_eq!(Verdict::of_runs(&before, &after).1, Verdict::Benefit, "one of five is an accident");
        assert_eq!(Verdict::of_runs(&before[1..], &after[1..]).1, Verdict::NoBenefit, "one of four is not");
        assert_eq!(Verdict::of_runs(&[0.0], &[0.0]), (0.0, Verdict::NoBenefit));
        assert_eq!(Verdict::of_runs(&[], &[]), (0.0, Verdict::NoBenefit));
    }
}
