//! The words that sensor, policy and runways have in common. No I/O.

use longrun_layout::Bytes;
use longrun_sys::{ByteRange, DeviceNumber, FileHandle};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Nanoseconds of the monotonic clock: for intervals, never for dates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// The file systems that prevention knows. What is not here is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystem {
    /// From the kernel's name of the type.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ext4" => Some(Self::Ext4),
            "xfs" => Some(Self::Xfs),
            "btrfs" => Some(Self::Btrfs),
            _ => None,
        }
    }

    /// The kernel's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A file of a mounted volume, by names that the kernel gives: nobody's rename changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileKey {
    /// The file system's own number, as /proc/self/mountinfo shows it. On btrfs that is not what stat tells about a file,
    /// whose subvolume has a number of its own.
    #[serde(with = "crate::text::device")]
    pub volume: DeviceNumber,
    /// The file on it.
    #[serde(with = "crate::text::handle")]
    pub handle: FileHandle,
}

/// The name of the thread that wrote, as the kernel keeps it: 15 bytes at most.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessName(pub [u8; 16]);

impl fmt::Display for ProcessName {
    /// What is not printable ASCII is shown as '?', since anybody may choose the name of a thread.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        name.iter().try_for_each(|byte| match byte {
            b' '..=b'~' => write!(f, "{}", char::from(*byte)),
            _ => f.write_str("?"),
        })
    }
}

impl fmt::Debug for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Something noticed about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// When.
    pub at: Nanos,
    /// Which file.
    pub file: FileKey,
    /// Its length at that moment, a direct write that is under way included; 0 with [`SignalKind::Closed`], which does not
    /// tell.
    pub size: Bytes,
    /// Who wrote; a kernel thread when the data was written back later, nobody where that is not told.
    pub by: ProcessName,
    /// What.
    pub kind: SignalKind,
}

impl Signal {
    /// A writer has closed `file`: nothing else is told of it.
    pub(crate) fn closed(file: FileKey, at: Nanos) -> Self {
        Self { at, file, size: Bytes(0), by: ProcessName::default(), kind: SignalKind::Closed }
    }
}

/// What was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignalKind {
    /// The file is growing at its end in small pieces that do not lie behind each other.
    Fragmenting {
        /// How many such allocations were seen since the last such signal of this file.
        allocations: u32,
        /// Their bytes together.
        bytes: Bytes,
        /// Where the last of them ends in the file.
        end: Bytes,
    },
    /// The file is written to at scattered places of its holes, in small pieces that do not lie behind each other.
    Scattered {
        /// Where the last of them begins in the file.
        at: Bytes,
        /// How many such allocations were seen since the last such signal of this file.
        allocations: u32,
        /// Their bytes together.
        bytes: Bytes,
    },
    /// Half of the runway that was armed is written.
    HalfUsed {
        /// Up to where the file is being written.
        end: Bytes,
    },
    /// The file lies in pieces that no runway would have helped: the file system chose their places when it wrote them back, or
    /// they are too few yet. Mending may. On XFS, which does not tell the places then, it may also lie well.
    InPieces,
    /// The last writer that had an armed file open may have closed it. Others may have opened it since.
    Closed,
}

/// Where signals come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SensorKind {
    /// Allocations, told by BPF programs in the kernel.
    Bpf,
    /// Modifications, told by fanotify, and a look at the file's map: for kernels that refuse BPF.
    Fanotify,
}

impl fmt::Display for SensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "bpf",
            Self::Fanotify => "fanotify",
        })
    }
}

/// Why a file that fragments gets no runway (now).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaveReason {
    /// The volume's free space is below the floor, or runways hold as much as they may.
    LowSpace,
    /// btrfs stores it compressed; preallocated space would be used uncompressed.
    Compressed,
    /// Somebody may execute it.
    Executable,
    /// It has an extent-size hint: the file system takes care already.
    SizeHint,
    /// Immutable, append-only by attribute, encrypted, swap, or otherwise not to be touched.
    Attributes,
    /// Its times were set by hand: a preallocation would change them.
    TimesSet,
    /// The kernel keeps such files in few pieces by itself.
    KeptWhole,
    /// The free space is in pieces hardly longer than the file's own: a runway would not help.
    ScatteredSpace,
    /// It has one there already: where it fragments all the same, it is overwritten (copy-on-write), or the signal is old.
    HasRunway,
    /// Excluded by configuration.
    Excluded,
    /// It is gone.
    Gone,
    /// The file system refused.
    Refused,
}

/// What prevention did or saw, for whoever keeps the books. Bytes are the file system's blocks times their size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A runway was granted.
    Granted {
        /// To which file.
        file: FileKey,
        /// Its name at that moment, when it has one.
        path: Option<PathBuf>,
        /// Where in the file.
        range: ByteRange,
        /// In how many pieces the file system gave it.
        pieces: u32,
    },
    /// A file that fragments was left alone.
    Left {
        /// Which.
        file: FileKey,
        /// Why.
        reason: LeaveReason,
    },
    /// The runways of a file were settled: it is closed, and what it had not used is given back.
    Settled {
        /// Which file.
        file: FileKey,
        /// Its name at that moment, when it has one.
        path: Option<PathBuf>,
        /// What was given back.
        given_back: Bytes,
        /// How many excess fragments the runways have saved, by the file's own rate before the first of them.
        prevented: u64,
        /// How many excess fragments the file has all the same: something for mending.
        excess: u64,
    },
    /// A file fragmented that got no runway, or before it got one, and is quiet now: something for mending.
    Fragmented {
        /// Which file.
        file: FileKey,
        /// Its name at that moment, when it has one.
        path: Option<PathBuf>,
        /// How many excess fragments it has.
        excess: u64,
    },
    /// Space was needed: runways were given back before their files were closed.
    Yielded {
        /// How much.
        given_back: Bytes,
    },
    /// New files in a directory of XFS inherit an extent-size hint from now on.
    Hinted {
        /// Where.
        directory: PathBuf,
        /// The hint.
        hint: Bytes,
    },
    /// Signals were lost: some files may have fragmented unseen.
    Lost {
        /// How many.
        signals: u64,
    },
}

/// Told of what happens. Called from many threads, and must not block: it counts or queues.
pub trait Sink: Send + Sync {
    /// Something happened on the volume mounted at `point`.
    fn happened(&self, point: &Path, happening: &Happening);
}
