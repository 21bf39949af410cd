//! What the engines of mounted file systems share: admission, opening files by identity, the lock, the devices below,
//! and repeated reading of inconsistent data.
//!
//! Owns nothing that only one file system has. Never decides where data goes.

pub(crate) mod admission;
pub(crate) mod again;
pub(crate) mod backing;
pub(crate) mod files;
mod lock;
pub(crate) mod lock_place;
pub(crate) mod others;
pub(crate) mod reading;

use longrun_engine::VolumeError;
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
