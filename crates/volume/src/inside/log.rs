//! Whether the log of an XFS volume is clean, as the tool of XFS says.
//!
//! Owns the running of that tool, which only reads. Never waits for it without end: what it reads may be made to mislead it.

use super::error::{InsideError, Place};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where it is; as root, not every environment has these directories among those that are searched.
const PROGRAMS: [&str; 3] = ["xfs_logprint", "/usr/sbin/xfs_logprint", "/sbin/xfs_logprint"];
/// It finds the end of the log in this time, unless the storage hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// What it writes begins with the state; of a log that is not clean the content follows, which may be long.
const MOST: usize = 16 << 10;

/// Refuses the XFS volume on `device` when its log has to be replayed, or its state is not known.
pub(super) fn check(device: &Path, place: &Place) -> Result<(), InsideError> {
    let failed = |source| InsideError::LogProgram { place: place.clone(), source };
    let mut child = start(device).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => InsideError::NoLogProgram { place: place.clone() },
        _ => failed(error),
    })?;
    let state = state(&mut child);
    // It has said what there is to know.
    _ = child.kill();
    _ = child.wait();
    match state.map_err(failed)? {
        Some(State::Clean) => Ok(()),
        Some(State::Dirty) => Err(InsideError::Unclean { place: place.clone(), what: "its log has to be replayed" }),
        None => Err(InsideError::LogUnknown { place: place.clone() }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Clean,
    Dirty,
}

fn start(device: &Path) -> io::Result<Child> {
    let mut last = io::ErrorKind::NotFound.into();
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("-t").arg(device).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        longrun_sys::end_with_us(&mut command);
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
            started => return started,
        }
    }
    Err(last)
}

fn state(child: &mut Child) -> io::Result<Option<State>> {
    let Some(output) = &mut child.stdout else { return Ok(None) };
    let until = Instant::now() + LONGEST;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while text.len() < MOST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !longrun_sys::wait_readable(&[output.as_fd()], left)? {
            continue;
        }
        let length = output.read(&mut piece)?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
        let found = state_in(&text);
        if found.is_some() || length == 0 {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The state in what the tool has written so far.
fn state_in(text: &[u8]) -> Option<State> {
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    if has(b"state: <CLEAN>") {
        return Some(State::Clean);
    }
    has(b"state: <DIRTY>").then_some(State::Dirty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_log_that_is_said_to_be_clean_is_clean() {
        let said = |state| format!("xfs_logprint:\n    data device: 0x700\n\n    log tail: 2 head: 2 state: {state}\n");
        assert_eq!(state_in(said("<CLEAN>").as_bytes()), Some(State::Clean));
        assert_eq!(state_in(said("<DIRTY>").as_bytes()), Some(State::Dirty));
        assert_eq!(state_in(said("<CLE").as_bytes()), None);
        assert_eq!(state_in(b""), None);
    }
}
