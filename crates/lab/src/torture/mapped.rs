//! A process that has a file mapped and looks at it all the time, as programs do with their code and databases with their
//! pages. No lock of the file makes it wait: whatever a page shows for a moment, it sees.

use super::Participant;
use anyhow::{Context, Result, ensure};
use longrun_sys::{ByteRange, SharedMapping, drop_cache, page_size};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Several folios of the largest kind.
const SIZE: usize = 8 << 20;
/// How often every page is looked at in one operation.
const LOOKS: usize = 4;

/// A mapped file that nobody writes to.
pub(super) struct MappedReader {
    path: PathBuf,
    expected: Vec<u8>,
    mapping: Option<SharedMapping>,
}

impl MappedReader {
    /// Writes the file, full of random bytes.
    pub(super) fn create(directory: &Path, rng: &mut fastrand::Rng) -> Result<Self> {
        let mut expected = vec![0; SIZE];
        rng.fill(&mut expected);
        let path = directory.join("looked-at.prey");
        fs::write(&path, &expected)?;
        Ok(Self { path, expected, mapping: None })
    }

    /// Reads the file into memory anew, in folios as large as the kernel likes, and maps it.
    fn map_anew(&mut self) -> Result<SharedMapping> {
        self.mapping = None;
        let file = File::options().read(true).write(true).open(&self.path)?;
        drop_cache(&file, ByteRange::ALL)?;
        ensure!(fs::read(&self.path)? == self.expected, "the file reads wrong");
        Ok(SharedMapping::new(&file, SIZE)?)
    }
}

impl Participant for MappedReader {
    fn kind(&self) -> String {
        "mapped-reader".to_owned()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let mapping = match self.mapping.take().filter(|_| rng.u32(..32) > 0) {
            Some(mapping) => mapping,
            None => self.map_anew()?,
        };
        let mapping = self.mapping.insert(mapping);
        let mut seen = [0; 8];
        for at in (0..LOOKS).flat_map(|_| (0..SIZE).step_by(page_size())) {
            mapping.read(at, &mut seen)?;
            let expected = self.expected.get(at..at + seen.len()).context("range")?;
            ensure!(seen == expected, "a mapped page shows {seen:?}, and {expected:?} is in it");
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<()> {
        ensure!(fs::read(&self.path)? == self.expected, "the mapped file is wrong");
        Ok(())
    }
}
