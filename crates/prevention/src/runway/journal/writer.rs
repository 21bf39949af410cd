//! The thread that writes the journal. No other thread waits for its disk.
//!
//! Owns the writing of lines to the device. Never holds the lock of the state while it writes.

use super::super::core::before_others;
use super::record::{self, Record};
use super::{COLLECT, Entries, NAME, Shared, State, fail};
use longrun_sys::{sync_file, sync_file_data};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

impl Shared {
    /// Writes what is to be written, until the end.
    pub(super) fn write(&self) {
        // Who grants a runway waits for this.
        before_others();
        let mut state = self.lock();
        loop {
            while !state.has_work() {
                if state.ended {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.waiting > 0 {
                state = self.collect(state);
            }
            state.writing = Some(Instant::now());
            state = if state.anew { self.write_all_anew(state) } else { self.write_pending(state) };
            state.writing = None;
            self.written.notify_all();
        }
    }

    fn write_pending<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (text, target, sync) = (std::mem::take(&mut state.pending), state.appended, state.waiting > 0);
        let file = Arc::clone(&state.file);
        drop(state);
        let mut result = (&*file).write_all(text.as_bytes());
        if sync && result.is_ok() {
            result = sync_file_data(&*file).map_err(Into::into);
        }
        state = self.lock();
        match result {
            Ok(()) if sync => state.durable = state.durable.max(target),
            Ok(()) => {}
            // What the kernel could not write it forgets: only a new file makes anything sure again.
            Err(error) => fail(&mut state, &error),
        }
        state
    }

    fn write_all_anew<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (text, lines) = text_of(&state.entries);
        let target = state.appended;
        state.pending.clear();
        state.anew = false;
        drop(state);
        let result = write_anew(&self.directory, &text);
        state = self.lock();
        match result {
            Ok(file) => {
                // What has come meanwhile after a failure is neither in the new file nor pending.
                state.anew = state.trouble.take().is_some() && state.appended > target;
                state.file = Arc::new(file);
                state.lines = lines + state.appended.saturating_sub(target);
                state.durable = state.durable.max(target);
            }
            Err(error) => fail(&mut state, &error),
        }
        state
    }

    /// Waits for those whose records are on their way, for a moment at most.
    fn collect<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let collected = self.collected.wait_timeout_while(state, COLLECT, |state| state.coming > 0);
        collected.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// All that is in the journal, and in how many lines.
pub(super) fn text_of(entries: &Entries) -> (String, u64) {
    let (mut text, mut lines) = (String::new(), 0);
    for (volume, files) in entries {
        for (file, entry) in files {
            for give_back in &entry.give_back {
                text.push_str(&record::line(&Record::Remember(volume.clone(), *file, *give_back)));
                lines += 1;
            }
        }
    }
    (text, lines)
}

/// Writes a new file that takes the old one's place when it is durable, and is open for appending.
pub(super) fn write_anew(directory: &Path, text: &str) -> io::Result<File> {
    write_anew_in_steps(directory, text, || ())
}

/// The same; `between` is called after each step, where the power can fail.
pub(super) fn write_anew_in_steps(directory: &Path, text: &str, mut between: impl FnMut()) -> io::Result<File> {
    let (path, new) = (directory.join(NAME), directory.join(format!("{NAME}.new")));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().append(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    between();
    sync_file(&file)?;
    between();
    fs::rename(&new, &path)?;
    between();
    sync_file(File::open(directory)?)?;
    between();
    Ok(file)
}
