//! Files written anew: a copy is made in one new place, the kernel compares it with the file and gives it to the file in
//! place of its blocks. What several files share they share afterwards. For XFS and btrfs.
//!
//! Owns the order: check, allocate, copy, and only then have the kernel compare and share, range by range. Never writes to a
//! user's file: where its bytes are no longer those of the copy, nothing happens to it.

mod call;
mod donor;
mod extents;
pub(crate) mod unit;
mod work;

pub(crate) use donor::Floor;
pub(crate) use extents::{Sharers, Survey};
pub(crate) use unit::are_worth_taking;
pub(crate) use work::{Durable, Ended, MOVED_AT_ONCE, Request, Subject, open, rewrite};

use crate::live::io;
use crate::{SkipReason, VolumeError};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;

/// A mounted volume.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its root directory, or that of whatever is mounted of it.
    pub root: &'a File,
    /// Where it is mounted.
    pub point: &'a Path,
}

impl Place<'_> {
    /// Turns an answer of the system to `act` into an error about the volume.
    pub(crate) fn failed<E: Into<std::io::Error>>(self, act: &'static str) -> impl FnOnce(E) -> VolumeError {
        io(self.point, act)
    }
}

/// Why a file was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftReason {
    /// Other files or snapshots share its blocks: they would not any more.
    Shared,
    /// It is stored compressed.
    Compressed,
    /// The free space has no place where it would lie better.
    NoGain,
    /// Its fragments are so long that one less is not worth moving them.
    WholeEnough,
    /// Others might need the free space.
    LowSpace,
    /// It is larger than what may be moved.
    Budget,
    /// The caller asked to stop.
    Cancelled,
    /// Another optimizer works on the volume.
    OtherOptimizer,
    /// As for any file that an optimizer leaves alone.
    #[serde(untagged)]
    Skipped(SkipReason),
}
