//! What a comparison comes to, in one word.

use serde::Serialize;

/// Differences of times below this share are noise.
const NOISE: f64 = 0.03;

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
}
