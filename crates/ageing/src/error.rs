//! The errors of ageing.

use std::io;
use std::path::{Path, PathBuf};

/// Why a volume or a file could not be aged.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// A system call on a path failed.
    #[error("cannot {act} {}: {source}", path.display())]
    Io {
        /// What was being done.
        act: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The place for the aged files is there already.
    #[error("{} already exists; remove it, or use another seed", .0.display())]
    Exists(PathBuf),
    /// The volume is too small or too full for the recipe.
    #[error(
        "{}: {available} bytes are available, but the recipe needs {needed}; use a larger or emptier volume",
        path.display()
    )]
    TooSmall {
        /// The directory that was given.
        path: PathBuf,
        /// Bytes available to us.
        available: u64,
        /// Bytes that the recipe needs.
        needed: u64,
    },
    /// The file cannot have that many fragments: each needs a block.
    #[error("{} has {blocks} blocks of data, so it cannot have {asked} fragments", path.display())]
    TooManyFragments {
        /// The file.
        path: PathBuf,
        /// Blocks that it has.
        blocks: u64,
        /// Fragments asked for.
        asked: u64,
    },
    /// The file is of a kind that cannot be fragmented.
    #[error("cannot fragment {}: {reason}", path.display())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// A volume in simulated use has become full.
    #[error("the volume of {} is full; use a smaller share, or a larger volume", .0.display())]
    Full(PathBuf),
    /// The caller asked to stop.
    #[error("interrupted; the files made so far are in {}", .0.display())]
    Interrupted(PathBuf),
}

impl AgeError {
    /// Wraps a system error with what was being done to which path.
    pub(crate) fn io(act: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { act, path: path.to_owned(), source: source.into() }
    }
}
