//! Decides which directories on XFS should get an extent-size hint that new files inherit.
//!
//! Owns the evidence, the decision, and the record by which hints can be removed. Never sets a hint: it says what to
//! set, and receives the previous value. It is off by default, because a hint stays when the service is removed.

use super::{Forgotten, Settings};
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const VERSION: u32 = 1;
/// Directories that evidence is kept of; those that were given a hint do not count, for they must not be forgotten.
const DIRECTORIES: usize = 1024;
/// No hint is longer.
const LONGEST: u64 = 16 * MIB;
/// Longer paths are no directories for hints.
const PATH: usize = 4096;
const SIZES: usize = 8;

/// The directories of XFS volumes whose files fragment through direct writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HintBook {
    directories: BTreeMap<String, Evidence>,
    time: u64,
}

/// A hint that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetHint {
    /// What was set.
    pub hint: Bytes,
    /// What new files inherited before; nothing when there was no such hint.
    pub before: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Evidence {
    files: u64,
    sizes: Vec<Bytes>,
    last: u64,
    set: Option<SetHint>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    directories: BTreeMap<String, Evidence>,
}

#[derive(Deserialize)]
struct SavedVersion {
    version: u32,
}

impl HintBook {
    /// A file of `directory` was settled that had fragmented by direct writes before its first runway, at `size`.
    /// `directory` is an absolute path; those that are no UTF-8 get no hints.
    pub fn learn(&mut self, directory: &str, size: Bytes) {
        if directory.len() > PATH {
            return;
        }
        self.time = self.time.saturating_add(1);
        let evidence = self.directories.entry(directory.to_owned()).or_default();
        evidence.files = evidence.files.saturating_add(1);
        evidence.last = self.time;
        if evidence.sizes.len() >= SIZES {
            evidence.sizes.remove(0);
        }
        evidence.sizes.push(size);
        self.forget();
    }

    /// The hint that `directory` should be given now: a power of two not above the usual size of its files, so that none
    /// is given space which it does not fill; none when it has one of ours, or the evidence does not suffice.
    #[must_use]
    pub fn wanted(&self, directory: &str, settings: &Settings) -> Option<Bytes> {
        let evidence = self.directories.get(directory).filter(|evidence| evidence.set.is_none())?;
        if !settings.xfs_hint || evidence.files < u64::from(settings.xfs_hint_files) {
            return None;
        }
        let mut sizes = evidence.sizes.clone();
        sizes.sort_unstable();
        let usual = sizes.get(sizes.len() / 2)?.0.min(LONGEST);
        let log2 = usual.checked_ilog2()?;
        (usual >= MIB).then_some(Bytes(1 << log2))
    }

    /// A hint was set on `directory`.
    pub fn set(&mut self, directory: &str, set: SetHint) {
        self.directories.entry(directory.to_owned()).or_default().set = Some(set);
    }

    /// What was set, by directory: to be shown, and to be undone.
    pub fn all_set(&self) -> impl Iterator<Item = (&str, SetHint)> {
        self.directories.iter().filter_map(|(directory, evidence)| Some((directory.as_str(), evidence.set?)))
    }

    /// The hint of `directory` was removed (or the directory is gone). New evidence is needed to set it again.
    pub fn undone(&mut self, directory: &str) {
        self.directories.remove(directory);
    }

    /// The form in which it is saved: JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&Saved { version: VERSION, directories: self.directories.clone() }).unwrap_or_default()
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// When it cannot be read: then the record of what was set is lost to us, and must be kept for the administrator.
    pub fn from_json(saved: &[u8]) -> Result<Self, Forgotten> {
        let damaged = |error: serde_json::Error| Forgotten::Damaged { detail: error.to_string() };
        let SavedVersion { version } = serde_json::from_slice(saved).map_err(damaged)?;
        if version != VERSION {
            return Err(Forgotten::Version { found: version });
        }
        let Saved { directories, .. } = serde_json::from_slice(saved).map_err(damaged)?;
        let time = directories.values().map(|evidence| evidence.last).max().unwrap_or(0);
        let mut book = Self { directories, time };
        for evidence in book.directories.values_mut() {
            let surplus = evidence.sizes.len().saturating_sub(SIZES);
            evidence.sizes.drain(..surplus);
        }
        book.forget();
        Ok(book)
    }

    fn forget(&mut self) {
        let mut ages: Vec<u64> =
            self.directories.values().filter(|evidence| evidence.set.is_none()).map(|evidence| evidence.last).collect();
        if ages.len() <= DIRECTORIES {
            return;
        }
        ages.sort_unstable();
        let limit = ages.get(ages.len() - DIRECTORIES * 7 / 8).copied().unwrap_or(u64::MAX);
        self.directories.retain(|_, evidence| evidence.set.is_some() || evidence.last >= limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(files: u64, size: u64) -> HintBook {
        let mut book = HintBook::default();
        (0..files).for_each(|_| book.learn("/srv/video", Bytes(size)));
        book
    }

    fn on() -> Settings {
        Settings { xfs_hint: true, ..Settings::default() }
    }

    #[test]
    fn hints_are_off_unless_turned_on() {
        assert_eq!(book(100, 64 * MIB).wanted("/srv/video", &Settings::default()), None);
        assert_eq!(book(100, 64 * MIB).wanted("/srv/video", &on()), Some(Bytes(16 * MIB)));
    }

    #[test]
    fn a_directory_has_to_prove_itself_and_small_files_prove_nothing() {
        assert_eq!(book(7, 64 * MIB).wanted("/srv/video", &on()), None);
        assert_eq!(book(8, 64 * MIB).wanted("/srv/other", &on()), None);
        assert_eq!(book(8, 5 * MIB).wanted("/srv/video", &on()), Some(Bytes(4 * MIB)));
        assert_eq!(book(8, MIB - 1).wanted("/srv/video", &on()), None);
        assert_eq!(book(8, 0).wanted("/srv/video", &on()), None);
    }

    #[test]
    fn what_was_set_is_remembered_until_it_is_undone() {
        let mut book = book(8, 64 * MIB);
        let set = SetHint { hint: Bytes(16 * MIB), before: Some(Bytes(65536)) };
        book.set("/srv/video", set);
        assert_eq!(book.wanted("/srv/video", &on()), None);
        (0..5000).for_each(|other| book.learn(&format!("/srv/{other}"), Bytes(MIB)));
        let mut book = HintBook::from_json(&book.to_json()).unwrap();
        assert_eq!(book.all_set().collect::<Vec<_>>(), [("/srv/video", set)]);
        assert!(book.directories.len() <= DIRECTORIES + 1);
        book.undone("/srv/video");
        assert_eq!(book.all_set().count(), 0);
    }

    #[test]
    fn a_damaged_record_is_an_error_and_not_an_empty_one() {
        assert!(matches!(HintBook::from_json(b"{"), Err(Forgotten::Damaged { .. })));
        let future = br#"{"version":9,"directories":{}}"#;
        assert_eq!(HintBook::from_json(future), Err(Forgotten::Version { found: 9 }));
    }
}
