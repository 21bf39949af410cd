//! Writes files again on a mounted XFS or btrfs: the kernel's side of the engine's sequence
//! ([`longrun_engine::share`]).
//!
//! Owns the opening and examination of the files, the blocks of copies until the files have taken them, and the floor
//! of free space. Never writes to a user's file.

mod donor;
mod extents;
mod kernel;
mod subject;

pub(crate) use donor::{Beside, Floor};
pub(crate) use extents::{Sharers, Survey};
pub(crate) use kernel::{Unit, rewrite};
pub(crate) use subject::{Subject, open};

use crate::mounted::io;
use longrun_engine::VolumeError;
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
