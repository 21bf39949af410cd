//! Moments of this machine's CLOCK_BOOTTIME, and the times that follow from the term of a lease.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Days since 1970-01-01 (UTC) by this host's clock: the only thing that this clock decides.
#[must_use]
pub fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / 86_400)
}

/// A moment: the time since this machine was started, the time in which it slept included. No clock setting moves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(longrun_sys::since_boot())
    }

    /// The moment that is so long after the start of the machine.
    #[must_use]
    pub const fn after_boot(time: Duration) -> Self {
        Self(time)
    }

    /// The moment that is so much later.
    #[must_use]
    pub const fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// The time from `earlier` to this moment; none when that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As the service counts.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The term of a lease. It is the same on all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(Duration);

impl Default for Term {
    fn default() -> Self {
        Self(Duration::from_secs(60))
    }
}

impl Term {
    /// A term of this length.
    #[must_use]
    pub const fn of(time: Duration) -> Self {
        Self(time)
    }

    /// So long must others have seen a slot unchanged before they take it.
    #[must_use]
    pub const fn full(self) -> Duration {
        self.0
    }

    /// So long after sending the request may a holder work.
    #[must_use]
    pub fn hold(self) -> Duration {
        self.0 * 2 / 3
    }

    /// Between renewals, and between looking for a free slot.
    #[must_use]
    pub fn pause(self) -> Duration {
        self.0 / 4
    }

    /// So long is an answer waited for.
    #[must_use]
    pub fn patience(self) -> Duration {
        self.0 / 8
    }

    /// In a record.
    #[must_use]
    pub fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}
