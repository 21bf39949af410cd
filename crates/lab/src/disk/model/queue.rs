//! The queue of a disk: which request is served next, and which are complete.

use super::hdd::Arm;
use super::{Nanos, Request, Service};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub id: u64,
    /// When it came.
    pub arrived: Nanos,
    /// When it was done.
    pub at: Nanos,
}

#[derive(Debug)]
enum Kind {
    /// Everything is taken in hand when it comes.
    AtOnce(Box<dyn Service>),
    /// One after the other, in an order that is found when the disk is free.
    OneArmed(Box<OneArmed>),
}

/// A disk with its line. Times that it is given must never go back.
#[derive(Debug)]
pub struct Device {
    kind: Kind,
    /// Known, and not taken yet: when done, the order of coming, which, when it came.
    known: BinaryHeap<Reverse<(Nanos, u64, u64, Nanos)>>,
    arrivals: u64,
}

impl Device {
    pub(super) fn at_once(service: Box<dyn Service>) -> Self {
        Self { kind: Kind::AtOnce(service), known: BinaryHeap::new(), arrivals: 0 }
    }

    pub(super) fn one_armed(arm: Arm) -> Self {
        let line = OneArmed { arm, waiting: VecDeque::new(), free: Nanos(0) };
        Self { kind: Kind::OneArmed(Box::new(line)), known: BinaryHeap::new(), arrivals: 0 }
    }

    /// A request comes at `now`.
    pub fn submit(&mut self, now: Nanos, request: Request) {
        self.arrivals += 1;
        match &mut self.kind {
            Kind::AtOnce(service) => {
                let at = service.service(now, &request);
                self.known.push(Reverse((at, self.arrivals, request.id, now)));
            }
            Kind::OneArmed(line) => {
                // What the disk did until now, it did not knowing of this one.
                line.serve(Nanos(now.0.saturating_sub(1)), &mut self.known);
                line.waiting.push_back(Waiting { order: self.arrivals, arrived: now, request, overtaken: 0 });
                line.serve(now, &mut self.known);
            }
        }
    }

    /// When to look again: something will be done then, or the disk will be free for who waits.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        let done = self.known.peek().map(|Reverse((at, ..))| *at);
        let free = match &self.kind {
            Kind::OneArmed(line) if !line.waiting.is_empty() => Some(line.free),
            _ => None,
        };
        done.into_iter().chain(free).min()
    }

    /// What is done by `now`, in the order of being done.
    pub fn take_done(&mut self, now: Nanos) -> Vec<Completion> {
        if let Kind::OneArmed(line) = &mut self.kind {
            line.serve(now, &mut self.known);
        }
        let mut done = Vec::new();
        while let Some(&Reverse((at, _, id, arrived))) = self.known.peek().filter(|next| next.0.0 <= now) {
            self.known.pop();
            done.push(Completion { id, arrived, at });
        }
        done
    }
}

#[derive(Debug)]
struct Waiting {
    order: u64,
    arrived: Nanos,
    request: Request,
    /// By how many who came later.
    overtaken: u32,
}

/// A disk that does one thing at a time.
#[derive(Debug)]
struct OneArmed {
    arm: Arm,
    /// In the order of coming.
    waiting: VecDeque<Waiting>,
    /// When it has done what it was given.
    free: Nanos,
}

impl OneArmed {
    /// Begins whatever is begun by `now`.
    fn serve(&mut self, now: Nanos, known: &mut BinaryHeap<Reverse<(Nanos, u64, u64, Nanos)>>) {
        while let Some(first) = self.waiting.front() {
            let start = self.free.max(first.arrived);
            if start > now {
                return;
            }
            let Some(next) = self.choose(start).and_then(|at| {
                self.waiting.iter_mut().take(at).for_each(|earlier| earlier.overtaken += 1);
                self.waiting.remove(at)
            }) else {
                return;
            };
            let served = self.arm.serve(start, &next.request);
            self.free = served.free;
            known.push(Reverse((served.done, next.order, next.request.id, next.arrived)));
        }
    }

    /// The one that the arm reaches first, of those that it knows of; but first who has been overtaken too often, so that
    /// somebody who is always near starves nobody. (A bound on the time would serve a long line in the order of coming.)
    fn choose(&self, start: Nanos) -> Option<usize> {
        let hdd = self.arm.hdd();
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.overtaken >= hdd.patience) {
            return Some(at);
        }
        let known = self.waiting.iter().take(hdd.queue_depth.max(1)).enumerate();
        let here = known.take_while(|(_, waiting)| waiting.arrived <= start);
        here.min_by_key(|(at, waiting)| (self.arm.reach(start, &waiting.request), *at)).map(|(at, _)| at)
    }
}
