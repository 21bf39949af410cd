//! Writes the log: everything so far becomes durable.
//!
//! Never touches a user's file.

use longrun_layout::Bytes;
use longrun_sys::Errno;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;

/// A file without a name and without blocks. The log keeps the order of changes: when a change of this file is durable,
/// every change before it is, whichever file it was made to. Unlike syncing the volume this does not write what others
/// have in memory.
#[derive(Debug)]
pub(super) struct Log {
    marker: OwnedFd,
    mark: Cell<u64>,
}

impl Log {
    pub(super) fn open(root: &File) -> Result<Self, Errno> {
        Ok(Self { marker: longrun_sys::temporary_file(root)?, mark: Cell::new(0) })
    }

    /// Returns when every change so far is durable; data that these changes refer to has been written before.
    pub(super) fn write(&self) -> Result<(), Errno> {
        self.mark.set(self.mark.get() + 1);
        // Another length than before: syncing a file that has not changed does nothing.
        longrun_sys::set_length(&self.marker, Bytes(1 + self.mark.get() % 2))?;
        longrun_sys::sync_file(&self.marker)
    }
}
