//! Errors while a volume is read, before the name that the user gave is known.

use crate::probe::EXT4;
use longrun_engine::VolumeError;
use std::path::Path;
use std::time::Duration;

/// A reason to stop reading.
#[derive(Debug)]
pub(in crate::ext4) enum Fault {
    /// Not ext4 at all.
    NotExt4(String),
    /// ext4 with something that this reader does not know.
    Unsupported(String),
    /// The on-disk structures contradict themselves.
    Damaged(String),
    /// The device could not be read.
    Io(std::io::Error),
    /// The user asked to stop.
    Interrupted,
}

pub(in crate::ext4) type Read<T> = Result<T, Fault>;

/// Shorthand for a contradiction found.
pub(in crate::ext4) fn damaged<T>(detail: impl Into<String>) -> Read<T> {
    Err(Fault::Damaged(detail.into()))
}

impl Fault {
    /// The message for the user, who called the volume `path`.
    pub(in crate::ext4) fn on(self, path: &Path) -> VolumeError {
        let path = path.to_owned();
        match self {
            Self::NotExt4(problem) => VolumeError::NotAVolume { path, problem },
            Self::Unsupported(what) => VolumeError::Unsupported { path, what },
            Self::Damaged(detail) => VolumeError::Damaged { path, filesystem: EXT4.to_owned(), detail },
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

/// Whether the file system can change while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Mounted: a record may be seen half-written, and is then read again before it is called damaged.
    Live,
    /// No one writes: what is read is final.
    Still,
}

/// Pauses between the attempts on a mounted volume, about 0.3 s in all: an update takes microseconds, so that what is
/// still wrong afterwards is wrong on the device.
const PAUSES_MILLISECONDS: [u64; 8] = [0, 1, 2, 5, 20, 50, 100, 120];

/// The first of these: for what may have been deleted meanwhile, and is not worth waiting for.
const BRIEF: usize = 3;

/// Repeats `read` on a live volume while it finds damage.
pub(in crate::ext4) fn settled<T>(access: Access, read: impl FnMut() -> Read<T>) -> Read<T> {
    repeated(access, &PAUSES_MILLISECONDS, read)
}

/// As [`settled`], with little patience: for directory blocks, where damage costs a few names and no more.
pub(in crate::ext4) fn settled_briefly<T>(access: Access, read: impl FnMut() -> Read<T>) -> Read<T> {
    repeated(access, PAUSES_MILLISECONDS.get(..BRIEF).unwrap_or_default(), read)
}

fn repeated<T>(access: Access, pauses: &[u64], mut read: impl FnMut() -> Read<T>) -> Read<T> {
    let pauses = if access == Access::Live { pauses } else { &[] };
    for pause in pauses {
        match read() {
            Err(Fault::Damaged(_)) => std::thread::sleep(Duration::from_millis(*pause)),
            other => return other,
        }
    }
    read()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_record_is_read_again_only_on_a_live_volume() {
        let torn_twice = |access| {
            let mut attempts = 0;
            let result = settled(access, || {
                attempts += 1;
                if attempts < 3 { damaged("torn") } else { Ok(()) }
            });
            (result.is_ok(), attempts)
        };
        assert_eq!(torn_twice(Access::Live), (true, 3));
        assert_eq!(torn_twice(Access::Still), (false, 1));
    }
}
