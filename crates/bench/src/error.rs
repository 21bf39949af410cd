//! The errors of measurements.

use longrun_layout::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system refused something.
    #[error("{}: {act} failed: {source}", path.display())]
    Io {
        /// What was being done.
        act: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The database under test failed.
    #[error("{}: {act} failed: {source}; the volume may be full or damaged", path.display())]
    Database {
        /// What was being done.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The volume has too little free space.
    #[error(
        "{}: the benchmark needs {} MiB of free space, but only {} MiB are free; free some space, or use smaller \
         files (--bytes)",
        path.display(), needed.0 >> 20, free.0 >> 20
    )]
    TooLittleSpace {
        /// Where.
        path: PathBuf,
        /// What is needed.
        needed: Bytes,
        /// What there is.
        free: Bytes,
    },
    /// Nothing can be measured there.
    #[error("{}: {problem}", path.display())]
    Unsuitable {
        /// Where.
        path: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// The service that is to be measured did not run as it should.
    #[error("the service under test {problem}")]
    Service {
        /// What it did, with what it said.
        problem: String,
    },
    /// Somebody wants it to end. What was made has been removed.
    #[error("interrupted; all files that were made have been removed")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn io(act: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { act, path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn database(act: &'static str, path: &Path, source: rusqlite::Error) -> Self {
        Self::Database { act, path: path.to_owned(), source }
    }
}
