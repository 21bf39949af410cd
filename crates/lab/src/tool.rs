//! Runs the system's tools. A failure is reported with the command, its status and its output.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a tool to its end and returns its standard output.
///
/// # Errors
/// When it cannot be started or does not succeed; the message has the command and what it printed.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = output(&mut command)?;
    if !output.status.success() {
        bail!("{}", describe(&command, &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies a program for everybody to execute.
///
/// A process of its own writes the copy. A file that this process opens for writing is open in every child that another
/// thread has forked and that has not executed its own program yet, and the kernel executes nothing that somebody may
/// write (`ETXTBSY`).
///
/// # Errors
/// Those of [`run`].
pub fn install(program: &Path, to: &Path) -> Result<()> {
    run("install", ["-m".as_ref(), "755".as_ref(), program.as_os_str(), to.as_os_str()]).map(drop)
}

/// Runs a command to its end, whatever its status.
///
/// # Errors
/// When it cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    // Tools are parsed: their language must be the one that the parsers know.
    command.env("LC_ALL", "C");
    command.output().with_context(|| format!("cannot run {command:?}: is it installed?"))
}

/// A command and how it ended, for messages.
#[must_use]
pub fn describe(command: &Command, output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    format!("{command:?} ended with {}:\n{}", output.status, said.join("\n").trim())
}
