//! The errors of a volume, and the reasons why a file was left in place.

use longrun_layout::Pin;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A failure of the whole volume. The message is for the user: what failed, on what, why, and what to do.
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
    #[error("{path} is {state}; mount it read-write first")]
    NotWritable {
        /// The volume.
        path: PathBuf,
        /// "mounted read-only" or "not mounted".
        state: String,
    },
    /// The device or image cannot be opened for what is to be done with it.
    #[error(transparent)]
    Image(Box<dyn std::error::Error + Send + Sync>),
    /// A run on a volume that is not mounted was interrupted, and has left its journal.
    #[error(
        "{path}: an interrupted run has to be completed first; run longrun optimize {path}, which begins with that"
    )]
    Unfinished {
        /// The volume.
        path: PathBuf,
    },
    /// The journal of an unmounted volume cannot be used, or would not help after an interruption.
    #[error("{path}: the journal {journal} cannot be used: {problem}. Nothing was changed")]
    Journal {
        /// The volume.
        path: PathBuf,
        /// The journal.
        journal: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// What lies below the volume cannot take free space back.
    #[error("{path}: {device} accepts no discards, so that no free space can be given back; {advice}")]
    NoDiscards {
        /// The volume.
        path: PathBuf,
        /// The device that accepts none.
        device: String,
        /// What to do.
        advice: &'static str,
    },
    /// The on-disk structures contradict themselves.
    #[error(
        "{path}: the file system is damaged ({detail}); unmount it and run its checker ({}) before anything else",
        checker(filesystem)
    )]
    Damaged {
        /// The device.
        path: PathBuf,
        /// The kernel's name of the file system.
        filesystem: String,
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
    /// The process may not keep enough memory from being reclaimed to move data safely.
    #[error(
        "{path}: the data of a file cannot be held in memory while it is moved: {source}; allow more locked memory (ulimit -l \
         unlimited, or LimitMEMLOCK=infinity in a unit)"
    )]
    MemoryLimit {
        /// The volume.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Data of a file could not be written where the file was moved to. The run must end.
    #[error(
        "{path}: writing inode {inode} at its new place failed: {source}; {rescued}. Check the device (dmesg, \
         smartctl -a) before the next run. This names the file: find {path} -xdev -inum {inode}"
    )]
    Unwritten {
        /// The volume.
        path: PathBuf,
        /// The file.
        inode: u64,
        /// What became of its data.
        rescued: Box<Rescued>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A barrier failed: nothing that was vacated may be reused, the run must stop.
    #[error(
        "{path}: the journal commit failed: {source}; the run has stopped, and every file is complete at its old or \
         its new place. Check the device (dmesg) before the next run"
    )]
    Barrier {
        /// The volume.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A write, a flush or a discard failed on a volume that is not mounted, or its journal could not be written. Nothing was written
    /// after that.
    #[error(
        "{path}: writing to the volume failed: {source}; nothing was written after that. Check the storage (dmesg), then run longrun \
         optimize {path} before anything else uses the volume: it completes what was begun, and every file is complete then"
    )]
    WriteFailed {
        /// The volume.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A volume inside of an image could not be unmounted, or it is not known whether all that was written is in the image.
    #[error(transparent)]
    NotClosed(Box<dyn std::error::Error + Send + Sync>),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What happened to data that could not be written at its new place.
#[derive(Debug, thiserror::Error)]
pub enum Rescued {
    /// The file has its former blocks again.
    #[error("the file was moved back to its former place, and no data is lost")]
    PutBack,
    /// The former blocks belong to a file of this name.
    #[error(
        "the file could not be moved back; its former content is kept in the blocks of {0}: run filefrag -v on that \
         file, and read the blocks that it prints from the device with dd"
    )]
    Kept(PathBuf),
    /// Nor could they be given a name: they are freed with the process.
    #[error(
        "the file could not be moved back, and its former content could not be kept ({0}): remount the volume \
         read-only at once, and restore the file from a backup"
    )]
    Stuck(io::Error),
}

/// The command that checks a file system which is not mounted, by the kernel's name of it.
#[must_use]
pub fn checker(filesystem: &str) -> &'static str {
    match filesystem {
        "ext2" | "ext3" | "ext4" => "e2fsck -f",
        "xfs" => "xfs_repair",
        "btrfs" => "btrfs check",
        "ntfs" => "chkdsk /f on Windows",
        _ => "see its documentation",
    }
}

/// Why a file was left in place. The report counts files by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// It must not move at all.
    Pinned(Pin),
    /// It was deleted or replaced since the scan.
    Vanished,
    /// Its blocks are not where the scan saw them: another process wrote to it.
    Changed,
    /// It is being written to right now.
    Busy,
    /// It is being executed.
    Executing,
    /// The place for it was taken by another process, or could not be obtained.
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
    /// The list of where it lies does not fit into its file records.
    NoRoomInRecord,
}

impl SkipReason {
    /// The reason in words, for people.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Pinned(why) => why.phrase(),
            Self::Vanished => "deleted or replaced during the run",
            Self::Changed => "changed during the run",
            Self::Busy => "being written to",
            Self::Executing => "being executed",
            Self::TargetTaken => "its target place could not be obtained",
            Self::Blocked => "its target place is still used by another file",
            Self::SpaceNeeded => "other processes needed the free space",
            Self::NotExchangeable => "the kernel cannot exchange its blocks",
            Self::Unreadable => "its data could not be read",
            Self::Compressed => "stored compressed",
            Self::NoRoomInRecord => "its file records have no room for the list of its pieces",
        }
    }
}

impl From<Pin> for SkipReason {
    fn from(pin: Pin) -> Self {
        match pin {
            Pin::Changed => Self::Changed,
            pin => Self::Pinned(pin),
        }
    }
}

/// Why a primitive failed on one file.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The file is left alone; the run goes on.
    #[error("the file was not moved: {}", .0.phrase())]
    Skip(SkipReason),
    /// The run must end.
    #[error(transparent)]
    Fatal(#[from] VolumeError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_volume_is_sent_to_the_checker_of_its_own_file_system() {
        for (filesystem, expected) in [("ext4", "e2fsck -f"), ("xfs", "xfs_repair"), ("btrfs", "btrfs check")] {
            let (path, filesystem) = ("/dev/x".into(), filesystem.to_owned());
            let told = VolumeError::Damaged { path, filesystem, detail: "no magic".into() }.to_string();
            let checkers = ["e2fsck", "xfs_repair", "btrfs check"];
            assert!(told.contains(&format!("({expected})")), "{told}");
            assert_eq!(checkers.iter().filter(|other| told.contains(**other)).count(), 1, "{told}");
        }
    }
}
