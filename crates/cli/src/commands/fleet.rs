//! `fleet`: a program of its own, since the root daemon and its command line have nothing to do with the network.

use crate::exit::{Failure, Status};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "longrun-fleet";

/// Becomes that program; returns only when that fails.
pub fn run(args: &[OsString]) -> Result<(), Failure> {
    // The one that was installed, or built, with this one; else what the path has.
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside.filter(|program| program.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(args).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            Status::Failed,
            format!("{PROGRAM} is not installed; install the package of that name, or put it beside this program"),
        ),
        _ => Failure::new(Status::Failed, format!("{}: starting it failed: {error}", program.display())),
    })
}
