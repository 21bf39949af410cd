//! What the kernel's side tells of requests, and what it is told.

use std::time::Duration;

/// Kinds of requests, as the kernel's side tells them apart: by operation and size.
pub(crate) const KINDS: usize = SYNC + SIZES;
/// Of each operation: reading, writing, and the file system's own writing.
pub(super) const SIZES: usize = 3;
/// No request of a device, but the time that a process waits until a file is durable. On ext4 the journal then writes what
/// we changed in the same transaction, too.
pub const SYNC: usize = 3 * SIZES;

/// Completed requests of others of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub requests: u64,
    /// How long they took together, in nanoseconds.
    pub total: u64,
    /// Requests that took longer than the slow bound.
    pub slow: u64,
    /// Requests that took longer than the late bound.
    pub late: u64,
}

impl Times {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            total: self.total.saturating_sub(earlier.total),
            slow: self.slow.saturating_sub(earlier.slow),
            late: self.late.saturating_sub(earlier.late),
        }
    }
}

/// The state of our work, as the kernel's side has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It rests, for a reason that has nothing to do with the arrival of requests.
    Rests = 0,
    /// A piece is under way.
    UnderWay = 1,
    /// It waits because others have just made a request.
    GivesWay = 2,
}

/// The completed requests of others of one kind, apart by the state of our work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Made while it rested.
    pub alone: Times,
    /// That met it.
    pub met: Times,
    /// Made while it gave way.
    pub between: Times,
    /// The first after it: the arm of a disk is elsewhere then.
    pub after: Times,
}

impl Completed {
    pub(super) fn requests(&self) -> u64 {
        self.alone.requests + self.met.requests + self.between.requests + self.after.requests
    }
}

/// What was seen of others on a device since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// How many they made.
    pub asked: u64,
    /// The time since the last of them.
    pub since_last: Duration,
    /// How many were completed, by kind.
    pub completed: [Completed; KINDS],
    /// Requests of ours that were completed.
    pub own: u64,
    /// The squares of how long these took, added up, in square seconds.
    pub own_squares: f64,
    /// The share of the written bytes that was not ours, from 0 to 1: kernel threads write for others and for us.
    pub foreign_writes: f64,
}

/// Bounds of the times of one kind, in nanoseconds, that the kernel's side compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The usual 99th percentile.
    pub slow: u64,
    /// Beyond this a request is late.
    pub late: u64,
}
