//! Small files created, renamed over each other, read and deleted.

use super::Participant;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files at most, and bytes of each.
const FILES: usize = 150;
const BYTES: usize = 48 << 10;

/// A directory of small files, and what each must hold.
pub(super) struct Names {
    directory: PathBuf,
    expected: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Names {
    /// An empty directory.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let directory = directory.join("names");
        fs::create_dir(&directory)?;
        Ok(Self { directory, expected: BTreeMap::new(), next: 0 })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    fn any(&self, rng: &mut fastrand::Rng) -> Option<u64> {
        self.expected.keys().nth(rng.usize(..self.expected.len().max(1))).copied()
    }

    fn create_one(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let mut bytes = vec![0; rng.usize(..BYTES)];
        rng.fill(&mut bytes);
        fs::write(self.path(self.next), &bytes)?;
        self.expected.insert(self.next, bytes);
        self.next += 1;
        Ok(())
    }
}

impl Participant for Names {
    fn kind(&self) -> String {
        "names".to_owned()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let (Some(one), Some(other)) = (self.any(rng), self.any(rng)) else { return self.create_one(rng) };
        match rng.u32(..4) {
            0 if one != other => {
                fs::rename(self.path(one), self.path(other))?;
                let bytes = self.expected.remove(&one).context("renamed")?;
                self.expected.insert(other, bytes);
            }
            1 => {
                fs::remove_file(self.path(one))?;
                self.expected.remove(&one);
            }
            _ if self.expected.len() < FILES => self.create_one(rng)?,
            _ => ensure!(Some(&fs::read(self.path(one))?) == self.expected.get(&one), "file {one} reads wrong"),
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<()> {
        ensure!(fs::read_dir(&self.directory)?.count() == self.expected.len(), "the number of files is wrong");
        for (number, bytes) in &self.expected {
            ensure!(&fs::read(self.path(*number))? == bytes, "file {number} is wrong");
        }
        Ok(())
    }
}
