//! The verdict of a comparison in one word: whether a result is better than before, and whether other programs notice
//! the work.

use crate::device::per;
use crate::protocol::median;
use serde::Serialize;
use std::fmt;

/// Differences of times below this share are noise.
const NOISE: f64 = 0.03;
/// Out of this many runs, one may have been disturbed by other work.
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

    /// Of what each run took before and after: the ratio of the medians, after by before, and what it means. Where
    /// runs of the one were as good as runs of the other, nothing is known; of many, the best and the worst of each
    /// may be.
    #[must_use]
    pub fn of_runs(before: &[f64], after: &[f64]) -> (f64, Self) {
        let ratio = per(median(after.to_vec()), median(before.to_vec()));
        let unknown = overlap(before, after) || ratio == 0.0;
        (ratio, if unknown { Self::NoBenefit } else { Self::of_times(ratio) })
    }
}

/// Whether runs of the one were as good as runs of the other; so it is where there are none.
fn overlap(before: &[f64], after: &[f64]) -> bool {
    match (range(before), range(after)) {
        (Some((least, most)), Some((after_least, after_most))) => least <= after_most && after_least <= most,
        _ => true,
    }
}

/// The least and the most of the runs; of many the best and the worst are left out.
fn range(runs: &[f64]) -> Option<(f64, f64)> {
    let mut runs = runs.to_vec();
    runs.sort_by(f64::total_cmp);
    let outliers = usize::from(runs.len() >= MANY);
    let inner = runs.get(outliers..runs.len() - outliers)?;
    inner.first().copied().zip(inner.last().copied())
}

/// Whether other programs notice the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// They are hardly slower than alone, or within the noise.
    NotNoticed,
    /// They seem to be slower, but some runs were as fast as alone, so nothing is proven.
    NothingShown,
    /// They are slower, in all runs.
    Noticed,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNoticed => "not noticed",
            Self::NothingShown => "inconclusive",
            Self::Noticed => "noticed",
        })
    }
}

/// One figure of a program beside some work, compared with the same program alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The ratio of its time to that alone.
    pub ratio: f64,
    /// The noise: how much the runs alone differ, in per cent. `None` if there is only one run.
    pub noise_percent: Option<f64>,
    /// What that means.
    pub notice: Notice,
}

impl Beside {
    /// Of what each run took alone and beside it; up to `permitted` times as long counts as unnoticed.
    #[must_use]
    pub fn of_runs(alone: &[f64], beside: &[f64], permitted: f64) -> Self {
        let usual = median(alone.to_vec());
        let ratio = per(median(beside.to_vec()), usual);
        let spread = range(alone).filter(|_| alone.len() > 1).map(|(least, most)| per(most - least, usual));
        // Where the runs alone are far apart, nobody knows; that is no leave to be slow.
        let noise = spread.unwrap_or(0.0).min(NOISE);
        let notice = match overlap(alone, beside) {
            _ if ratio == 0.0 => Notice::NothingShown,
            _ if ratio <= permitted.max(1.0 + noise) => Notice::NotNoticed,
            false if spread.is_some() => Notice::Noticed,
            _ => Notice::NothingShown,
        };
        Self { ratio, noise_percent: spread.map(|spread| 100.0 * spread), notice }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ratio, noise_percent, notice } = self;
        write!(f, "{ratio:.2} times as long as without it ({notice}; ")?;
        match noise_percent {
            Some(percent) => write!(f, "the runs without it differ by {percent:.1} %)"),
            None => f.write_str("with one run the noise is not known)"),
        }
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

    /// A copy that took 1.14 times as long was called "not noticed", since one of three runs was as quick as one alone.
    #[test]
    fn that_runs_overlap_does_not_mean_that_nothing_is_noticed() {
        let notice = |alone: &[f64], beside: &[f64], permitted| Beside::of_runs(alone, beside, permitted).notice;
        assert_eq!(notice(&[4.0, 4.1, 4.7], &[4.2, 4.67, 5.0], 1.01), Notice::NothingShown);
        assert_eq!(notice(&[4.0, 4.1, 4.2], &[4.6, 4.67, 5.0], 1.01), Notice::Noticed);
        assert_eq!(notice(&[4.0, 4.1, 4.2], &[4.0, 4.13, 4.3], 1.01), Notice::NotNoticed, "as much is permitted");
        assert_eq!(notice(&[4.0, 4.1, 4.2], &[4.1, 4.2, 4.3], 1.01), Notice::NotNoticed, "the noise is larger");
        assert_eq!(notice(&[4.1, 4.1, 4.1], &[4.1, 4.2, 4.3], 1.01), Notice::NothingShown, "there is no noise");
        assert_eq!(notice(&[4.0, 4.0], &[4.01, 4.02], 1.01), Notice::NotNoticed, "slower in all runs, but so little");
        assert_eq!(notice(&[5.0, 6.0], &[1.0, 2.0], 1.01), Notice::NotNoticed, "even faster");
        assert_eq!(notice(&[10.0, 10.1], &[11.5, 11.9], 1.2), Notice::NotNoticed);
        assert_eq!(notice(&[], &[1.0], 1.2), Notice::NothingShown);
        assert_eq!(notice(&[1.0], &[2.0], 1.2), Notice::NothingShown, "of one run the noise is not known");
    }

    #[test]
    fn the_noise_is_told_in_figures() {
        let beside = Beside::of_runs(&[4.0, 4.1, 4.7], &[4.2, 4.67, 5.0], 1.01);
        let told = "1.14 times as long as without it (inconclusive; the runs without it differ by 17.1 %)";
        assert_eq!(beside.to_string(), told);
        let many = Beside::of_runs(&[1.0, 4.0, 4.1, 4.2, 9.0], &[4.1], 1.01);
        let noise = many.noise_percent.unwrap();
        assert!((noise - 100.0 * 0.2 / 4.1).abs() < 1e-9, "of many the best and the worst are left out");
        let one = Beside::of_runs(&[4.0], &[4.0], 1.01);
        assert_eq!(
            one.to_string(),
            "1.00 times as long as without it (not noticed; with one run the noise is not known)"
        );
    }
}
