//! The files of one volume that have runways or signals, and the figures of the volume.
//!
//! Owns the accounting: what is held, what was granted, what was given back. Never does I/O.

use super::fill::Grain;
use super::record::{GiveBack, VolumeId};
use crate::policy::{FileKind, Growth, Pattern, Policy};
use crate::state::VolumeSnapshot;
use crate::{NoRunway, Watched};
use longrun_layout::Bytes;
use longrun_sys::FileHandle;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of files that were left alone, or are settled but still of interest; the least recently used are
/// forgotten.
const MOST_IDLE: usize = 4096;
/// Files of a volume that have a runway, at most: each is held in memory and in the journal until it is closed.
const MOST_GROWING: usize = 16_384;
/// A file that no one has told about for so long does not grow.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// Where a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has a runway.
    Growing,
    /// Its runway is given back. XFS never frees its own preallocation for such a file, so it is trimmed after
    /// each close.
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
    pub(super) left: BTreeMap<NoRunway, u64>,
}

/// What changes of a volume.
pub(super) struct Table {
    pub(super) policy: Policy,
    files: HashMap<FileHandle, Known>,
    held: Bytes,
    growing: usize,
    pub(super) figures: Figures,
}

/// A volume that is watched.
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
    /// Held while the extents of one runway are allocated behind each other.
    pub(super) filling: Mutex<Grain>,
    table: Mutex<Table>,
}

impl Volume {
    pub(super) fn new(watched: Watched, id: VolumeId, compressed: bool, policy: Policy) -> Self {
        let table = Table { policy, files: HashMap::new(), held: Bytes(0), growing: 0, figures: Figures::default() };
        Self {
            watched,
            id,
            compressed: AtomicBool::new(compressed),
            short: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            filling: Mutex::default(),
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
        let (held, grew) = (known.held, known.stage == Stage::Growing);
        let result = change(known);
        self.held = Bytes(self.held.0.saturating_sub(held.0).saturating_add(known.held.0));
        let grows = known.stage == Stage::Growing;
        self.growing = self.growing + usize::from(grows) - usize::from(grew);
        Some(result)
    }

    /// The file is known from now on; answers which one had to be forgotten for it.
    pub(super) fn know(&mut self, handle: FileHandle, known: Known) -> Option<FileHandle> {
        let forgotten = if known.stage == Stage::Growing { None } else { self.one_too_many() };
        self.forget(&handle);
        self.held.0 = self.held.0.saturating_add(known.held.0);
        self.growing += usize::from(known.stage == Stage::Growing);
        self.files.insert(handle, known);
        forgotten
    }

    pub(super) fn forget(&mut self, handle: &FileHandle) -> Option<Known> {
        let known = self.files.remove(handle)?;
        self.held = self.held.saturating_sub(known.held);
        self.growing -= usize::from(known.stage == Stage::Growing);
        Some(known)
    }

    /// Whether the maximum number of files with runways is reached.
    pub(super) fn is_full(&self) -> bool {
        self.growing >= MOST_GROWING
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Settings;

    fn table() -> Table {
        let policy = Policy::new(Settings::default()).unwrap();
        Table { policy, files: HashMap::new(), held: Bytes(0), growing: 0, figures: Figures::default() }
    }

    fn numbered(number: usize) -> FileHandle {
        FileHandle::new(1, &number.to_ne_bytes()).unwrap()
    }

    #[test]
    fn a_flood_of_files_is_bounded_whatever_becomes_of_them() {
        let (mut table, now) = (table(), Instant::now());
        for number in 0..2 * MOST_IDLE {
            let forgotten = table.know(numbered(number), Known::new(Stage::Left, now));
            assert_eq!(forgotten.is_some(), number >= MOST_IDLE);
        }
        assert_eq!(table.handles().len(), MOST_IDLE);
        // Grants turn files that were left into growing ones.
        for number in 0..MOST_GROWING {
            assert!(!table.is_full());
            table.know(numbered(number), Known::new(Stage::Left, now));
            table.change(&numbered(number), |known| known.stage = Stage::Growing);
        }
        assert!(table.is_full());
        assert_eq!(table.growing, table.growing().count());
        table.forget(&numbered(0));
        table.change(&numbered(1), |known| known.stage = Stage::Kept);
        table.know(numbered(2), Known::new(Stage::Kept, now));
        assert_eq!((table.growing, table.is_full()), (MOST_GROWING - 3, false));
        assert_eq!(table.growing, table.growing().count());
    }
}
