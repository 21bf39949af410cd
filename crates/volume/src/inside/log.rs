//! Whether the log of an XFS volume is clean, as the tool of XFS says.
//!
//! Owns the meaning of its answer. The tool only reads.

use super::error::{InsideError, Place};
use crate::tool;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Refuses the XFS volume on `device` when its log has to be replayed, or its state is not known.
pub(super) fn check(device: &Path, place: &Place) -> Result<(), InsideError> {
    let mut command = Command::new("xfs_logprint");
    command.arg("-t").arg(device).stdin(Stdio::null());
    // What it writes begins with the state; of a log that is not clean the content follows, which may be long.
    let answer = tool::ask(command, |text| state_in(text).is_some()).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => InsideError::NoLogProgram { place: place.clone() },
        _ => InsideError::LogProgram { place: place.clone(), source },
    })?;
    match state_in(answer.text.as_bytes()) {
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
