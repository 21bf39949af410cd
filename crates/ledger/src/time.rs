//! The time steps of the history: hours, days and months in UTC. Pure: reads no clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// The length of a time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// An hour.
    Hour,
    /// A day in UTC.
    Day,
    /// A calendar month in UTC.
    Month,
}

impl Step {
    /// All of them, the shortest first.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    /// The number in the database.
    #[must_use]
    pub const fn code(self) -> i64 {
        match self {
            Self::Hour => 0,
            Self::Day => 1,
            Self::Month => 2,
        }
    }

    /// The step with this number.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.code() == code)
    }

    /// The beginning of the step that contains `at`.
    #[must_use]
    pub fn floor(self, at: Timestamp) -> Timestamp {
        let seconds = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
        let floored = match self {
            Self::Hour => seconds - seconds.rem_euclid(HOUR),
            Self::Day => seconds - seconds.rem_euclid(DAY),
            Self::Month => return first_of_month(at),
        };
        Timestamp::from_second(floored).unwrap_or(Timestamp::MIN)
    }

    /// The beginning of the step after the one that contains `at`.
    #[must_use]
    pub fn next(self, at: Timestamp) -> Timestamp {
        let start = self.floor(at).as_second();
        let next = match self {
            Self::Hour => start.saturating_add(HOUR),
            Self::Day => start.saturating_add(DAY),
            // No month is longer than 31 days, and none that follows one begins later than 31 days after it.
            Self::Month => {
                let later = Timestamp::from_second(start.saturating_add(31 * DAY)).unwrap_or(Timestamp::MAX);
                return first_of_month(later);
            }
        };
        Timestamp::from_second(next).unwrap_or(Timestamp::MAX)
    }
}

fn first_of_month(at: Timestamp) -> Timestamp {
    let first = at.to_zoned(TimeZone::UTC).date().first_of_month();
    first.to_zoned(TimeZone::UTC).map_or(Timestamp::MIN, |zoned| zoned.timestamp())
}

/// An hour, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(Timestamp);

impl Hour {
    /// The hour that contains `at`.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(Step::Hour.floor(at))
    }

    /// When it begins.
    #[must_use]
    pub const fn start(self) -> Timestamp {
        self.0
    }
}

/// A day of UTC, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(Timestamp);

impl Day {
    /// The day that contains `at`.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(Step::Day.floor(at))
    }

    /// When it begins.
    #[must_use]
    pub const fn start(self) -> Timestamp {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn steps_begin_where_the_calendar_says() {
        let time = at("2028-02-29T13:59:59.9Z");
        assert_eq!(Step::Hour.floor(time), at("2028-02-29T13:00:00Z"));
        assert_eq!(Step::Day.floor(time), at("2028-02-29T00:00:00Z"));
        assert_eq!(Step::Month.floor(time), at("2028-02-01T00:00:00Z"));
        assert_eq!(Step::Month.next(time), at("2028-03-01T00:00:00Z"));
        assert_eq!(Step::Month.next(at("2027-12-31T00:00:00Z")), at("2028-01-01T00:00:00Z"));
        assert_eq!(Step::Day.next(time), at("2028-03-01T00:00:00Z"));
    }

    #[test]
    fn times_before_1970_and_at_the_ends_of_time_have_their_steps() {
        assert_eq!(Step::Hour.floor(at("1969-12-31T23:59:59.5Z")), at("1969-12-31T23:00:00Z"));
        for step in Step::ALL {
            for end in [Timestamp::MIN, Timestamp::MAX] {
                assert!(step.floor(end) <= end && step.next(end) >= step.floor(end));
            }
        }
    }
}
