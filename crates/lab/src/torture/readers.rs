//! Readers of files without writers, from memory or from the device, while these files are moved.

use super::Participant;
use crate::oracle::{Dump, file_hash};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A reader, and the hashes of the files.
pub(super) struct Reader {
    files: Vec<(PathBuf, String)>,
}

impl Reader {
    /// For the files of a dump of `root`.
    pub(super) fn new(root: &Path, dump: &Dump) -> Result<Self> {
        let files: Vec<_> =
            dump.iter().filter_map(|(path, entry)| Some((root.join(path), entry.hash()?.to_owned()))).collect();
        ensure!(!files.is_empty(), "there is nothing to read");
        Ok(Self { files })
    }
}

impl Participant for Reader {
    fn kind(&self) -> String {
        "reader".to_owned()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let (path, expected) = self.files.get(rng.usize(..self.files.len())).context("nothing to read")?;
        let file = File::open(path)?;
        if rng.bool() {
            longrun_sys::drop_cache(&file, longrun_sys::ByteRange::ALL)?;
        }
        ensure!(&file_hash(file)? == expected, "{} reads wrong", path.display());
        Ok(())
    }

    fn verify(&mut self) -> Result<()> {
        // Compared as a whole, with everything else, after the volume has been mounted again.
        Ok(())
    }
}
