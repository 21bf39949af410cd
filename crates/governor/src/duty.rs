//! The share of the time that background work may take.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A share of the time, in per cent: at least 1, at most 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duty(pub(crate) u8);

impl Duty {
    /// All of it.
    pub const ALL: Self = Self(100);

    /// How long nothing may be done after so much `work`.
    #[must_use]
    pub fn rest_after(self, work: Duration) -> Duration {
        work * u32::from(100 - self.0) / u32::from(self.0)
    }
}

/// Not a valid share of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDuty(String);

impl fmt::Display for NoDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a valid share of the time; use 1% to 100%", self.0)
    }
}

impl std::error::Error for NoDuty {}

impl TryFrom<u8> for Duty {
    type Error = NoDuty;

    fn try_from(percent: u8) -> Result<Self, NoDuty> {
        if (1..=100).contains(&percent) { Ok(Self(percent)) } else { Err(NoDuty(percent.to_string())) }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Duty {
    type Err = NoDuty;

    /// "40%", or 40.
    fn from_str(text: &str) -> Result<Self, NoDuty> {
        let none = || NoDuty(text.to_owned());
        let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
        let percent: u8 = digits.parse().map_err(|_| none())?;
        Self::try_from(percent).map_err(|_| none())
    }
}

/// The share of the time that background work takes although others would have to wait, in thousandths: at most half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinProgress(u16);

impl MinProgress {
    /// As a fraction of the time.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Default for MinProgress {
    /// Half a per cent: in a week that moves 300 GB on a disk of 100 MB/s.
    fn default() -> Self {
        Self(5)
    }
}

/// Not a valid minimal progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMinProgress(String);

impl fmt::Display for NoMinProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a valid minimal share of the time; use 0% to 50%, with one decimal at most", self.0)
    }
}

impl std::error::Error for NoMinProgress {}

impl fmt::Display for MinProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenths => write!(f, "{}.{tenths}%", self.0 / 10),
        }
    }
}

impl FromStr for MinProgress {
    type Err = NoMinProgress;

    /// "0.5%", or 2.
    fn from_str(text: &str) -> Result<Self, NoMinProgress> {
        let none = || NoMinProgress(text.to_owned());
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        let digits =
            |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u16>().ok());
        let tenths_digits = tenths.len();
        let (whole, tenths) = digits(whole).flatten().zip(digits(tenths).flatten()).ok_or_else(none)?;
        let thousandths = whole.checked_mul(10).and_then(|whole| whole.checked_add(tenths)).ok_or_else(none)?;
        if tenths_digits == 1 && thousandths <= 500 { Ok(Self(thousandths)) } else { Err(none()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_share_of_the_time_has_one_decimal_and_is_at_most_half() {
        for (text, share, told) in
            [("0%", 0.0, "0%"), ("0.5 %", 0.005, "0.5%"), ("2", 0.02, "2%"), ("50.0%", 0.5, "50%")]
        {
            let parsed: MinProgress = text.parse().unwrap();
            assert_eq!((parsed.share(), parsed.to_string().as_str()), (share, told));
        }
        assert_eq!("0.5%".parse(), Ok(MinProgress::default()));
        for text in ["", "%", "-1%", "+1", "0.05%", "50.1%", "51", "1.", ".5", "7000%", "1e1", "half", "0.10"] {
            assert!(text.parse::<MinProgress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_of_the_time_is_between_one_and_all_of_it() {
        assert_eq!("40%".parse(), Ok(Duty(40)));
        assert_eq!("40 %".parse(), Ok(Duty(40)));
        assert_eq!("100".parse(), Ok(Duty::ALL));
        for text in ["0%", "101%", "-1", "0.5", "", "%", "half", "300"] {
            assert_eq!(
                text.parse::<Duty>().unwrap_err().to_string(),
                format!("'{text}' is not a valid share of the time; use 1% to 100%")
            );
        }
        assert_eq!(Duty(7).to_string(), "7%");
    }

    #[test]
    fn what_follows_work_is_the_rest_of_the_time() {
        let work = Duration::from_millis(90);
        assert_eq!(Duty(90).rest_after(work), Duration::from_millis(10));
        assert_eq!(Duty(10).rest_after(work), Duration::from_millis(810));
        assert_eq!(Duty::ALL.rest_after(work), Duration::ZERO);
    }
}
