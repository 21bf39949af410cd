//! What the engines of mounted file systems share: who is admitted, opening files by identity, the lock, what lies below the
//! device.
//!
//! Owns nothing that one file system alone has. Never decides what goes where.

pub(crate) mod admission;
pub(crate) mod backing;
pub(crate) mod files;
pub(crate) mod lock;

use crate::VolumeError;
use std::io::Error;
use std::path::{Path, PathBuf};

/// What the user calls the volume, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) PathBuf);

impl Named {
    /// Turns the kernel's answer to `act` into an error about the volume.
    pub(crate) fn failed<E: Into<Error>>(&self, act: &'static str) -> impl FnOnce(E) -> VolumeError + use<E> {
        let path = self.0.clone();
        move |source| VolumeError::Io { path, act, source: source.into() }
    }
}

/// Turns an answer of the system about `path` into an error.
pub(crate) fn io<E: Into<Error>>(path: &Path, act: &'static str) -> impl FnOnce(E) -> VolumeError {
    move |source| VolumeError::Io { path: path.to_owned(), act, source: source.into() }
}
