//! The facade: one value that looks after any number of volumes.
//!
//! Owns the threads, and the order of starting and stopping them. Never decides about a runway, never touches a file: that is
//! the work of [`crate::policy`] and [`crate::runway`].

use crate::policy::{Settings, SettingsError};
pub use crate::runway::HintsUndone;
use crate::sensor::{Choice, Sensor, SensorError};
use crate::{FileKey, LeaveReason, SensorKind, Sink, Watched};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the journal of runways lies. One prevention per directory.
    pub state_directory: PathBuf,
    /// Who notices growth.
    pub sensor: Choice,
    /// How many threads grant and trim.
    pub workers: usize,
    /// How long after the close of a file its excess is taken back: whoever executes what he has just written is not to meet
    /// us.
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

/// What was found of an earlier run when a volume began to be looked after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Files in the journal.
    pub files: u64,
    /// Files that are as long as their data again (or have been deleted since).
    pub settled: u64,
    /// Files that somebody has open: tried again later.
    pub open: u64,
    /// Given back.
    pub bytes: Bytes,
}

/// What became of the runways of a volume, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GivenBack {
    /// Files whose runways were given back just now.
    pub files: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Files that somebody still has open (or whose volume is gone): in the journal, for the next start.
    pub left_files: u64,
    /// What they hold at most.
    pub left_bytes: Bytes,
}

/// The figures of one volume since it is looked after.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeSnapshot {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its number, `major:minor`.
    pub device: String,
    /// Its type.
    pub filesystem: crate::FileSystem,
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
    /// Excess fragments that did not come to be.
    pub prevented: u64,
    /// Excess fragments that did, in files settled or left alone.
    pub excess: u64,
    /// Signals answered with nothing, by reason.
    pub left: BTreeMap<LeaveReason, u64>,
    /// Runways given back early because space was needed.
    pub yielded: Bytes,
    /// Below the floor now: nothing is granted.
    pub short_of_space: bool,
}

/// From the signal to the runway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reaction {
    /// How many were measured.
    pub count: u64,
    /// Half of them took no longer, in microseconds.
    pub p50_us: u64,
    /// 99 % took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// The sensor, for `status`.
#[derive(Clone, Debug, Serialize)]
pub struct SensorSnapshot {
    /// Which.
    pub kind: SensorKind,
    /// Why this one, when another was tried first.
    pub reason: Option<String>,
    /// Signals that came.
    pub signals: u64,
    /// Events that the kernel could not deliver.
    pub lost: u64,
    /// What ended it, when it is broken.
    pub broken: Option<String>,
}

/// How things stand.
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

/// The end.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// As it stands, everything given back that could be.
    pub last: Snapshot,
    /// What was given back at the end, and what was not.
    pub given_back: GivenBack,
}

/// Why prevention cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum PreventionError {
    /// Another process has the state directory.
    #[error(
        "{path}: another longrun looks after runways from here already; stop it first, or name another state directory"
    )]
    InUse {
        /// The lock.
        path: PathBuf,
    },
    /// The journal cannot be used.
    #[error(
        "{path}: {act} failed: {source}; nothing is granted without a journal: see to the directory, or name another"
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
    #[error("nobody tells which files grow: {source}; run it as root, outside of a container")]
    Sensor {
        /// The reason.
        #[from]
        source: SensorError,
    },
    /// The settings make no sense.
    #[error("the settings make no sense: {source}")]
    Settings {
        /// Which.
        #[from]
        source: SettingsError,
    },
    /// The system gives no threads.
    #[error("starting threads failed: {source}; raise the limit of processes, or choose fewer workers")]
    Threads {
        /// The kernel's answer.
        source: io::Error,
    },
    /// The volume cannot be looked after.
    #[error("{point}: {act} failed: {source}; mount it (writable), then try again", point = point.display())]
    Volume {
        /// Where it is, or was, mounted.
        point: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is not looked after.
    #[error("the volume {device} is not looked after; watch it first")]
    Unknown {
        /// Its number.
        device: DeviceNumber,
    },
    /// It is looked after already.
    #[error("{point}: is looked after already, at {known}", point = point.display(), known = known.display())]
    Known {
        /// Where it was to be.
        point: PathBuf,
        /// Where it is.
        known: PathBuf,
    },
}

/// Looks after volumes until it is stopped. Dropping it stops it too.
pub struct Prevention {
    core: Arc<crate::runway::Core>,
}

impl Prevention {
    /// Begins, with no volume yet.
    ///
    /// # Errors
    /// [`PreventionError`]: another process has the state directory, or no sensor works.
    pub fn start(options: Options, sink: Arc<dyn Sink>) -> Result<Self, PreventionError> {
        Ok(Self { core: crate::runway::Core::start(options, sink)? })
    }

    /// As [`Self::start`], with a source of signals of one's own.
    ///
    /// # Errors
    /// [`PreventionError`]: another process has the state directory.
    pub fn start_with(
        options: &Options,
        sensor: Arc<dyn Sensor>,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, PreventionError> {
        Ok(Self { core: crate::runway::Core::start_with(options, sensor, sink)? })
    }

    /// Begins to look after a volume; what an earlier run left on it is given back first.
    ///
    /// # Errors
    /// [`PreventionError`]; the volume is then not looked after.
    pub fn watch(&self, volume: &Watched, settings: Settings) -> Result<Swept, PreventionError> {
        self.core.watch(volume, settings)
    }

    /// Gives a volume other settings. What has been granted stays.
    ///
    /// # Errors
    /// [`PreventionError::Unknown`].
    pub fn adjust(&self, device: DeviceNumber, settings: Settings) -> Result<(), PreventionError> {
        self.core.adjust(device, settings)
    }

    /// Ends looking after a volume: what nobody has open is given back, the rest stays in the journal. Of an unknown volume
    /// nothing is given back.
    pub fn unwatch(&self, device: DeviceNumber) -> GivenBack {
        self.core.unwatch(device)
    }

    /// Takes back the extent-size hints that were set on directories of a volume; files keep what they have inherited.
    ///
    /// # Errors
    /// [`PreventionError`]; what was not taken back stays recorded.
    pub fn undo_hints(&self, device: DeviceNumber) -> Result<HintsUndone, PreventionError> {
        self.core.undo_hints(device)
    }

    /// As [`Self::undo_hints`], while no prevention runs from this state directory.
    ///
    /// # Errors
    /// [`PreventionError::InUse`] while one does, among others.
    pub fn undo_hints_of(state_directory: &Path, volume: &Watched) -> Result<HintsUndone, PreventionError> {
        crate::runway::undo_hints_of(state_directory, volume)
    }

    /// How things stand.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Whether a file has no runway and has not been heard of for a while: mending may begin.
    #[must_use]
    pub fn quiet(&self, file: &FileKey) -> bool {
        self.core.quiet(file)
    }

    /// Gives everything back that nobody has open, and ends.
    #[must_use]
    pub fn stop(self) -> Totals {
        self.core.stop()
    }
}

impl Drop for Prevention {
    fn drop(&mut self) {
        // A second stop finds nothing to do.
        drop(self.core.stop());
    }
}
