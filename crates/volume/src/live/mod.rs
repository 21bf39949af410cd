//! What the engines of mounted file systems share: who is admitted, opening files by identity, the lock, what lies below the
//! device.
//!
//! Owns nothing that one file system alone has. Never decides what goes where.

pub(crate) mod admission;
pub(crate) mod backing;
pub(crate) mod files;
pub(crate) mod lock;

use crate::VolumeError;
use longrun_sys::Errno;
use std::path::{Path, PathBuf};

/// What the user calls the volume, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) PathBuf);

impl Named {
    /// Turns the kernel's answer to `act` into an error about the volume.
    pub(crate) fn failed(&self, act: &'static str) -> impl FnOnce(Errno) -> VolumeError + use<> {
        let path = self.0.clone();
        move |errno| VolumeError::Io { path, act, source: errno.into() }
    }
}

/// Turns an answer of the system about `path` into an error.
pub(crate) fn io<'a>(path: &'a Path, act: &'static str) -> impl FnOnce(std::io::Error) -> VolumeError + use<'a> {
    move |source| VolumeError::Io { path: path.to_owned(), act, source }
}
