//! A lock file, so that only one process at a time opens the database.
//!
//! It is needed in addition to SQLite's own locks: an exclusive lock is taken in two steps, and two processes that have
//! both taken the first step wait for each other until both give up.

use super::{PATIENCE, with_suffix};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Holds the lock file until it is dropped. Advisory: a process that cannot create the file continues without it.
#[derive(Debug)]
pub(super) struct Turn(Option<File>);

impl Turn {
    /// Waits for the lock of the database at `path`. After [`PATIENCE`] it returns anyway, and SQLite's own locks decide.
    pub(super) fn take(path: &Path) -> Self {
        let name = with_suffix(path, ".lock");
        // A reader creates no lock file where there is no database.
        let options = OpenOptions::new().write(true).create(path.exists()).mode(0o640).open(name);
        let Ok(file) = options else { return Self(None) };
        let until = Instant::now() + PATIENCE;
        while file.try_lock().is_err() {
            if Instant::now() >= until {
                return Self(None);
            }
            thread::sleep(LOOK_AGAIN);
        }
        Self(Some(file))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing the file would not end the lock while a child that is being started has the descriptor too.
        _ = self.0.as_ref().map(File::unlock);
    }
}
