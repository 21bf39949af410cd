//! Options, figures and errors of prevention: what its callers give and get.

use crate::policy::SettingsError;
use crate::sensor::{Choice, SensorError};
use crate::{NoRunway, SensorKind};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The options of prevention.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the journal of runways lies. One prevention per directory.
    pub state_directory: PathBuf,
    /// Who notices growth.
    pub sensor: Choice,
    /// How many threads grant and trim.
    pub workers: usize,
    /// How long after the close of a file its excess is taken back: a process that executes the file it has just
    /// written must not meet us.
    pub debounce: Duration,
}

impl Options {
    /// Where the service keeps its state.
    pub const STATE_DIRECTORY: &str = "/var/lib/longrun";

    /// The defaults, with the journal in `state_directory`.
    #[must_use]
    pub fn new(state_directory: PathBuf) -> Self {
        Self { state_directory, sensor: Choice::default(), workers: 8, debounce: Duration::from_millis(500) }
    }
}

/// What was found of an earlier run when the watch of a volume began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Files in the journal.
    pub files: u64,
    /// Files that are as long as their data again (or have been deleted since).
    pub settled: u64,
    /// Files that another process has open: tried again later.
    pub open: u64,
    /// Given back.
    pub bytes: Bytes,
}

/// What happened to the runways of a volume, or of all volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GivenBack {
    /// Files whose runways were given back just now.
    pub files: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Files that another process still has open (or whose volume is gone): in the journal, for the next start.
    pub left_files: u64,
    /// What they hold at most.
    pub left_bytes: Bytes,
}

impl GivenBack {
    pub(crate) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.left_files += other.left_files;
        self.left_bytes += other.left_bytes;
    }
}

/// The figures of one volume since its watch began.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeSnapshot {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its number, `major:minor`.
    pub device: String,
    /// Its type.
    pub filesystem: longrun_sys::FileSystem,
    /// Files that have a runway now.
    pub runways: u64,
    /// What these hold beyond what is written, as far as is known.
    pub held: Bytes,
    /// Files without one that are or may be in pieces, to be looked at once they are quiet.
    pub to_look_at: u64,
    /// How many runways were granted.
    pub grants: u64,
    /// What was granted.
    pub granted: Bytes,
    /// What was given back.
    pub trimmed: Bytes,
    /// Files settled: closed and given back what they did not need.
    pub settled: u64,
    /// Excess fragments that were prevented: an estimate, by the rate of each file before its first runway.
    pub prevented: u64,
    /// Excess fragments of files that were examined, once settled or left alone and quiet.
    pub excess: u64,
    /// Signals answered with nothing, by reason.
    pub left: BTreeMap<NoRunway, u64>,
    /// Runways given back early because space was needed.
    pub yielded: Bytes,
    /// Below the floor now: nothing is granted.
    pub short_of_space: bool,
}

/// The time from a signal to its runway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reaction {
    /// How many were measured.
    pub count: u64,
    /// All of them together, in microseconds.
    pub total_us: u64,
    /// Half of them took no longer, in microseconds.
    pub p50_us: u64,
    /// 99 % took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// The state of the sensor, for `status`.
#[derive(Clone, Debug, Serialize)]
pub struct SensorSnapshot {
    /// Which.
    pub kind: SensorKind,
    /// Why this one, when another was tried first.
    pub reason: Option<String>,
    /// Signals that came.
    pub signals: u64,
    /// Events that the kernel could not deliver, and signals that were dropped because too many files waited.
    pub lost: u64,
    /// What ended it, when it is broken.
    pub broken: Option<String>,
}

/// The state of prevention.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// The volumes, by mount point.
    pub volumes: Vec<VolumeSnapshot>,
    /// Who notices growth.
    pub sensor: SensorSnapshot,
    /// Files waiting for a worker.
    pub queue: u64,
    /// Reaction times.
    pub reaction: Reaction,
    /// Files in the journal, those of absent volumes included.
    pub journal_files: u64,
    /// What is wrong with the journal; nothing is granted then.
    pub journal_trouble: Option<String>,
}

/// The figures at the end of prevention.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// As it stands, everything given back that could be.
    pub last: Snapshot,
    /// What was given back at the end, and what was not.
    pub given_back: GivenBack,
}

/// Why prevention cannot run.
#[derive(Debug, thiserror::Error)]
pub enum PreventionError {
    /// Another process has the state directory.
    #[error("{path}: another longrun process uses this state directory; stop it first, or use another state directory")]
    InUse {
        /// The lock.
        path: PathBuf,
    },
    /// The journal cannot be used.
    #[error(
        "{path}: {act} failed: {source}; prevention does not run without its journal: check the directory, or use \
         another one"
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No source of signals works.
    #[error("no sensor for growing files is available: {source}; run longrun as root, outside of a container")]
    Sensor {
        /// The reason.
        #[from]
        source: SensorError,
    },
    /// The settings are invalid.
    #[error("invalid settings: {source}")]
    Settings {
        /// Which.
        #[from]
        source: SettingsError,
    },
    /// The system gives no threads.
    #[error("starting threads failed: {source}; raise the limit on processes, or configure fewer workers")]
    Threads {
        /// The kernel's answer.
        source: io::Error,
    },
    /// The volume cannot be watched.
    #[error("{point}: {act} failed: {source}; check that it is mounted read-write, then try again", point = point.display())]
    Volume {
        /// Where it is, or was, mounted.
        point: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is not watched.
    #[error("the volume {device} is not watched; watch it first")]
    Unknown {
        /// Its number.
        device: DeviceNumber,
    },
    /// It is watched already.
    #[error("{point}: this volume is already watched, at {known}", point = point.display(), known = known.display())]
    Known {
        /// Where it was to be.
        point: PathBuf,
        /// Where it is.
        known: PathBuf,
    },
}
