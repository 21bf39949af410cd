//! Runs the system's tools. A failure is reported with the command, its status and its output.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
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
