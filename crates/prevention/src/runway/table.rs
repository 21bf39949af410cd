//! The files of one volume that we have to do with, and its figures.
//!
//! Owns the reckoning: what is held, what was granted, what was given back. Never does I/O.

use super::record::{GiveBack, VolumeId};
use crate::policy::{FileKind, Growth, Pattern, Policy};
use crate::prevention::VolumeSnapshot;
use crate::{LeaveReason, Watched};
use longrun_layout::Bytes;
use longrun_sys::FileHandle;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files that were left alone, or are settled and of interest still, at most; those heard of least recently are forgotten.
const MOST_IDLE: usize = 4096;
/// A file that nobody has told about for so long does not grow.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// Where a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has a runway.
    Growing,
    /// Its runway is given back. XFS keeps for good what it preallocates for such a file, so it is trimmed after each close.
    Kept,
    /// It fragments and was left alone: to be looked at when it is quiet.
    Left,
}

/// A file that we have to do with.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) stage: Stage,
    pub(super) growth: Growth,
    pub(super) kind: FileKind,
    pub(super) path: Option<PathBuf>,
    pub(super) give_back: Vec<GiveBack>,
    pub(super) pattern: Pattern,
    /// Granted altogether since it was last settled.
    pub(super) granted: Bytes,
    /// What of it is not written yet, as far as is known.
    pub(super) held: Bytes,
    /// When it was heard of last.
    pub(super) heard: Instant,
    /// When it is to be looked at next; what the clock has for it otherwise is out of date.
    pub(super) due: Option<Instant>,
    /// How often it was looked at in vain.
    pub(super) tries: u32,
}

impl Known {
    pub(super) fn new(stage: Stage, now: Instant) -> Self {
        Self {
            stage,
            growth: Growth::default(),
            kind: FileKind::default(),
            path: None,
            give_back: Vec::new(),
            pattern: Pattern::Appended,
            granted: Bytes(0),
            held: Bytes(0),
            heard: now,
            due: None,
            tries: 0,
        }
    }
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) grants: u64,
    pub(super) granted: Bytes,
    pub(super) trimmed: Bytes,
    pub(super) settled: u64,
    pub(super) prevented: u64,
    pub(super) excess: u64,
    pub(super) yielded: Bytes,
    pub(super) left: BTreeMap<LeaveReason, u64>,
}

/// What changes of a volume.
pub(super) struct Table {
    pub(super) policy: Policy,
    files: HashMap<FileHandle, Known>,
    held: Bytes,
    pub(super) figures: Figures,
}

/// A volume that is looked after.
pub(super) struct Volume {
    pub(super) watched: Watched,
    pub(super) id: VolumeId,
    /// btrfs: what is written is stored compressed unless the file says otherwise.
    pub(super) compressed: AtomicBool,
    /// Free space is below the floor.
    pub(super) short: AtomicBool,
    /// Free space is near the floor: what is closed gives back at once.
    pub(super) tight: AtomicBool,
    /// It is being let go: nothing is granted any more.
    pub(super) leaving: AtomicBool,
    table: Mutex<Table>,
}

impl Volume {
    pub(super) fn new(watched: Watched, id: VolumeId, compressed: bool, policy: Policy) -> Self {
        let table = Table { policy, files: HashMap::new(), held: Bytes(0), figures: Figures::default() };
        Self {
            watched,
            id,
            compressed: AtomicBool::new(compressed),
            short: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            table: Mutex::new(table),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self) -> VolumeSnapshot {
        let table = self.table();
        let figures = table.figures.clone();
        VolumeSnapshot {
            point: self.watched.point.clone(),
            device: self.watched.device.to_string(),
            filesystem: self.watched.filesystem,
            runways: table.growing().count() as u64,
            to_look_at: table.files.values().filter(|known| known.stage == Stage::Left).count() as u64,
            held: table.held,
            grants: figures.grants,
            granted: figures.granted,
            trimmed: figures.trimmed,
            settled: figures.settled,
            prevented: figures.prevented,
            excess: figures.excess,
            left: figures.left,
            yielded: figures.yielded,
            short_of_space: self.short.load(Ordering::Relaxed),
        }
    }
}

impl Table {
    pub(super) fn get(&self, handle: &FileHandle) -> Option<&Known> {
        self.files.get(handle)
    }

    /// Changes what is known of a file, and reckons again what is held.
    pub(super) fn change<R>(&mut self, handle: &FileHandle, change: impl FnOnce(&mut Known) -> R) -> Option<R> {
        let known = self.files.get_mut(handle)?;
        let before = known.held;
        let result = change(known);
        self.held = Bytes(self.held.0.saturating_sub(before.0).saturating_add(known.held.0));
        Some(result)
    }

    /// The file is known from now on; answers which one had to be forgotten for it.
    pub(super) fn know(&mut self, handle: FileHandle, known: Known) -> Option<FileHandle> {
        let forgotten = if known.stage == Stage::Growing { None } else { self.one_too_many() };
        self.held.0 = self.held.0.saturating_add(known.held.0);
        if let Some(old) = self.files.insert(handle, known) {
            self.held = self.held.saturating_sub(old.held);
        }
        forgotten
    }

    pub(super) fn forget(&mut self, handle: &FileHandle) -> Option<Known> {
        let known = self.files.remove(handle)?;
        self.held = self.held.saturating_sub(known.held);
        Some(known)
    }

    fn one_too_many(&mut self) -> Option<FileHandle> {
        let idle = self.files.iter().filter(|(_, known)| known.stage != Stage::Growing);
        if idle.clone().count() < MOST_IDLE {
            return None;
        }
        let oldest = *idle.min_by_key(|(_, known)| known.heard)?.0;
        self.forget(&oldest);
        Some(oldest)
    }

    pub(super) fn growing(&self) -> impl Iterator<Item = (&FileHandle, &Known)> {
        self.files.iter().filter(|(_, known)| known.stage == Stage::Growing)
    }

    pub(super) fn handles(&self) -> HashSet<FileHandle> {
        self.files.keys().copied().collect()
    }

    pub(super) fn held(&self) -> Bytes {
        self.held
    }

    /// Whether the file has no runway and does not grow.
    pub(super) fn quiet(&self, handle: &FileHandle, now: Instant) -> bool {
        self.files
            .get(handle)
            .is_none_or(|known| known.stage != Stage::Growing && now.saturating_duration_since(known.heard) >= QUIET)
    }
}
