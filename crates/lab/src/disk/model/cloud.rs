//! A cloud volume: a limit of requests per second and one of bytes per second, behind a network.
//!
//! Each limit is a token bucket, stored as the moment at which it would be empty. A request takes its tokens, and is
//! complete when the slowest bucket has been refilled, but never sooner than the network allows. Without bursts the
//! buckets hold nothing, and n requests take n / limit.

use super::{Nanos, Rate, Request, Service};
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// Requests are counted by pieces of this size, as providers do.
const UNIT: u64 = 256 << 10;

/// What was rented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cloud {
    /// Requests a second that last.
    pub requests_per_second: u64,
    /// Bytes a second.
    pub rate: Rate,
    /// What the way there and back takes at least.
    pub latency: Nanos,
    /// By how much of itself the latency varies, in per cent, up or down.
    pub jitter_percent: u64,
    /// Requests that are saved up while there are fewer; 0 for none.
    pub burst_requests: u64,
    /// Requests a second while there are some left.
    pub burst_per_second: u64,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            requests_per_second: 3000,
            rate: Rate::megabytes(125),
            latency: Nanos::micros(500),
            jitter_percent: 10,
            burst_requests: 0,
            burst_per_second: 0,
        }
    }
}

impl Cloud {
    pub(super) fn describe(&self) -> String {
        let burst = match self.burst_requests {
            0 => String::new(),
            saved => format!(", bursts of {saved} at {}/s", self.burst_per_second),
        };
        format!(
            "cloud volume ({} requests/s, {} MB/s, {:.1} ms{burst})",
            self.requests_per_second,
            self.rate.0 / 1_000_000,
            self.latency.0 as f64 / 1e6
        )
    }
}

/// The volume at a moment.
#[derive(Debug)]
pub(super) struct Volume {
    cloud: Cloud,
    random: fastrand::Rng,
    /// When each bucket will have filled up to what was taken.
    lasting: Nanos,
    peak: Nanos,
    bytes: Nanos,
}

impl Volume {
    pub(super) fn new(cloud: Cloud, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { cloud, random, lasting: Nanos(0), peak: Nanos(0), bytes: Nanos(0) }
    }

    fn latency(&mut self) -> Nanos {
        let Cloud { latency, jitter_percent, .. } = self.cloud;
        let most = latency.0.saturating_mul(jitter_percent.min(100)) / 100;
        Nanos(latency.0 - most + self.random.u64(0..=most * 2))
    }
}

impl Service for Volume {
    fn service(&mut self, now: Nanos, request: &Request) -> Nanos {
        let Cloud { requests_per_second, rate, burst_requests, burst_per_second, .. } = self.cloud;
        let units = request.length.0.div_ceil(UNIT).max(1);
        let each = Nanos::each_of(requests_per_second);
        // A full bucket: as if the last tokens had been taken that long ago.
        let saved = Nanos(each.0.saturating_mul(burst_requests));
        self.lasting = self.lasting.max(now.since(saved)) + Nanos(each.0 * units);
        if burst_requests > 0 {
            self.peak = self.peak.max(now) + Nanos(Nanos::each_of(burst_per_second).0 * units);
        }
        self.bytes = self.bytes.max(now) + rate.time(Bytes(request.length.0));
        (now + self.latency()).max(self.lasting).max(self.peak).max(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;

    fn request(kib: u64) -> Request {
        Request { id: 0, access: Access::Read, at: Bytes(0), length: Bytes(kib << 10) }
    }

    fn volume(cloud: Cloud) -> Volume {
        Volume::new(cloud, 1)
    }

    #[test]
    fn many_small_requests_take_what_the_limit_of_requests_says() {
        let mut volume = volume(Cloud::default());
        let last = (0..6000).map(|_| volume.service(Nanos(0), &request(4))).max();
        assert_eq!(last, Some(Nanos(6000 * 333_333)));
    }

    #[test]
    fn large_requests_take_what_the_limit_of_bytes_says_and_count_by_pieces() {
        let mut bytes = volume(Cloud::default());
        let last = (0..100).map(|_| bytes.service(Nanos(0), &request(1024))).max();
        assert_eq!(last, Some(Nanos(100 * (1 << 20) * 8)));
        let fast = Cloud { rate: Rate::megabytes(100_000), ..Cloud::default() };
        let mut pieces = volume(fast);
        let last = (0..100).map(|_| pieces.service(Nanos(0), &request(1024))).max();
        assert_eq!(last, Some(Nanos(400 * 333_333)));
    }

    #[test]
    fn a_single_request_takes_the_latency() {
        let mut volume = volume(Cloud::default());
        for n in 0..1000 {
            let now = Nanos(n * 10_000_000);
            let took = volume.service(now, &request(4)).since(now);
            assert!((450_000..=550_000).contains(&took.0), "{took:?}");
        }
    }

    #[test]
    fn what_was_saved_up_is_served_at_the_rate_of_bursts_and_then_it_is_gone() {
        let burst = Cloud {
            requests_per_second: 100,
            burst_requests: 300,
            burst_per_second: 3000,
            jitter_percent: 0,
            ..Cloud::default()
        };
        let mut volume = volume(burst);
        let start = Nanos(3_600_000_000_000);
        let completions: Vec<u64> = (0..500).map(|_| volume.service(start, &request(4)).since(start).0).collect();
        // While requests come at 3000 a second, 100 more are earned each second: about 310 are served so.
        assert_eq!(completions[299], 300 * 333_333);
        assert_eq!(completions[499], (500 - 300) * 10_000_000);
        assert!(completions.is_sorted());
    }
}
