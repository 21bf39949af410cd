//! ext4: the raw scan, and the live primitives.
//!
//! Owns what the kernel can do for a mounted ext4 volume: who may be moved ([`admission`]), free space at chosen places
//! ([`balloon`]), and the exchange of a file's blocks with it ([`exchange`]). Never decides what goes where.

mod admission;
pub(crate) mod backing;
mod balloon;
mod exchange;
mod files;
mod one_file;
mod pipeline;
pub mod scan;
mod tuning;
mod volume;

pub(crate) use one_file::mend;
pub use volume::Ext4Volume;

use crate::VolumeError;
use longrun_sys::Errno;
use std::path::PathBuf;

/// What the user calls the volume, for errors.
#[derive(Clone, Debug)]
struct Named(PathBuf);

impl Named {
    /// Turns the kernel's answer to `act` into an error about the volume.
    fn failed(&self, act: &'static str) -> impl FnOnce(Errno) -> VolumeError + use<> {
        let path = self.0.clone();
        move |errno| VolumeError::Io { path, act, source: errno.into() }
    }
}
