//! Running the binary and checking how it ended.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// The binary under test.
pub const LONGRUN: &str = env!("CARGO_BIN_EXE_longrun");

/// Runs `longrun` to its end.
pub fn longrun<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(LONGRUN).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Checks the exit status, and that standard error is empty or has what is expected, in one line that no terminal obeys.
#[track_caller]
pub fn check(output: &Output, status: i32, error: &str) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A line of progress every some seconds: how many there are is the machine's speed.
    let err: String = err.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
    assert_eq!(output.status.code(), Some(status), "stdout: {out}\nstderr: {err}");
    assert!(err.contains(error), "expected '{error}' in: {err}");
    if error.is_empty() {
        assert!(err.is_empty(), "unexpected: {err}");
    } else if status != 2 {
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    assert!(!err.contains('\x1b'), "{err:?}");
    out.into_owned()
}

/// Whether `line` tells how far the work is: "moving: 25 %, ...".
fn is_progress(line: &str) -> bool {
    let number = line.split_once(" %").and_then(|(before, _)| before.rsplit(": ").next());
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}
