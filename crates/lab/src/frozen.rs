//! Volumes that are frozen for a while, as backups and snapshots do: every writer waits.
//!
//! Ensures that they thaw on every way out. A shell thaws the volume when its input ends, and its input ends with our
//! process, however it ends. When a volume is removed, also by a signal, it is thawed before it is unmounted.

use crate::{LoopVolume, tool};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A volume is frozen while this lives.
#[derive(Debug)]
pub struct Frozen {
    shell: Child,
}

impl LoopVolume {
    /// Freezes it.
    ///
    /// # Errors
    /// When fsfreeze fails.
    pub fn freeze(&self) -> Result<Frozen> {
        let script = r#"fsfreeze -f "$0" && echo frozen && read -r _; fsfreeze -u "$0""#;
        let mut shell = Command::new("sh");
        let shell = shell.arg("-c").arg(script).arg(self.mount_point());
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting sh")?;
        let mut frozen = Frozen { shell };
        let mut said = String::new();
        let output = frozen.shell.stdout.take().context("sh has no output")?;
        BufReader::new(output).read_line(&mut said).context("reading what fsfreeze says")?;
        ensure!(said == "frozen\n", "the volume could not be frozen");
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        _ = self.shell.wait();
    }
}

/// Thaws what is mounted there, if it is frozen.
pub(crate) fn thaw(mount_point: &Path) {
    // What is not frozen is an error to this tool, and to nobody else.
    _ = tool::run("fsfreeze", ["--unfreeze".as_ref(), mount_point.as_os_str()]);
}
