//! Programs that are copied and executed at once, executed repeatedly, and kept running. An optimizer that holds a
//! file open for writing makes its execution fail.

use super::{Participant, SPAWNING};
use crate::Running;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;

/// Programs kept for being executed again.
const KEPT: u64 = 8;
/// Bytes appended to each program (loaders ignore them), so that it is worth moving.
const PADDING: usize = 512 << 10;

/// Copies of small system programs.
pub(super) struct Programs {
    directory: PathBuf,
    short: Vec<u8>,
    expected_long: Vec<u8>,
    long_path: PathBuf,
    long: Running,
}

impl Programs {
    /// Copies the programs, and starts the one that keeps running.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let padded = |program: &str, byte: u8| -> Result<Vec<u8>> {
            let mut bytes = fs::read(program).with_context(|| format!("cannot read {program}"))?;
            bytes.resize(bytes.len() + PADDING, byte);
            Ok(bytes)
        };
        let (short, expected_long) = (padded("/bin/true", 1)?, padded("/bin/sleep", 2)?);
        let long_path = directory.join("running.prey");
        write_program(&long_path, &expected_long)?;
        super::cutting::cut(&long_path, super::PIECES)?;
        let long = Running::start(Command::new(&long_path).arg("1000000"))?;
        let programs = Self { directory: directory.to_owned(), short, expected_long, long_path, long };
        (0..KEPT).try_for_each(|number| write_program(&programs.path(number), &programs.short))?;
        Ok(programs)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("program{number}.prey"))
    }
}

/// Writes a program, replacing what is there, and leaves no descriptor of it open.
fn write_program(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let _nobody_else_starts_a_process = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

impl Participant for Programs {
    fn kind(&self) -> String {
        "programs".to_owned()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let path = self.path(rng.u64(..KEPT));
        if rng.u32(..3) == 0 {
            write_program(&path, &self.short)?;
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
