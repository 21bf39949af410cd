//! Waits for changes of the mount table.

use longrun_prevention::Watched;
use longrun_sys::{Bell, MOUNT_TABLE, Mount};
use std::fs::File;
use std::io;
use std::time::Duration;

/// The kernel's mount table of our own mount namespace.
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

    /// Waits until the table changes or `bell` rings, at most for `timeout`; whether it changed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, bell: &Bell, timeout: Duration) -> io::Result<bool> {
        Ok(longrun_sys::wait_for_change(&self.file, bell, timeout)?)
    }
}

/// Whether `mount` is visible at its mount point, and not hidden below another mount.
#[must_use]
pub fn is_visible(mount: &Mount) -> bool {
    Watched::at(mount).is_some_and(|watched| watched.open_root().is_ok())
}
