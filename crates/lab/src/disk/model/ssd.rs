//! A flash disk: a controller that every request passes, parallel channels, and one link to the host.
//!
//! A request is divided into stripes, each of which belongs to a channel. Contiguous data is spread over the channels.
//! Scattered data costs the controller more requests, and several of them may need the same channel.

use super::{Access, Nanos, Rate, Request, Service};
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// What it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssd {
    /// Channels.
    pub channels: u64,
    /// What lies on one channel before the next follows.
    pub stripe: Bytes,
    /// What a request costs the controller.
    pub request: Nanos,
    /// Until a channel has the first byte of a stripe.
    pub read: Nanos,
    /// Until a channel has taken a stripe into its buffer.
    pub write: Nanos,
    /// Bytes a second of one channel.
    pub channel_rate: Rate,
    /// Bytes a second of the link.
    pub link_rate: Rate,
}

impl Default for Ssd {
    fn default() -> Self {
        Self {
            channels: 8,
            stripe: Bytes(32 << 10),
            request: Nanos::micros(40),
            read: Nanos::micros(70),
            write: Nanos::micros(30),
            channel_rate: Rate::megabytes(120),
            link_rate: Rate::megabytes(520),
        }
    }
}

impl Ssd {
    pub(super) fn describe(&self) -> String {
        format!(
            "SSD ({} channels, {} µs a request, {} MB/s)",
            self.channels,
            self.request.0 / 1000,
            self.link_rate.0 / 1_000_000
        )
    }
}

/// The disk at a moment.
#[derive(Debug)]
pub(super) struct Flash {
    ssd: Ssd,
    controller: Nanos,
    link: Nanos,
    channels: Vec<Nanos>,
}

impl Flash {
    pub(super) fn new(ssd: Ssd) -> Self {
        let channels = vec![Nanos(0); usize::try_from(ssd.channels.max(1)).unwrap_or(1)];
        Self { ssd, controller: Nanos(0), link: Nanos(0), channels }
    }
}

impl Service for Flash {
    fn service(&mut self, now: Nanos, request: &Request) -> Nanos {
        let Ssd { stripe, request: cost, read, write, channel_rate, link_rate, .. } = self.ssd;
        let stripe = stripe.0.max(1);
        self.controller = self.controller.max(now) + cost;
        let first = match request.access {
            Access::Read => read,
            Access::Write => write,
        };
        let (mut at, end, mut done) = (request.at.0, request.end().0, self.controller);
        while at < end {
            let until = (at / stripe + 1).saturating_mul(stripe).min(end);
            let number = (at / stripe) % self.channels.len() as u64;
            if let Some(channel) = usize::try_from(number).ok().and_then(|n| self.channels.get_mut(n)) {
                *channel = (*channel).max(self.controller) + first + channel_rate.time(Bytes(until - at));
                done = done.max(*channel);
            }
            at = until;
        }
        self.link = self.link.max(now) + link_rate.time(request.length);
        done.max(self.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(at: u64, length: u64) -> Request {
        Request { id: 0, access: Access::Read, at: Bytes(at), length: Bytes(length) }
    }

    #[test]
    fn scattered_small_requests_cost_the_controller_and_meet_on_channels() {
        let ssd = Ssd::default();
        let mut flash = Flash::new(ssd);
        let last = (0..1000).map(|n| flash.service(Nanos(0), &read(n * 32768, 4096))).max().unwrap();
        assert_eq!(last.0 / 1_000_000, 40, "spread over all channels, the controller is what limits: {last:?}");
        let mut flash = Flash::new(ssd);
        let met = (0..1000).map(|n| flash.service(Nanos(0), &read(n * 32768 * 8, 4096))).max().unwrap();
        assert!(met.0 > last.0 * 2, "all on one channel: {met:?}");
    }

    #[test]
    fn what_lies_together_comes_at_the_rate_of_the_link() {
        let mut flash = Flash::new(Ssd::default());
        let last = (0..100).map(|n| flash.service(Nanos(0), &read(n << 20, 1 << 20))).max().unwrap();
        let link = Rate::megabytes(520).time(Bytes(100 << 20));
        assert!(last.0 + 1000 > link.0 && last.0 < link.0 + link.0 / 10, "{last:?} against {link:?}");
    }

    #[test]
    fn one_request_alone_takes_its_own_time() {
        let mut flash = Flash::new(Ssd::default());
        let now = Nanos(5_000_000);
        let took = flash.service(now, &read(0, 4096)).since(now);
        assert_eq!(took, Nanos::micros(110) + Rate::megabytes(120).time(Bytes(4096)));
    }
}
