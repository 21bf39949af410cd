//! Injected faults: errors, crashes and short results. Owns the count of operations, so that a test can fail the first,
//! the second, and so on until a run ends without a fault.

use crate::{SkipReason, VolumeError};
use fastrand::Rng;
use std::io;
use std::path::PathBuf;

/// How a primitive fails when its fault is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With an I/O error.
    Io,
    /// Primitives on one file skip it; the others do not fail.
    Skip(SkipReason),
}

/// The faults of a run. The default is none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Fail the primitive with this number, counted from 1.
    pub fail_at: Option<(u64, Failure)>,
    /// Cut the power at this point, counted from 1: before, within and after every primitive there is one.
    pub crash_at: Option<u64>,
    /// The percentage of captures that get only a part of the wanted space.
    pub partial_captures: u8,
    /// In so many of 100 exchanges fewer blocks are exchanged than asked.
    pub short_exchanges: u8,
    /// Between so many of 100 points the file system commits on its own.
    pub commits: u8,
}

/// Keeps count, and knows whether the power is off.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub faults: Faults,
    pub rng: Rng,
    primitives: u64,
    points: u64,
    crashed: bool,
    hit: bool,
}

impl Fate {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, rng: Rng::with_seed(seed), primitives: 0, points: 0, crashed: false, hit: false }
    }

    /// Counts a primitive; `Some` when it must fail.
    pub(super) fn primitive(&mut self) -> Option<Failure> {
        self.primitives += 1;
        let (at, failure) = self.faults.fail_at?;
        let due = at == self.primitives;
        self.hit |= due;
        due.then_some(failure)
    }

    /// Counts a point where the power may go.
    pub(super) fn point(&mut self) -> Result<(), VolumeError> {
        self.points += 1;
        self.crashed |= self.faults.crash_at == Some(self.points);
        self.hit |= self.crashed;
        if self.crashed { Err(io_error("use the volume", "the power is off")) } else { Ok(()) }
    }

    /// Throws a dice of 100 sides.
    pub(super) fn chance(&mut self, percent: u8) -> bool {
        percent > 0 && self.rng.u8(..100) < percent
    }

    pub(super) fn crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn hit(&self) -> bool {
        self.hit
    }
}

pub(super) fn io_error(act: &'static str, detail: &'static str) -> VolumeError {
    VolumeError::Io { path: PathBuf::from("sim"), act, source: io::Error::other(detail) }
}
