//! What is usual on a device: how long requests take, and how often they come.

use super::requests::{Bounds, Times};

/// So many requests count as one usual time's experience: older ones are forgotten by halves.
pub(super) const MEMORY: f64 = 256.0;
/// So many requests are needed before their usual time is known.
pub(super) const KNOWN: f64 = 8.0;
/// How much of an estimated percentile one request changes.
const STEP: f64 = 0.05;
/// So many slow requests in a hundred define the percentile.
pub(super) const SLOW: f64 = 0.01;

/// The usual time of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usual {
    pub(super) requests: f64,
    /// Nanoseconds.
    pub(super) total: f64,
    /// The estimated 99th percentile; 0 while nothing is known.
    slow: f64,
    /// Requests that were late although they were alone.
    late: f64,
}

impl Usual {
    /// Nanoseconds; `None` while too little is known.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.requests >= KNOWN).then(|| self.total / self.requests)
    }

    /// The share of late requests.
    pub(super) fn late(&self) -> f64 {
        if self.requests > 0.0 { self.late / self.requests } else { 0.0 }
    }

    /// What is slow and late, if a request is late beyond `factor` times the percentile.
    pub(super) fn bounds(&self, factor: f64) -> Bounds {
        let late = if self.requests < KNOWN { u64::MAX } else { (self.slow * factor) as u64 };
        Bounds { slow: self.slow as u64, late }
    }

    pub(super) fn learn(&mut self, alone: Times) {
        if alone.requests == 0 {
            return;
        }
        let new = alone.requests as f64;
        let kept = 0.5f64.powf(new / MEMORY);
        self.requests = self.requests * kept + new;
        self.total = self.total * kept + alone.total as f64;
        self.late = self.late * kept + alone.late as f64;
        let mean = self.total / self.requests;
        if self.slow == 0.0 {
            self.slow = mean * 2.0;
        } else {
            // Rises by what a slow request is too much, and falls as much in all with ninety-nine others (Robbins and Monro).
            let (slow, others) =
                (alone.slow.min(alone.requests) as f64, alone.requests.saturating_sub(alone.slow) as f64);
            let change = STEP * (slow * (1.0 - SLOW) - others * SLOW);
            self.slow = (self.slow * change.clamp(-0.5, 1.0).exp()).max(mean);
        }
    }
}

/// How often something happens: over a moment, and over a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Arrivals {
    /// In the last moments.
    recent: f64,
    /// A second, over the last seconds.
    pub(super) rate: f64,
}

/// Over so long arrivals are averaged.
pub(super) const WHILE: f64 = 2.0;
/// More than so many times what was to be expected in a moment is a burst.
const BURST: f64 = 3.0;
/// A single request after silence counts as the beginning of a burst when fewer than this were to be expected.
const SINGLE: f64 = 0.5;
/// Of gaps between arrivals at random, one in a thousand is longer than so many average ones.
const GAP: f64 = 7.0;
/// After this time, in seconds, without a request nobody is there.
const LONGEST_SILENCE: f64 = 5.0;

impl Arrivals {
    pub(super) fn add(&mut self, time: f64, count: f64, moment: f64) {
        self.recent = self.recent * (-time / moment).exp() + count;
        let kept = (-time / WHILE).exp();
        self.rate = self.rate * kept + count / WHILE;
    }

    /// More than were to be expected.
    pub(super) fn is_burst(&self, moment: f64) -> bool {
        self.recent > BURST * self.rate * moment + SINGLE
    }

    /// How long nothing must come until nobody is there any more: of arrivals at random one gap in a thousand is longer.
    pub(super) fn silence(&self, least: f64) -> f64 {
        (GAP / self.rate.max(f64::MIN_POSITIVE)).clamp(least, LONGEST_SILENCE.max(least))
    }
}
