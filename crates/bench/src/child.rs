//! Other programs as child processes, run until they end or until we are asked to stop.
//!
//! Ensures that no child is left behind, and that no child blocks because its output is not read.

use crate::BenchError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);
/// Longer than giving everything back takes on a slow disk.
const END: Duration = Duration::from_secs(60);

/// The result of a child.
#[derive(Debug)]
pub(crate) struct Finished {
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub answer: Vec<u8>,
    /// What it wrote to standard error.
    pub said: String,
}

/// Runs it to its end.
///
/// # Errors
/// When it cannot be run, or was asked to stop; it has then ended.
pub(crate) fn run(command: &mut Command, stop: &AtomicBool) -> Result<Finished, BenchError> {
    let program = command.get_program().to_owned();
    let failed = |e| BenchError::io("running it", Path::new(&program), e);
    // Files, not pipes: whatever it says finds room.
    let (mut answer, mut said) = (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    longrun_sys::end_with_us(command);
    command.stdin(Stdio::null());
    command.stdout(answer.try_clone().map_err(failed)?).stderr(said.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            end(&mut child, Signal::TERM);
            return Err(BenchError::Interrupted);
        }
        std::thread::sleep(POLL);
    };
    let answer = content(&mut answer).map_err(failed)?;
    let said = String::from_utf8_lossy(&content(&mut said).map_err(failed)?).trim().to_owned();
    Ok(Finished { status, answer, said })
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Asks it to end, and kills it if it does not.
pub(crate) fn end(child: &mut Child, signal: Signal) {
    // It may have ended meanwhile.
    _ = kill_process(Pid::from_child(child), signal);
    let deadline = Instant::now() + END;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            _ = child.kill();
        }
        std::thread::sleep(POLL);
    }
}

/// Tests that begin programs do it one at a time: a child has every file that another test is writing open until it
/// executes its program, and who executes such a file meanwhile is refused.
#[cfg(test)]
pub(crate) fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static BEGINNING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    BEGINNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_kept_however_long_it_is() {
        let _alone = one_at_a_time();
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; echo bad >&2; exit 3"]);
        let finished = run(&mut command, &AtomicBool::new(false)).unwrap();
        assert_eq!((finished.status.code(), finished.answer.len()), (Some(3), 300_000));
        assert!(finished.said.ends_with("bad"));
    }

    #[test]
    fn a_child_ends_when_we_shall_end_and_a_missing_program_is_named() {
        let _alone = one_at_a_time();
        let stopped = run(Command::new("sleep").arg("1000"), &AtomicBool::new(true));
        assert!(matches!(stopped, Err(BenchError::Interrupted)), "{stopped:?}");
        let missing = run(&mut Command::new("/no/such/program"), &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(missing.starts_with("/no/such/program: running it failed"), "{missing}");
    }
}
