//! The directory in which a benchmark writes. It is new, and is removed however the benchmark ends.

use crate::BenchError;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A directory of our own, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// Makes a new directory in `parent`.
    ///
    /// # Errors
    /// [`BenchError::Io`] when it cannot be made there.
    pub fn new(parent: &Path) -> Result<Self, BenchError> {
        // Others must not reach what is in it: unpacked programs may have more rights than they.
        let ours_alone = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("longrun-bench-").permissions(ours_alone).tempdir_in(parent);
        Ok(Self { directory: directory.map_err(|e| BenchError::io("creating a directory in it", parent, e))? })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A new empty directory in it.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn fresh(&self) -> Result<PathBuf, BenchError> {
        let path = self.path().join("work");
        fs::create_dir(&path).map_err(|e| BenchError::io("creating a directory", &path, e))?;
        Ok(path)
    }

    /// Removes what [`Self::fresh`] made.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn clear(&self) -> Result<(), BenchError> {
        let path = self.path().join("work");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BenchError::io("removing it", &path, error))
            }
            _ => Ok(()),
        }
    }
}
