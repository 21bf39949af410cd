//! Errors while a volume is read, before the name that the user gave is known.

use longrun_engine::VolumeError;
use std::path::Path;

/// The kernel's and everybody's name of the file system.
pub(super) const NTFS: &str = "ntfs";

/// A reason to stop reading.
#[derive(Debug)]
pub(super) enum Fault {
    /// Not NTFS at all.
    NotNtfs(String),
    /// NTFS with something that this reader does not know.
    Unsupported(String),
    /// The on-disk structures contradict themselves.
    Damaged(String),
    /// The device could not be read.
    Io(std::io::Error),
    /// The user asked to stop.
    Interrupted,
}

pub(super) type Read<T> = Result<T, Fault>;

/// Shorthand for a contradiction found.
pub(super) fn damaged<T>(detail: impl Into<String>) -> Read<T> {
    Err(Fault::Damaged(detail.into()))
}

impl Fault {
    /// The message for the user, who called the volume `path`.
    pub(super) fn on(self, path: &Path) -> VolumeError {
        let path = path.to_owned();
        match self {
            Self::NotNtfs(problem) => VolumeError::NotAVolume { path, problem },
            Self::Unsupported(what) => VolumeError::Unsupported { path, what },
            Self::Damaged(detail) => VolumeError::Damaged { path, filesystem: NTFS.to_owned(), detail },
            Self::Io(source) => VolumeError::Io { path, act: "reading the volume", source },
            Self::Interrupted => VolumeError::Interrupted,
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
