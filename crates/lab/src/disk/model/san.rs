//! A volume of a storage array that several hosts share: one queue for all of them.
//!
//! Each request waits for all earlier ones of all hosts. This is how one host notices another.

use super::{Nanos, Rate, Request, Service};
use serde::{Deserialize, Serialize};

/// What the array gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct San {
    /// Small requests a second.
    pub requests_per_second: u64,
    /// Bytes a second.
    pub rate: Rate,
    /// The way there and back, during which others are served.
    pub latency: Nanos,
}

impl Default for San {
    fn default() -> Self {
        Self { requests_per_second: 400, rate: Rate::megabytes(100), latency: Nanos::micros(1000) }
    }
}

impl San {
    pub(super) fn describe(&self) -> String {
        format!(
            "shared array ({} requests/s in one line, {} MB/s, {:.1} ms)",
            self.requests_per_second,
            self.rate.0 / 1_000_000,
            self.latency.0 as f64 / 1e6
        )
    }
}

/// The line at a moment.
#[derive(Debug)]
pub(super) struct Lun {
    san: San,
    free: Nanos,
}

impl Lun {
    pub(super) fn new(san: San) -> Self {
        Self { san, free: Nanos(0) }
    }
}

impl Service for Lun {
    fn service(&mut self, now: Nanos, request: &Request) -> Nanos {
        let time = self.san.rate.time(request.length).max(Nanos::each_of(self.san.requests_per_second));
        self.free = self.free.max(now) + time;
        self.free + self.san.latency
    }
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;
    use longrun_layout::Bytes;

    #[test]
    fn whoever_comes_waits_for_all_who_came_before() {
        let mut lun = Lun::new(San::default());
        let request = |at| Request { id: 0, access: Access::Write, at: Bytes(at), length: Bytes(4096) };
        assert_eq!(lun.service(Nanos(0), &request(0)), Nanos(3_500_000));
        // Another client, on its own part of the device.
        assert_eq!(lun.service(Nanos(100), &request(1 << 30)), Nanos(6_000_000));
        assert_eq!(lun.service(Nanos(1_000_000_000), &request(0)), Nanos(1_003_500_000));
        let large = Request { length: Bytes(1 << 20), ..request(0) };
        assert_eq!(lun.service(Nanos(2_000_000_000), &large), Nanos(2_000_000_000 + 10_485_760 + 1_000_000));
    }
}
