//! Programs that are copied and executed at once, executed repeatedly, and kept running. An optimizer that holds a
//! file open for writing makes its execution fail.

use super::{Participant, is_busy_program};
use crate::{Running, tool};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Programs kept for being executed again.
const KEPT: u64 = 8;
/// Bytes appended to each program (loaders ignore them), so that it is worth moving.
const PADDING: usize = 512 << 10;
/// Names of the programs where they are copied from.
const SHORT: &str = "short";
const LONG: &str = "long";
/// How long a process that another test has just started may hold the file that was cut.
const HELD: Duration = Duration::from_secs(10);

/// Starts a program that this process had open for writing when it cut it: see [`Programs::write`]. No optimizer runs yet.
fn start_what_was_cut(path: &Path) -> Result<Running> {
    let begun = Instant::now();
    loop {
        match Running::start(Command::new(path).arg("1000000")) {
            Err(error) if is_busy_program(&error) && begun.elapsed() < HELD => {
                std::thread::sleep(Duration::from_millis(5))
            }
            started => return started,
        }
    }
}

/// Copies of small system programs.
pub(super) struct Programs {
    directory: PathBuf,
    /// Where the copies come from, outside of the volume.
    sources: TempDir,
    short: Vec<u8>,
    expected_long: Vec<u8>,
    long_path: PathBuf,
    long: Running,
}

impl Programs {
    /// Copies the programs, and starts the one that keeps running.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let sources = tempfile::tempdir()?;
        let padded = |program: &str, byte: u8, name: &str| -> Result<Vec<u8>> {
            let mut bytes = fs::read(program).with_context(|| format!("cannot read {program}"))?;
            bytes.resize(bytes.len() + PADDING, byte);
            fs::write(sources.path().join(name), &bytes)?;
            Ok(bytes)
        };
        let (short, expected_long) = (padded("/bin/true", 1, SHORT)?, padded("/bin/sleep", 2, LONG)?);
        let long_path = directory.join("running.prey");
        tool::install(&sources.path().join(LONG), &long_path)?;
        super::cutting::cut(&long_path, super::PIECES)?;
        let long = start_what_was_cut(&long_path)?;
        let programs = Self { directory: directory.to_owned(), sources, short, expected_long, long_path, long };
        (0..KEPT).try_for_each(|number| programs.write(&programs.path(number)))?;
        Ok(programs)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("program{number}.prey"))
    }

    /// Writes the short program, replacing what is there.
    ///
    /// Another process does: whatever this one starts while it has a file open for writing, in another test perhaps, has
    /// it open for a moment, too, and executing the file would fail through no fault of the optimizer.
    fn write(&self, path: &Path) -> Result<()> {
        tool::install(&self.sources.path().join(SHORT), path)
    }
}

impl Participant for Programs {
    fn kind(&self) -> String {
        "programs".to_owned()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let path = self.path(rng.u64(..KEPT));
        if rng.u32(..3) == 0 {
            self.write(&path)?;
        }
        let status = Command::new(&path).status().context("executing a program")?;
        ensure!(status.success(), "a program ended with {status}");
        Ok(())
    }

    fn verify(&mut self) -> Result<()> {
        ensure!(!self.long.has_ended()?, "the program that must keep running has ended");
        ensure!(fs::read(&self.long_path)? == self.expected_long, "the running program's file is wrong");
        for number in 0..KEPT {
            ensure!(fs::read(self.path(number))? == self.short, "program {number} is wrong");
        }
        Ok(())
    }
}
