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

#[cfg(test)]
mod tests {
    use super::*;

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
