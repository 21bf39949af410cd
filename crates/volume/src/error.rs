//! What can go wrong on a volume, and why a file was left alone.

use longrun_layout::Pin;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A failure that concerns the volume as a whole. The message is for the user: what happened, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The target is not something that can be opened as a volume.
    #[error("{path}: {problem}; give a mount point, a file or directory on it, or its block device")]
    NotAVolume {
        /// As the user gave it.
        path: PathBuf,
        /// What it is instead.
        problem: String,
    },
    /// The file system or one of its features is not supported (yet).
    #[error("{path}: {what} is not supported; nothing was changed")]
    Unsupported {
        /// The volume.
        path: PathBuf,
        /// File system or feature.
        what: String,
    },
    /// The volume is mounted read-only or not mounted at all.
    #[error("{path} is {state}; mount it read-write to optimize it")]
    NotWritable {
        /// The volume.
        path: PathBuf,
        /// "mounted read-only" or "not mounted".
        state: String,
    },
    /// The on-disk structures contradict themselves.
    #[error("{path}: the file system is damaged ({detail}); run its checker (e2fsck -f) before anything else")]
    Damaged {
        /// The device.
        path: PathBuf,
        /// The first contradiction found.
        detail: String,
    },
    /// Another optimizer works on the volume.
    #[error("{path}: {holder} is working on this volume; wait until it has finished")]
    InUse {
        /// The volume.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// Not enough privilege.
    #[error("{path}: {act} needs root; run it with sudo")]
    NotPermitted {
        /// The volume.
        path: PathBuf,
        /// What was attempted.
        act: String,
    },
    /// Not enough free space to work with.
    #[error("{path}: too little free space ({free} bytes; {needed} bytes needed); delete or move something first")]
    TooFull {
        /// The volume.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Least free bytes to work with.
        needed: u64,
    },
    /// The kernel refused an operation that should work.
    #[error("{path}: {act} failed: {source}")]
    Io {
        /// File or device.
        path: PathBuf,
        /// What was attempted.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A barrier failed: nothing that was vacated may be reused, the run must stop.
    #[error(
        "{path}: the journal commit failed: {source}; the run was stopped, every file has its old or its new place"
    )]
    Barrier {
        /// The volume.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Why a file was left where it is. Counted in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// It must not move at all.
    Pinned(Pin),
    /// It was deleted or replaced since the scan.
    Vanished,
    /// Its blocks are not where the scan saw them: somebody wrote to it.
    Changed,
    /// It is being written to right now.
    Busy,
    /// It is being executed.
    Executing,
    /// The place for it was taken by somebody else, or could not be had.
    TargetTaken,
    /// A file before it in the order could not be moved, so its place did not become free.
    Blocked,
    /// The free space was needed by others.
    SpaceNeeded,
    /// The kernel cannot exchange its blocks.
    NotExchangeable,
    /// Its data could not be read.
    Unreadable,
    /// It is stored compressed, and would take more space.
    Compressed,
}

impl From<Pin> for SkipReason {
    fn from(pin: Pin) -> Self {
        match pin {
            Pin::Changed => Self::Changed,
            pin => Self::Pinned(pin),
        }
    }
}

/// Why a primitive on one file did not work.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The file is left alone; the run goes on.
    #[error("skipped: {0:?}")]
    Skip(SkipReason),
    /// The run must end.
    #[error(transparent)]
    Fatal(#[from] VolumeError),
}
