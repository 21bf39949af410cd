//! Waits for changes of the mount table.

use super::Sight;
use longrun_prevention::Watched;
use longrun_sys::{Bell, Errno, MOUNT_TABLE, Mount};
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

/// What is seen of `mount` at its mount point.
#[must_use]
pub fn sight(mount: &Mount) -> Sight {
    match Watched::at(mount).map(|watched| watched.open_root()) {
        Some(Ok(_)) => Sight::Visible,
        Some(Err(error)) if !is_out_of_reach(&error) => Sight::Broken,
        _ => Sight::Hidden,
    }
}

/// Whether opening a volume failed because its mount point does not lead to it: something else lies there, or nothing. Other
/// errors are those of the volume, and of what the service is permitted.
#[must_use]
pub fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::STALE | Errno::LOOP | Errno::NOTDIR | Errno::NOENT))
}
