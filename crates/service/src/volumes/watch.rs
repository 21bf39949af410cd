//! Waiting for the table of mounts to change.

use longrun_prevention::Watched;
use longrun_volume::target::{Mount, parse_mountinfo};
use std::fs::{self, File};
use std::io;
use std::time::Duration;

const TABLE: &str = "/proc/self/mountinfo";

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
        Ok(Self { file: File::open(TABLE)? })
    }

    /// Waits until the table changes, at most for `timeout`; whether it did.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Ok(longrun_sys::wait_for_change(&self.file, timeout)?)
    }
}

/// The table as it is now.
///
/// # Errors
/// The kernel's.
pub fn read_mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mountinfo(&fs::read(TABLE)?))
}

/// Whether `mount` is what one gets at its mount point: not hidden below another one.
#[must_use]
pub fn is_visible(mount: &Mount) -> bool {
    Watched::at(mount).is_some_and(|watched| watched.open_root().is_ok())
}
