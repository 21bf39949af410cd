//! Reads the trees of one volume, and translates the kernel's errors.
//!
//! Owns the buffer, and the name of the volume in errors. Never interprets an item.

use super::items::{FIRST_OBJECT, LAST_OBJECT};
use super::model::Subvolume;
use longrun_engine::{Progress, VolumeError};
use longrun_layout::Bytes;
use longrun_sys::{Errno, TreeId, TreeItem, TreeKey, TreeReader, Visit};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Between two looks at whether to go on.
const ITEMS_BETWEEN_LOOKS: u32 = 4096;
/// Between two looks of the other readers at whether the first gives way: some requests, if nothing is in memory.
const ITEMS_BETWEEN_GATES: u32 = 512;

/// Who reads the same tree at the same time gives way at the same time: one of them asks, and meanwhile the others stop.
#[derive(Debug, Default)]
struct Gate(RwLock<()>);

impl Gate {
    /// Returns when no one gives way.
    fn pass(&self) {
        drop(self.0.read().unwrap_or_else(PoisonError::into_inner));
    }

    /// Does `wait` while no one passes.
    fn closed<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _closed = self.0.write().unwrap_or_else(PoisonError::into_inner);
        wait()
    }
}

/// The trees of a volume.
pub(super) struct Trees<'a> {
    pub(super) volume: &'a File,
    pub(super) path: &'a Path,
    pub(super) progress: &'a dyn Progress,
    reader: TreeReader,
    gate: Arc<Gate>,
}

/// Trees that are smaller are read in one go.
const LEAST_FOR_PARTS: Bytes = Bytes(1 << 20);
/// How many parts are read at the same time.
const READERS: u64 = 4;
/// Between two looks at whether the readers are done.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl<'a> Trees<'a> {
    pub(super) fn new(volume: &'a File, path: &'a Path, progress: &'a dyn Progress) -> Self {
        Self { volume, path, progress, reader: TreeReader::default(), gate: Arc::default() }
    }

    /// Visits a part of a tree; false when there is no such tree (any more).
    pub(super) fn visit(
        &mut self,
        tree: TreeId,
        first: TreeKey,
        last: TreeKey,
        mut visit: impl FnMut(TreeItem<'_>) -> Visit,
    ) -> Result<bool, VolumeError> {
        let (mut until_look, mut interrupted) = (0, false);
        let visited = self.reader.for_each_item(self.volume, tree, first, last, |item| {
            if until_look == 0 {
                until_look = ITEMS_BETWEEN_LOOKS;
                self.gate.closed(|| self.progress.give_way());
                interrupted = self.progress.cancelled();
                if interrupted {
                    return Visit::Stop;
                }
            }
            until_look -= 1;
            visit(item)
        });
        match visited {
            Ok(()) if interrupted => Err(VolumeError::Interrupted),
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("reading the trees of the volume")(errno)),
        }
    }

    /// The tree of a subvolume in parts to be read at the same time: by one reader alone, each node would be waited for. A
    /// small tree is one part.
    pub(super) fn parts(&mut self, subvolume: &Subvolume) -> Result<Vec<(TreeKey, TreeKey)>, VolumeError> {
        let whole = (TreeKey::first_of(FIRST_OBJECT), TreeKey::last_of(LAST_OBJECT));
        if subvolume.tree_bytes < LEAST_FOR_PARTS {
            return Ok(vec![whole]);
        }
        let (mut least, mut beyond) = (FIRST_OBJECT, LAST_OBJECT);
        // Between these lies the number of the last file.
        let mut step = 1u64 << 16;
        while least + 1 < beyond {
            let middle = if beyond == LAST_OBJECT { least.saturating_add(step) } else { least + (beyond - least) / 2 };
            let middle = middle.min(beyond - 1);
            step = step.saturating_mul(2);
            match self.reader.has_items(self.volume, TreeId(subvolume.id.0), TreeKey::first_of(middle), whole.1) {
                Ok(true) => least = middle,
                Ok(false) => beyond = middle,
                Err(Errno::NOENT) => return Ok(vec![whole]),
                Err(errno) => return Err(self.failed("reading the trees of the volume")(errno)),
            }
        }
        Ok(cut(least))
    }

    /// Visits parts of a tree at the same time, each into a `new` collection; answers with these in the order of the parts.
    /// `seen` receives what the first part has. No collections when there is no such tree (any more).
    pub(super) fn visit_parts<T: Send>(
        &mut self,
        tree: TreeId,
        parts: &[(TreeKey, TreeKey)],
        new: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, &TreeItem<'_>) -> Visit + Sync,
        mut seen: impl FnMut(&TreeItem<'_>),
    ) -> Result<Vec<T>, VolumeError> {
        let Some(((first, last), others)) = parts.split_first() else { return Ok(Vec::new()) };
        let (stop, volume) = (&AtomicBool::new(false), self.volume);
        let (new, take) = (&new, &take);
        let gate = &Arc::clone(&self.gate);
        let found = std::thread::scope(|threads| -> Result<_, VolumeError> {
            let read_other = |(first, last): (TreeKey, TreeKey)| {
                let (mut collection, mut until_gate) = (new(), 0);
                let visited = TreeReader::default().for_each_item(volume, tree, first, last, |item| {
                    if until_gate == 0 {
                        until_gate = ITEMS_BETWEEN_GATES;
                        gate.pass();
                    }
                    until_gate -= 1;
                    if stop.load(Ordering::Relaxed) { Visit::Stop } else { take(&mut collection, &item) }
                });
                visited.map(|()| collection)
            };
            let readers: Vec<_> = others.iter().map(|part| threads.spawn(move || read_other(*part))).collect();
            let mut collection = new();
            let visited = self.visit(tree, *first, *last, |item| {
                seen(&item);
                take(&mut collection, &item)
            });
            while visited.is_ok() && readers.iter().any(|reader| !reader.is_finished()) {
                if self.progress.cancelled() {
                    stop.store(true, Ordering::Relaxed);
                    return Err(VolumeError::Interrupted);
                }
                gate.closed(|| self.progress.give_way());
                std::thread::sleep(BETWEEN_LOOKS);
            }
            stop.store(visited.is_err(), Ordering::Relaxed);
            let mut found = vec![visited.map(|is_there| is_there.then_some(collection))?];
            for reader in readers {
                found.push(match reader.join() {
                    Ok(Ok(collection)) => Some(collection),
                    Ok(Err(Errno::NOENT)) => None,
                    Ok(Err(errno)) => return Err(self.failed("reading the trees of the volume")(errno)),
                    Err(panic) => std::panic::resume_unwind(panic),
                });
            }
            Ok(found)
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) fn failed(&self, act: &'static str) -> impl FnOnce(Errno) -> VolumeError + use<> {
        refused(self.path, act)
    }

    pub(super) fn damaged(&self, detail: impl Into<String>) -> VolumeError {
        VolumeError::Damaged { path: self.path.to_owned(), filesystem: "btrfs".to_owned(), detail: detail.into() }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> VolumeError {
        VolumeError::Unsupported { path: self.path.to_owned(), what: what.into() }
    }
}

/// Turns the kernel's answer to `act` on the volume that the user calls `path` into an error.
pub(super) fn refused(path: &Path, act: &'static str) -> impl FnOnce(Errno) -> VolumeError + use<> {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::PERM | Errno::ACCESS => VolumeError::NotPermitted { path, act: act.into() },
        errno => VolumeError::Io { path, act, source: errno.into() },
    }
}

/// The keys of a subvolume with files up to number `last` in parts of about as many numbers; the last part is open-ended.
fn cut(last: u64) -> Vec<(TreeKey, TreeKey)> {
    let step = (last.saturating_sub(FIRST_OBJECT) / READERS).max(1);
    let begin = |part: u64| FIRST_OBJECT.saturating_add(step.saturating_mul(part));
    (0..READERS)
        .map(|part| {
            let end = if part + 1 == READERS { LAST_OBJECT } else { begin(part + 1) - 1 };
            (TreeKey::first_of(begin(part)), TreeKey::last_of(end))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn while_one_reader_gives_way_the_others_stop() {
        const OTHERS: u32 = 3;
        let (gate, stop, passed) = (Gate::default(), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..OTHERS {
                threads.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        gate.pass();
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while passed.load(Ordering::SeqCst) < 10 {
                std::thread::yield_now();
            }
            let meanwhile = gate.closed(|| {
                let before = passed.load(Ordering::SeqCst);
                std::thread::sleep(BETWEEN_LOOKS * 4);
                passed.load(Ordering::SeqCst) - before
            });
            assert!(meanwhile <= OTHERS, "each at most what it had begun: {meanwhile}");
            let before = passed.load(Ordering::SeqCst);
            while passed.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn the_parts_of_a_tree_are_all_of_it_and_no_key_is_in_two() {
        for last in [FIRST_OBJECT, 257, 300, 1 << 20, LAST_OBJECT] {
            let parts = cut(last);
            assert_eq!(parts.first().unwrap().0, TreeKey::first_of(FIRST_OBJECT));
            assert_eq!(parts.last().unwrap().1, TreeKey::last_of(LAST_OBJECT));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].1.next(), Some(pair[1].0), "{last}");
            }
        }
    }
}
