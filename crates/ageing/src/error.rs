//! What can go wrong while ageing.

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
    #[error("{} exists already: remove it, or choose another seed", .0.display())]
    Exists(PathBuf),
    /// The volume is too small or too full for the recipe.
    #[error(
        "{} has {available} bytes available, the recipe needs {needed}: choose a larger or emptier volume",
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
    #[error("{} has {blocks} blocks of data: it cannot lie in {asked} fragments", path.display())]
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
    /// A volume that is lived on has become full.
    #[error("the volume of {} is full: plan less, or choose a larger one", .0.display())]
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
