//! Why a journal cannot be used. Each message says what to do.

use longrun_layout::Bytes;
use std::io;
use std::path::PathBuf;

/// Why a file is not accepted as a journal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Doubt {
    /// It leads to another file.
    #[error("is a symbolic link")]
    SymbolicLink,
    /// A directory, a FIFO or the like.
    #[error("is no regular file")]
    NotAFile,
    /// Its owner is another user, with this user ID.
    #[error("belongs to another user (number {0})")]
    Owner(u32),
    /// It is another file, too.
    #[error("has another name, too (a hard link)")]
    HardLink,
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The journal or the volume could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not accepted as a journal.
    #[error(
        "it {0}; find out where it comes from, then remove it, or make root its owner if it is left by a run of yours"
    )]
    Doubtful(#[from] Doubt),
    /// The journal is of another volume, or of another version of Longrun.
    #[error(
        "it is of another volume, or of another version of Longrun; move it back to its volume, complete the run with that version, or \
         remove it"
    )]
    Another,
    /// What the journal would complete was written to by another program since.
    #[error(
        "another program has changed the volume since Longrun was interrupted, at byte {0}; check the volume, then remove the journal"
    )]
    Changed(Bytes),
    /// What was copied before the interruption is not on the volume.
    #[error(
        "the volume is a copy of the one that Longrun was interrupted on, or was restored from a backup since; run Longrun on the \
         other one first, or remove the journal if there is no other one"
    )]
    Restored,
    /// The journal of this volume, or of a copy of it, has the name that another image gives it.
    #[error(
        "it was left by an interrupted run on this volume or on a copy of it, under another name; rename it to {} to complete that run",
        .wanted.display()
    )]
    Elsewhere {
        /// The journal.
        found: PathBuf,
        /// Where it would be used.
        wanted: PathBuf,
    },
}
