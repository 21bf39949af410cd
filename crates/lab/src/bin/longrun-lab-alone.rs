//! Runs a command in a mount namespace of its own, made as the product makes it. A test cannot do that in its own process, which
//! has several threads.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { bail!("give a command") };
    longrun_sys::own_mount_namespace()?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
