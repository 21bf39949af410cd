//! Waiting for the table of mounts to change.

use longrun_prevention::Watched;
use longrun_volume::target::{MOUNT_TABLE, Mount};
use std::fs::File;
use std::io;
use std::time::Duration;

/// The kernel's table of mounts, of our own name space.
pub struct MountTable {
    file: File,
}

impl MountTable {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        Ok(Self { file: File::open(MOUNT_TABLE)? })
    }

    /// Waits until the table changes, at most for `timeout`; whether it did.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Ok(longrun_sys::wait_for_change(&self.file, timeout)?)
    }
}

/// Whether `mount` is what one gets at its mount point: not hidden below another one.
#[must_use]
pub fn is_visible(mount: &Mount) -> bool {
    Watched::at(mount).is_some_and(|watched| watched.open_root().is_ok())
}
