//! The types of mending. No I/O.

use longrun_engine::{Permission, Turn};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Happening};
use longrun_sys::DeviceNumber;
use longrun_volume::mend::NotMended;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// When files are mended, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendSettings {
    /// How long a file must not have been written to.
    pub quiet: Duration,
    /// How long at most a file waits that will probably be deleted or written again soon; zero: no file waits for that.
    pub patience: Duration,
    /// The most bytes to write for mending, each day on each volume.
    pub daily_budget: Bytes,
    /// The most bytes to move for each fragment that a file is fewer.
    pub worth: Bytes,
    /// Nothing is mended for the time being; files wait.
    pub resting: bool,
    /// Where mending failed, nothing is mended for so long; twice as long after each failure more, up to an hour.
    pub after_failure: Duration,
    /// The most files that wait; of more, those with the least gain are forgotten.
    pub longest_queue: usize,
}

impl Default for MendSettings {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(5),
            patience: Duration::from_secs(60 * 60),
            daily_budget: Bytes(32 << 30),
            worth: Bytes(u64::MAX),
            resting: false,
            after_failure: Duration::from_secs(10),
            longest_queue: 10_000,
        }
    }
}

/// A file that is known to be fragmented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub file: FileKey,
    /// Its name when it was noticed, for reports.
    pub path: Option<PathBuf>,
    /// Excess fragments.
    pub excess: u64,
    /// Its length; looked up when it is not given.
    pub size: Option<Bytes>,
}

impl Candidate {
    /// What `happening` leaves for mending, if anything.
    #[must_use]
    pub fn of(happening: &Happening) -> Option<Self> {
        match happening {
            Happening::Settled { file, path, excess, .. } | Happening::Fragmented { file, path, excess } => {
                (*excess > 0).then(|| Self { file: *file, path: path.clone(), excess: *excess, size: None })
            }
            _ => None,
        }
    }
}

/// The result for a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MendEvent {
    /// It was mended.
    Mended {
        /// Which file.
        file: FileKey,
        /// Its name when it was noticed.
        path: Option<PathBuf>,
        /// Excess fragments before.
        before: u64,
        /// Excess fragments after.
        after: u64,
        /// Bytes written for it.
        moved: Bytes,
    },
    /// It was left as it is, for good.
    Left {
        /// Which file.
        file: FileKey,
        /// Its name when it was noticed.
        path: Option<PathBuf>,
        /// Excess fragments when it was noticed.
        excess: u64,
        /// Why.
        reason: NotMended,
        /// Bytes that were written for it anyway.
        moved: Bytes,
    },
    /// It could not be mended now, and is tried again later.
    Postponed {
        /// Which file.
        file: FileKey,
        /// Why.
        reason: NotMended,
        /// Bytes that were written for it anyway.
        moved: Bytes,
    },
    /// Mending it failed; the whole volume is left alone for a while, and tried again.
    Failed {
        /// Which file.
        file: FileKey,
        /// Its name when it was noticed.
        path: Option<PathBuf>,
        /// What went wrong.
        problem: String,
        /// How often mending has failed on the volume since it last went well.
        failures: u32,
        /// After which time it is tried again.
        again: Duration,
    },
    /// No file of the volume can be mended (any more): its candidates are forgotten.
    VolumeRefused {
        /// What is in the way.
        problem: String,
    },
    /// The queue was full: files were forgotten.
    Forgotten {
        /// How many.
        files: u64,
    },
}

/// Receives what mending does. The worker calls it; it must not block.
pub trait MendSink: Send + Sync {
    /// Something happened on the volume mounted at `point`.
    fn mending(&self, point: &Path, event: &MendEvent);
}

/// Decides whether the next chunk may be moved.
pub trait Governor: Send + Sync {
    /// About `next` bytes on the volume `device`.
    fn permission(&self, device: DeviceNumber, next: Bytes) -> Permission {
        let _ = (device, next);
        Permission::Go
    }

    /// How much may be done on one permission.
    fn turn(&self, device: DeviceNumber) -> Turn {
        let _ = device;
        Turn::UNLIMITED
    }
}

/// A governor that permits everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ungoverned;

impl Governor for Ungoverned {}

/// How many files wait for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For their turn: they could be mended now.
    pub turn: u64,
    /// To be quiet.
    pub quiet: u64,
    /// For the next attempt, because the last one came to nothing.
    pub tried: u64,
    /// For files that cost less.
    pub dear: u64,
    /// Because most files of their kind are soon deleted or written again.
    pub short_lived: u64,
    /// Because they fragmented again soon after they were mended.
    pub again: u64,
}

/// What mending has done, and what is waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendingSnapshot {
    /// Files that wait.
    pub queued: u64,
    /// Excess fragments that they have.
    pub queued_excess: u64,
    /// What they wait for.
    pub waits: Waits,
    /// A file is being mended now.
    pub at_work: bool,
    /// How long the current system call has not returned.
    pub silent: Duration,
    /// For how long there has been a file due to be mended without a break.
    pub behind: Duration,
    /// Files mended.
    pub mended: u64,
    /// Excess fragments that were removed from them.
    pub removed: u64,
    /// Files left for good.
    pub left: u64,
    /// Attempts that were put off.
    pub postponed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Bytes written.
    pub moved: Bytes,
}
