//! Advisory locks on files (flock).
//!
//! Owns their taking and their end. Never reads or writes the file.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;

/// An open file, for locking. Whatever lock it has ends when it is dropped, or when the process dies.
///
/// Closing the file would not end it: a child that is being started has the descriptor too, until its program begins.
#[derive(Debug)]
pub struct LockFile(File);

impl LockFile {
    /// Locks nothing yet.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(file)
    }

    /// Changes the lock. False when the lock of another open file forbids it, and the operation does not wait: then
    /// this one has no lock any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&self, operation: FlockOperation) -> Result<bool, Errno> {
        match rustix::fs::flock(&self.0, operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // If it fails, the lock ends with the last descriptor.
        _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

    #[test]
    fn a_lock_keeps_others_out_and_ends_with_its_value_although_a_child_still_has_the_descriptor() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| LockFile::new(named.reopen().unwrap()));
        assert!(first.set(WHOLE).unwrap());
        assert!(!second.set(WHOLE).unwrap());
        let of_a_child = first.file().try_clone().unwrap();
        drop(first);
        assert!(second.set(WHOLE).unwrap());
        drop(of_a_child);
    }
}
