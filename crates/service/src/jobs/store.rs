//! The records of jobs on disk: a file for each in the state directory.
//!
//! Owns the files. Never fails a job: what cannot be written is logged, and what cannot be read is left out.

use super::Record;
use longrun_sys::replace_file;
use std::fs;
use std::path::{Path, PathBuf};

/// No record is larger.
const LARGEST: u64 = 4 << 20;

/// The directory of the records.
pub(super) struct Store {
    directory: PathBuf,
}

impl Store {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All records that can be read.
    pub(super) fn read(&self) -> Vec<Record> {
        let files = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
        paths.filter_map(|path| read(&path)).collect()
    }

    /// Puts the record in the place of the last one, in one step.
    pub(super) fn write(&self, record: &Record) {
        let path = self.path(record.job.id);
        let put = || {
            fs::create_dir_all(&self.directory)?;
            replace_file(&path, &serde_json::to_vec(record)?)
        };
        if let Err(error) = put() {
            tracing::warn!("{}: writing the record of a job failed: {error}; it is lost at a restart", path.display());
        }
    }

    pub(super) fn remove(&self, id: u64) {
        _ = fs::remove_file(self.path(id));
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }
}

fn read(path: &Path) -> Option<Record> {
    let told = |error: &dyn std::fmt::Display| {
        tracing::warn!("{}: the record of a job cannot be read: {error}; it is left out", path.display());
    };
    let size = fs::metadata(path).inspect_err(|error| told(error)).ok()?.len();
    if size > LARGEST {
        told(&"it is too large");
        return None;
    }
    let text = fs::read(path).inspect_err(|error| told(error)).ok()?;
    serde_json::from_slice(&text).inspect_err(|error| told(error)).ok()
}
