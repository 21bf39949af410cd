//! The types that sensor, policy and runways share. No I/O.

use longrun_layout::Bytes;
use longrun_sys::{ByteRange, DeviceNumber, FileHandle};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Nanoseconds of the monotonic clock: for intervals, never for dates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// A file of a mounted volume, identified by numbers of the kernel, so that renaming does not change its identity.
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

/// The name of the thread that wrote, as stored by the kernel: at most 15 bytes.
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

/// An event about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// When.
    pub at: Nanos,
    /// Which file.
    pub file: FileKey,
    /// Its length at that moment, including a direct write that is under way; 0 with [`SignalKind::Closed`], which
    /// does not report it.
    pub size: Bytes,
    /// Who wrote; a kernel thread when the data was written back later, no one where that is not told.
    pub by: ProcessName,
    /// What.
    pub kind: SignalKind,
}

impl Signal {
    /// A writer has closed `file`; nothing else is known about it.
    pub(crate) fn closed(file: FileKey, at: Nanos) -> Self {
        Self { at, file, size: Bytes(0), by: ProcessName::default(), kind: SignalKind::Closed }
    }
}

/// The kind of an event.
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
    /// The file is fragmented in a way that no runway would have prevented: the file system chose the places when it
    /// wrote the data back, or there are too few fragments so far. Mending may help. On XFS, which does not report
    /// the places then, it may also be contiguous.
    InPieces,
    /// The last writer that had an armed file open may have closed it. Others may have opened it since.
    Closed,
}

/// The source of events.
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

/// Why a fragmenting file gets no runway (now).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoRunway {
    /// The volume's free space is below the floor, runways hold their maximum of space, or their maximum number is
    /// reached.
    LowSpace,
    /// btrfs stores it compressed; preallocated space would be used uncompressed.
    Compressed,
    /// Another process may execute it.
    Executable,
    /// It has an extent-size hint: the file system takes care already.
    SizeHint,
    /// Immutable, append-only by attribute, encrypted, swap, or otherwise not to be touched.
    Attributes,
    /// Its times were set by hand: a preallocation would change them.
    TimesSet,
    /// Its owner, its group, its project or its subvolume has a limit on space: a runway would count as theirs.
    Quota,
    /// The kernel keeps such files in few pieces by itself.
    KeptWhole,
    /// The free space is in pieces hardly longer than the file's own: a runway would not help.
    ScatteredSpace,
    /// It already has one there. If it still fragments, it is overwritten in place (copy-on-write), or the signal is old.
    HasRunway,
    /// Excluded by configuration.
    Excluded,
    /// It is gone.
    Gone,
    /// The file system refused.
    Refused,
}

/// What prevention did or observed, for the history. Bytes are the blocks of the file system times their size.
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
        reason: NoRunway,
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
        /// How many excess fragments the file still has; mending can remove them.
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

/// Receives what prevention did or observed. It is called from many threads and must not block: it counts or queues.
pub trait Sink: Send + Sync {
    /// Something happened on the volume mounted at `point`.
    fn happened(&self, point: &Path, happening: &Happening);
}
