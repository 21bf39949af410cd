//! One at a time: who opens the database waits here for those who have it open.
//!
//! Why beside SQLite's own locks: whoever has the database for himself takes its lock in two steps, and two who have both
//! taken the first wait for each other until both give up.

use super::{PATIENCE, with_suffix};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A turn with the database, until it is dropped. Advisory: who may not make the lock's file goes without.
#[derive(Debug)]
pub(super) struct Turn(#[allow(dead_code, reason = "its lock ends with it")] Option<File>);

impl Turn {
    /// Waits for a turn with the database at `path`; after a while SQLite's own locks decide.
    pub(super) fn take(path: &Path) -> Self {
        let name = with_suffix(path, ".lock");
        // Nothing is begun where there is no database and only a reader comes.
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
