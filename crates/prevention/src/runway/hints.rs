//! Extent-size hints of XFS directories: set as the policy decides, recorded before, and removed on request.
//!
//! Owns the record `hints.json` in the state directory. Never changes a directory that already has a hint, never sets a
//! hint before its record is durable, and never touches a file.

use super::journal::Journal;
use crate::policy::{HintBook, SetHint, Settings};
use crate::{PreventionError, Watched};
use longrun_layout::Bytes;
use longrun_sys::{FileSystem, replace_file};
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NAME: &str = "hints.json";
const DAMAGED: &str = "hints.json.damaged";

/// The result of removing the hints of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HintsUndone {
    /// Directories that are as they were.
    pub restored: u64,
    /// Directories that are gone, or whose hint another process has changed since: left as they are.
    pub left: u64,
}

/// The record.
pub(crate) struct Hints {
    directory: PathBuf,
    book: Mutex<HintBook>,
}

impl Hints {
    /// Reads the record in the state directory. A record that cannot be read is renamed and kept. Earlier hints are then
    /// unknown, and directories that have one are left alone.
    pub(crate) fn open(directory: &Path) -> Self {
        let path = directory.join(NAME);
        let book = match fs::read(&path) {
            Ok(saved) => HintBook::from_json(&saved).unwrap_or_else(|reason| {
                let kept = directory.join(DAMAGED);
                let outcome = match fs::rename(&path, &kept) {
                    Ok(()) => format!("it was renamed to {}", kept.display()),
                    Err(error) => format!("renaming it to {} failed: {error}", kept.display()),
                };
                tracing::warn!("{}: {reason}; {outcome}", path.display());
                HintBook::default()
            }),
            Err(_) => HintBook::default(),
        };
        Self { directory: directory.to_owned(), book: Mutex::new(book) }
    }

    fn book(&self) -> MutexGuard<'_, HintBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file had to be helped. Answers which directory was given which hint for it, if one was.
    pub(crate) fn learn(
        &self,
        volume: &Watched,
        settings: &Settings,
        file: &Path,
        size: Bytes,
    ) -> Option<(PathBuf, Bytes)> {
        if volume.filesystem != FileSystem::Xfs || !settings.xfs_hint {
            return None;
        }
        let directory = file.parent()?;
        let name = directory.to_str()?;
        let mut book = self.book();
        book.learn(name, size);
        let hint = book.wanted(name, settings)?;
        let opened = open(volume, directory).ok()?;
        // The directory already has a hint.
        if longrun_sys::inherited_size_hint(&opened).ok()?.is_some() {
            return None;
        }
        book.set(name, SetHint { hint, before: None });
        let done = self.save(&book).and_then(|()| Ok(self.apply(&opened, Some(hint))?));
        if let Err(error) = done {
            tracing::warn!("{}: no extent-size hint: {error}", directory.display());
            book.undone(name);
            _ = self.save(&book);
            return None;
        }
        Some((directory.to_owned(), hint))
    }

    #[expect(clippy::unused_self, reason = "tests let it fail")]
    fn apply(&self, directory: &File, hint: Option<Bytes>) -> Result<(), longrun_sys::Errno> {
        #[cfg(test)]
        if faults::KILLED_BEFORE_SETTING.get() {
            return Ok(());
        }
        longrun_sys::set_inherited_size_hint(directory, hint)
    }

    /// Removes records of directories of this volume whose hint was never set, or was changed since.
    pub(crate) fn reconcile(&self, volume: &Watched) {
        let mut book = self.book();
        let stale: Vec<String> = Self::of_volume(&book, volume)
            .into_iter()
            .filter(|(name, set)| {
                let opened = open(volume, Path::new(name)).ok();
                opened.and_then(|opened| longrun_sys::inherited_size_hint(&opened).ok().flatten()) != Some(set.hint)
            })
            .map(|(name, _)| name)
            .collect();
        if !stale.is_empty() {
            stale.iter().for_each(|name| book.undone(name));
            _ = self.save(&book);
        }
    }

    /// Takes back all hints that were set on directories of the volume. Files keep what they have inherited.
    pub(crate) fn undo(&self, volume: &Watched) -> io::Result<HintsUndone> {
        let mut book = self.book();
        let mut undone = HintsUndone::default();
        for (name, set) in Self::of_volume(&book, volume) {
            let opened = match open(volume, Path::new(&name)) {
                Ok(opened) => Some(opened),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            match opened {
                Some(opened) if longrun_sys::inherited_size_hint(&opened)? == Some(set.hint) => {
                    longrun_sys::set_inherited_size_hint(&opened, set.before)?;
                    undone.restored += 1;
                }
                _ => undone.left += 1,
            }
            book.undone(&name);
        }
        self.save(&book)?;
        Ok(undone)
    }

    fn of_volume(book: &HintBook, volume: &Watched) -> Vec<(String, SetHint)> {
        let below = book.all_set().filter(|(name, _)| Path::new(name).starts_with(&volume.point));
        below.map(|(name, set)| (name.to_owned(), set)).collect()
    }

    /// Durable when this returns.
    fn save(&self, book: &HintBook) -> io::Result<()> {
        replace_file(&self.directory.join(NAME), &book.to_json())
    }
}

/// Takes back the hints of a volume while no prevention runs from this state directory.
pub(crate) fn undo_hints_of(state_directory: &Path, volume: &Watched) -> Result<HintsUndone, PreventionError> {
    // Its lock keeps a running service from writing the record meanwhile.
    let _journal = Journal::open(state_directory)?;
    undo(&Hints::open(state_directory), volume)
}

/// As [`Hints::undo`], with the error that the facade gives.
pub(crate) fn undo(hints: &Hints, volume: &Watched) -> Result<HintsUndone, PreventionError> {
    let point = volume.point.clone();
    hints.undo(volume).map_err(|source| PreventionError::Volume { point, act: "undoing extent-size hints", source })
}

/// Opens a directory, which must lie on the volume itself and not behind a link or another mount.
fn open(volume: &Watched, directory: &Path) -> io::Result<File> {
    let opened = File::from(longrun_sys::open_trusted_directory(directory)?);
    if longrun_sys::mount_of_file(&opened)? == volume.mount { Ok(opened) } else { Err(longrun_sys::Errno::XDEV.into()) }
}

/// Switches by which tests show what happens in between.
#[cfg(test)]
mod faults {
    use std::cell::Cell;
    thread_local! {
        /// Killed when the record is durable and the hint not yet set.
        pub(super) static KILLED_BEFORE_SETTING: Cell<bool> = const { Cell::new(false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_lab::{LoopVolume, VolumeSpec};

    const MIB: u64 = 1 << 20;

    #[test]
    fn loop_a_hint_is_set_after_enough_files_inherited_and_undone() {
        let volume = LoopVolume::create(&VolumeSpec::xfs(512)).unwrap();
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let state = tempfile::tempdir().unwrap();
        let settings = Settings { xfs_hint: true, ..Settings::default() };
        let (ours, theirs) = (volume.mount_point().join("ours"), volume.mount_point().join("theirs"));
        for directory in [&ours, &theirs] {
            fs::create_dir(directory).unwrap();
        }
        let hint = |directory: &Path| longrun_sys::inherited_size_hint(File::open(directory).unwrap()).unwrap();
        longrun_sys::set_inherited_size_hint(File::open(&theirs).unwrap(), Some(Bytes(MIB))).unwrap();
        let hints = Hints::open(state.path());
        let learn = |hints: &Hints, settings: &Settings, directory: &Path| {
            (0..settings.xfs_hint_files)
                .filter_map(|_| hints.learn(&watched, settings, &directory.join("file"), Bytes(64 * MIB)))
                .collect::<Vec<_>>()
        };
        assert_eq!(learn(&hints, &Settings::default(), &ours), []);
        // Killed in between: nothing is set, and the next start forgets the record.
        faults::KILLED_BEFORE_SETTING.set(true);
        learn(&hints, &settings, &ours);
        faults::KILLED_BEFORE_SETTING.set(false);
        assert_eq!(hint(&ours), None);
        let hints = Hints::open(state.path());
        hints.reconcile(&watched);
        assert_eq!(learn(&hints, &settings, &ours), [(ours.clone(), Bytes(16 * MIB))]);
        assert_eq!(learn(&hints, &settings, &theirs), []);
        assert_eq!((hint(&ours), hint(&theirs)), (Some(Bytes(16 * MIB)), Some(Bytes(MIB))));
        let new = File::create_new(ours.join("new")).unwrap();
        assert!(longrun_sys::extended_attributes(&new).unwrap().has_size_hint());
        // Another process undoes it.
        let hints = Hints::open(state.path());
        hints.reconcile(&watched);
        assert_eq!(hints.undo(&watched).unwrap(), HintsUndone { restored: 1, left: 0 });
        assert_eq!((hint(&ours), hint(&theirs)), (None, Some(Bytes(MIB))));
        assert_eq!(Hints::open(state.path()).undo(&watched).unwrap(), HintsUndone::default());
    }
}
