//! What the engines of mounted file systems share: who is admitted, opening files by identity, the lock, what lies below the
//! device, what a scan has to read twice.
//!
//! Owns nothing that one file system alone has. Never decides what goes where.

pub(crate) mod admission;
pub(crate) mod again;
pub(crate) mod backing;
pub(crate) mod files;
pub(crate) mod lock;
pub(crate) mod reading;

use crate::VolumeError;
use std::io::Error;
use std::path::{Path, PathBuf};

/// What the user calls the volume, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) PathBuf);

impl Named {
    /// Turns the kernel's answer to `act` into an error about the volume.
    pub(crate) fn failed<E: Into<Error>>(&self, act: &'static str) -> impl FnOnce(E) -> VolumeError + use<E> {
        io(&self.0, act)
    }
}

/// Turns an answer of the system about `path` into an error.
pub(crate) fn io<E: Into<Error>>(path: &Path, act: &'static str) -> impl FnOnce(E) -> VolumeError + use<E> {
    let path = path.to_owned();
    move |source| VolumeError::Io { path, act, source: source.into() }
}
