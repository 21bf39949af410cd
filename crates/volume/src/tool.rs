//! Programs of the system that know an on-disk format.
//!
//! Owns how they are run. They read what others may have made to mislead them: neither time nor output is without a limit.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// As root or as a user, not every environment has these directories among those that are searched.
const DIRECTORIES: &str = ":/usr/sbin:/sbin";
/// They answer in this time, unless the storage hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// No answer is longer. What follows it may be.
const MOST: usize = 16 << 10;

/// What a program has said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its output and its messages.
    pub(crate) text: String,
    /// Its exit status; `None` when it was ended.
    pub(crate) status: Option<i32>,
}

/// Runs `command` until it ends, or until `is_enough` for what it has said.
///
/// # Errors
/// `NotFound`: there is no such program. Others: it cannot be run, or does not end in time.
pub(crate) fn ask(mut command: Command, is_enough: impl Fn(&[u8]) -> bool) -> io::Result<Answer> {
    let (output, writer) = io::pipe()?;
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(DIRECTORIES);
    command.env("PATH", path).env("LC_ALL", "C").stdout(writer.try_clone()?).stderr(writer);
    longrun_sys::end_with_us(&mut command);
    let mut child = command.spawn()?;
    // It has copies of the writing end: there would be no end of the output.
    drop(command);
    let said = listen(output, is_enough);
    if !matches!(said, Ok((_, true))) {
        _ = child.kill();
    }
    let status = child.wait()?.code();
    said.map(|(text, _)| Answer { text: String::from_utf8_lossy(&text).into_owned(), status })
}

/// Reads `output`. The second answer is whether it came to its end.
fn listen(mut output: PipeReader, is_enough: impl Fn(&[u8]) -> bool) -> io::Result<(Vec<u8>, bool)> {
    let until = Instant::now() + LONGEST;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while text.len() < MOST && !is_enough(&text) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !longrun_sys::wait_readable(&[output.as_fd()], left)? {
            continue;
        }
        let length = output.read(&mut piece)?;
        if length == 0 {
            return Ok((text, true));
        }
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
    }
    Ok((text, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str, is_enough: impl Fn(&[u8]) -> bool) -> io::Result<Answer> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).stdin(Stdio::null());
        ask(command, is_enough)
    }

    #[test]
    fn an_answer_has_output_messages_and_status() {
        let answer = shell("echo output; echo message >&2; exit 8", |_| false).unwrap();
        assert_eq!(answer, Answer { text: "output\nmessage\n".into(), status: Some(8) });
        let absent = ask(Command::new("no-such-program-of-longrun"), |_| false).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_that_has_said_enough_or_too_much_is_ended() {
        let enough = shell("echo state; exec sleep 1000", |text| text.ends_with(b"\n")).unwrap();
        assert_eq!(enough, Answer { text: "state\n".into(), status: None });
        let endless = shell("exec yes", |_| false).unwrap();
        assert_eq!(endless.status, None);
        assert!(endless.text.len() < MOST + 4096);
    }
}
