//! A hard disk with one arm: it seeks, waits for the platter, and reads or writes. It caches the data that it passes
//! on the way.
//!
//! The stroke is scaled to the size: the ends of a volume are as far apart as the ends of a whole disk, however small
//! the volume is. There is no write cache: a complete request is on the platter.

use super::{Access, Nanos, Rate, Request};
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The number of zones of the platter, each with its own rate.
const ZONES: u64 = 16;
/// A place that has passed by less than this is still caught: controllers begin in the gap before a sector.
const CATCH: Nanos = Nanos::micros(20);

/// What it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hdd {
    /// Turns a minute.
    pub turns_per_minute: u64,
    /// Bytes a second at the beginning, where tracks are longest, and at the end.
    pub outer_rate: Rate,
    /// At the end.
    pub inner_rate: Rate,
    /// A seek to the next track.
    pub shortest_seek: Nanos,
    /// A seek over a third of the stroke: the average of random places.
    pub average_seek: Nanos,
    /// A seek over the whole stroke.
    pub longest_seek: Nanos,
    /// What a command costs besides.
    pub command: Nanos,
    /// How many requests the disk knows of at a time and chooses from.
    pub queue_depth: usize,
    /// Who has been overtaken so often by others who came later is served next.
    pub patience: u32,
    /// How far it reads ahead while there are no requests.
    pub ahead: Bytes,
    /// How many streams it remembers the last of.
    pub segments: usize,
}

impl Default for Hdd {
    fn default() -> Self {
        Self {
            turns_per_minute: 7200,
            outer_rate: Rate::megabytes(160),
            inner_rate: Rate::megabytes(80),
            shortest_seek: Nanos::micros(800),
            average_seek: Nanos::micros(8500),
            longest_seek: Nanos::micros(16_000),
            command: Nanos::micros(100),
            queue_depth: 32,
            patience: 12,
            ahead: Bytes(1 << 20),
            segments: 16,
        }
    }
}

impl Hdd {
    pub(super) fn describe(&self) -> String {
        format!(
            "hard disk ({} rpm, {:.1} ms average seek, {}–{} MB/s)",
            self.turns_per_minute,
            self.average_seek.0 as f64 / 1e6,
            self.inner_rate.0 / 1_000_000,
            self.outer_rate.0 / 1_000_000
        )
    }

    /// One turn.
    #[must_use]
    pub fn turn(&self) -> Nanos {
        Nanos(60_000_000_000 / self.turns_per_minute.max(1))
    }

    /// A seek over a part of the stroke, in millionths: the arm speeds up and slows down over short distances, and
    /// goes on at its speed over long ones.
    #[must_use]
    pub fn seek(&self, millionths: u64) -> Nanos {
        let part = millionths.min(1_000_000) as f64 / 1e6;
        let [shortest, average, longest] =
            [self.shortest_seek, self.average_seek, self.longest_seek].map(|n| n.0 as f64);
        let nanos = if part * 3.0 <= 1.0 {
            shortest + (average - shortest) * (part * 3.0).sqrt()
        } else {
            average + (longest - average) * (part - 1.0 / 3.0) * 1.5
        };
        Nanos(nanos as u64)
    }
}

/// When the arm is free for the next request, and when the host has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub free: Nanos,
    pub done: Nanos,
}

/// A stretch of the disk that is in its memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: Bytes,
    end: Bytes,
}

impl Segment {
    /// Whether a request begins in it or where it ends.
    fn takes(&self, request: &Request) -> bool {
        self.start <= request.at && request.at <= self.end
    }
}

/// The disk at a moment.
#[derive(Debug)]
pub(super) struct Arm {
    hdd: Hdd,
    capacity: Bytes,
    /// Where the platter stood at the beginning.
    phase: Nanos,
    /// Behind the last byte that was asked for: there the arm was at `since`.
    head: Bytes,
    since: Nanos,
    /// Where the stream that it reads on with begins; none after a write.
    reading: Option<Bytes>,
    /// Other streams, the latest first.
    segments: VecDeque<Segment>,
}

impl Arm {
    pub(super) fn new(hdd: Hdd, capacity: Bytes, seed: u64) -> Self {
        let phase = Nanos(fastrand::Rng::with_seed(seed).u64(0..hdd.turn().0.max(1)));
        let capacity = Bytes(capacity.0.max(ZONES));
        Self { hdd, capacity, phase, head: Bytes(0), since: Nanos(0), reading: None, segments: VecDeque::new() }
    }

    pub(super) fn hdd(&self) -> &Hdd {
        &self.hdd
    }

    fn zone(&self, at: Bytes) -> (u64, Rate) {
        let size = self.capacity.0.div_ceil(ZONES);
        let zone = (at.0 / size).min(ZONES - 1);
        let [outer, inner] = [self.hdd.outer_rate, self.hdd.inner_rate].map(|rate| rate.0);
        (zone * size, Rate(outer - outer.saturating_sub(inner) * zone / (ZONES - 1)))
    }

    /// From a moment at which the arm stands at `from` until the first byte at `to` passes below it.
    fn position(&self, now: Nanos, from: Bytes, to: Bytes) -> Nanos {
        let (begin, rate) = self.zone(to);
        let turn = self.hdd.turn();
        let distance = from.0.abs_diff(to.0);
        let seek = match distance {
            // The same track: only the platter has to turn.
            near if near < rate.bytes(turn).0 => Nanos(0),
            far => {
                let millionths = u128::from(far) * 1_000_000 / u128::from(self.capacity.0);
                self.hdd.seek(u64::try_from(millionths).unwrap_or(u64::MAX))
            }
        };
        // Tracks are laid out so that whoever reads on meets the next one just in time: the angle goes on and on.
        let angle = rate.time(Bytes(to.0.saturating_sub(begin))).0 % turn.0;
        let platter = (now + seek + self.phase).0 % turn.0;
        let wait = (angle + turn.0 - platter) % turn.0;
        seek + if wait + CATCH.0 > turn.0 { Nanos(0) } else { Nanos(wait) }
    }

    /// How far it has read ahead by `now`.
    fn ahead(&self, now: Nanos) -> Bytes {
        let (_, rate) = self.zone(self.head);
        let read = rate.bytes(now.since(self.since)).min(self.hdd.ahead);
        Bytes((self.head + read).0.min(self.capacity.0))
    }

    /// What is in memory of the stream that it reads on with.
    fn stream(&self, now: Nanos) -> Option<Segment> {
        self.reading.map(|start| Segment { start, end: self.ahead(now) })
    }

    /// How long until the first byte that is not in memory passes below the arm.
    pub(super) fn reach(&self, now: Nanos, request: &Request) -> Nanos {
        let known = self.stream(now).into_iter().chain(self.segments.iter().copied());
        let here = self.stream(now).map_or(self.head, |stream| stream.end);
        match request.access {
            Access::Read => match known.filter(|segment| segment.takes(request)).map(|segment| segment.end).max() {
                Some(end) if end >= request.end() => Nanos(0),
                Some(end) => self.position(now, here, end),
                None => self.position(now, here, request.at),
            },
            Access::Write => self.position(now, here, request.at),
        }
    }

    /// Serves a request, beginning at `now`.
    pub(super) fn serve(&mut self, now: Nanos, request: &Request) -> Served {
        if request.access == Access::Read {
            if let Some(stream) = self.stream(now).filter(|stream| stream.takes(request)) {
                return self.read_on(now, request, stream);
            }
            if let Some(at) = self.segments.iter().position(|s| s.takes(request) && s.end >= request.end()) {
                // The latest first; the arm stays where it is.
                if let Some(segment) = self.segments.remove(at) {
                    self.segments.push_front(segment);
                }
                return Served { free: now, done: now + self.hdd.command };
            }
        }
        let here = self.leave(now);
        let begin = match request.access {
            Access::Write => {
                self.segments.retain(|s| s.end <= request.at || s.start >= request.end());
                request.at
            }
            // The beginning may be in memory.
            Access::Read => {
                let known = self.segments.iter().filter(|s| s.takes(request)).map(|s| s.end);
                known.max().unwrap_or(request.at)
            }
        };
        let (_, rate) = self.zone(begin);
        let end = now + self.position(now, here, begin) + rate.time(Bytes(request.end().0.saturating_sub(begin.0)));
        (self.head, self.since) = (request.end(), end);
        self.reading = (request.access == Access::Read).then_some(request.at);
        Served { free: end, done: end + self.hdd.command }
    }

    /// The arm is on its way there already, or has been.
    fn read_on(&mut self, now: Nanos, request: &Request, stream: Segment) -> Served {
        let (_, rate) = self.zone(self.head);
        let end = request.end();
        let reached = if end <= self.head {
            now
        } else if stream.end < Bytes(self.head.0 + self.hdd.ahead.0) {
            // It has not stopped since.
            now.max(self.since + rate.time(Bytes(end.0 - self.head.0)))
        } else if end <= stream.end {
            now
        } else {
            // It stopped when its memory was full, and the platter turns on.
            now + self.position(now, stream.end, stream.end) + rate.time(Bytes(end.0 - stream.end.0))
        };
        // From now on it reads ahead of this one.
        if end > stream.end {
            (self.head, self.since) = (end, reached);
        } else if end > self.head {
            let still = now.since(rate.time(Bytes(stream.end.0 - end.0)));
            (self.head, self.since) = (end, still);
        }
        let oldest = end.0.saturating_sub(self.hdd.ahead.0 * 2);
        self.reading = Some(Bytes(stream.start.0.max(oldest)));
        Served { free: reached, done: reached + self.hdd.command }
    }

    /// Stops reading on, and remembers the stream; where the arm is.
    fn leave(&mut self, now: Nanos) -> Bytes {
        let Some(stream) = self.stream(now) else { return self.head };
        self.reading = None;
        self.segments.push_front(stream);
        self.segments.truncate(self.hdd.segments);
        stream.end
    }
}
