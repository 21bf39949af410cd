//! What is promised to others, and what came of it.

use crate::{MinProgress, Pace};
use serde::{Deserialize, Serialize};

/// What others are promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// By what share of their usual time the requests of others may become slower, on average.
    pub mean: f64,
    /// Later than the usual 99th percentile by this factor, a request is late: one in a hundred may be.
    pub late: f64,
    /// The share of the time that we work in any case.
    pub least: MinProgress,
}

impl Promise {
    /// What a pace promises; `None` for one that does not give way. The mean is less than what the documentation
    /// promises (3 and 10 per cent), because the account is settled after the fact.
    #[must_use]
    pub fn of(pace: Pace) -> Option<Self> {
        let least = MinProgress::default();
        match pace {
            Pace::Invisible => Some(Self { mean: 0.02, late: 1.1, least }),
            Pace::Balanced => Some(Self { mean: 0.08, late: 1.3, least }),
            Pace::Fast => None,
        }
    }
}

/// What came of an account so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Requests of others that were completed while there was work for us.
    pub requests: u64,
    /// Of these, those that met our work.
    pub met: u64,
    /// Their usual time in all, in seconds.
    pub usual_seconds: f64,
    /// How much longer than usual those that met our work took, in seconds.
    pub charged_seconds: f64,
    /// How long others may still wait for us at present, in seconds; negative when they have waited too long.
    pub credit_seconds: f64,
}

impl Balance {
    /// By what share the requests of others became slower, on average; `None` when there was none.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        (self.usual_seconds > 0.0).then(|| self.charged_seconds.max(0.0) / self.usual_seconds)
    }

    /// Of several devices together; the least credit.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            met: self.met + other.met,
            usual_seconds: self.usual_seconds + other.usual_seconds,
            charged_seconds: self.charged_seconds + other.charged_seconds,
            credit_seconds: self.credit_seconds.min(other.credit_seconds),
        }
    }
}
