//! The results of earlier files of each kind, so that the first runway of a similar file has the right length.

use super::FileKind;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the saved form.
const VERSION: u32 = 1;
/// Kinds that are remembered at most; those not seen for longest go first.
const KINDS: usize = 8192;
/// Sizes that are remembered of each kind: old ones lose their say.
const SIZES: usize = 8;
/// A saved history longer than this is not ours.
const LONGEST: usize = 64 << 20;

/// How files of a kind grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// At their end.
    Appended,
    /// At scattered places of their holes.
    Scattered,
}

/// A file whose runways were settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its kind.
    pub kind: FileKind,
    /// How large it became.
    pub size: Bytes,
    /// How it grew.
    pub pattern: Pattern,
}

/// The expected growth of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Most files of its kind became no larger.
    pub size: Bytes,
    /// How many files that is drawn from.
    pub files: u64,
    /// How most of them grew.
    pub pattern: Pattern,
}

/// Why a saved history was not used. Prevention then starts to learn again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forgotten {
    /// It is damaged.
    #[error("the learned history cannot be read: {detail}; learning starts again")]
    Damaged {
        /// Where.
        detail: String,
    },
    /// Another version of Longrun wrote it.
    #[error("the learned history has version {found}, but this program reads version {VERSION}; learning starts again")]
    Version {
        /// Its version.
        found: u32,
    },
}

/// The results of earlier files of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    kinds: BTreeMap<FileKind, Entry>,
    /// Counts the files learned: the clock by which kinds age.
    time: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The last few, oldest first.
    sizes: Vec<Bytes>,
    files: u64,
    scattered: u64,
    last: u64,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    kinds: Vec<SavedKind>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedKind {
    kind: FileKind,
    entry: Entry,
}

#[derive(Deserialize)]
struct SavedVersion {
    version: u32,
}

impl History {
    /// A file has ended as `ended`.
    pub fn learn(&mut self, ended: &Ended) {
        self.time = self.time.saturating_add(1);
        for (kind, _) in lookups(&ended.kind) {
            let fresh = Entry { sizes: Vec::new(), files: 0, scattered: 0, last: 0 };
            let entry = self.kinds.entry(kind).or_insert(fresh);
            if entry.sizes.len() >= SIZES {
                entry.sizes.remove(0);
            }
            entry.sizes.push(ended.size);
            entry.files = entry.files.saturating_add(1);
            entry.scattered = entry.scattered.saturating_add(u64::from(ended.pattern == Pattern::Scattered));
            entry.last = self.time;
        }
        self.forget();
    }

    /// What to expect of a file of this kind: of the most specific kind that enough is known about.
    #[must_use]
    pub fn expect(&self, kind: &FileKind) -> Option<Expectation> {
        lookups(kind).into_iter().find_map(|(kind, evidence)| {
            let entry = self.kinds.get(&kind).filter(|entry| entry.files >= evidence)?;
            let mut sizes = entry.sizes.clone();
            sizes.sort_unstable();
            // The upper quartile: one file that was huge does not count, unless there was only one.
            let at = (sizes.len() * 3).div_ceil(4).checked_sub(1)?;
            let pattern = if entry.scattered > entry.files / 2 { Pattern::Scattered } else { Pattern::Appended };
            Some(Expectation { size: *sizes.get(at)?, files: entry.files, pattern })
        })
    }

    /// How many kinds are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The form in which it is saved: JSON, the same for the same history.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let kinds = self.kinds.iter().map(|(kind, entry)| SavedKind { kind: kind.clone(), entry: entry.clone() });
        serde_json::to_vec(&Saved { version: VERSION, kinds: kinds.collect() }).unwrap_or_default()
    }

    /// Reads what [`Self::to_json`] wrote. What cannot be read is an empty history, with the reason.
    #[must_use]
    pub fn from_json(saved: &[u8]) -> (Self, Option<Forgotten>) {
        match Self::parse(saved) {
            Ok(history) => (history, None),
            Err(reason) => (Self::default(), Some(reason)),
        }
    }

    fn parse(saved: &[u8]) -> Result<Self, Forgotten> {
        let damaged = |detail: String| Forgotten::Damaged { detail };
        if saved.len() > LONGEST {
            return Err(damaged(format!("it is {} bytes long", saved.len())));
        }
        let SavedVersion { version } = serde_json::from_slice(saved).map_err(|e| damaged(e.to_string()))?;
        if version != VERSION {
            return Err(Forgotten::Version { found: version });
        }
        let saved: Saved = serde_json::from_slice(saved).map_err(|e| damaged(e.to_string()))?;
        let mut history = Self::default();
        for SavedKind { kind, mut entry } in saved.kinds {
            let surplus = entry.sizes.len().saturating_sub(SIZES);
            entry.sizes.drain(..surplus);
            history.time = history.time.max(entry.last);
            history.kinds.insert(kind, entry);
        }
        history.forget();
        Ok(history)
    }

    /// Drops the kinds not seen for longest, an eighth at once, when there are too many.
    fn forget(&mut self) {
        if self.kinds.len() <= KINDS {
            return;
        }
        let mut ages: Vec<u64> = self.kinds.values().map(|entry| entry.last).collect();
        ages.sort_unstable();
        let surplus = self.kinds.len() - KINDS + KINDS / 8;
        let oldest = ages.get(surplus).copied().unwrap_or(u64::MAX);
        self.kinds.retain(|_, entry| entry.last >= oldest);
        // Entries of the same age (a damaged file can have many) must not keep it too long.
        while self.kinds.len() > KINDS {
            self.kinds.pop_last();
        }
    }
}

/// The kinds that a file belongs to, the most specific first, each with the files that it takes to believe it. What is
/// unknown of a file makes no kind.
fn lookups(kind: &FileKind) -> Vec<(FileKind, u64)> {
    let pick = |directory: bool, process: bool, evidence| {
        let part = |wanted: bool, text: &String| if wanted { text.clone() } else { String::new() };
        let unknown = (directory && kind.directory.is_empty()) || (process && kind.process.is_empty());
        let picked = FileKind {
            directory: part(directory, &kind.directory),
            extension: kind.extension.clone(),
            process: part(process, &kind.process),
        };
        (!unknown && picked != FileKind::default()).then_some((picked, evidence))
    };
    [pick(true, true, 1), pick(true, false, 1), pick(false, true, 2), pick(false, false, 4)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(directory: &str, extension: &str, process: &str) -> FileKind {
        FileKind { directory: directory.into(), extension: extension.into(), process: process.into() }
    }

    fn learned(files: &[(FileKind, u64)]) -> History {
        let mut history = History::default();
        for (kind, size) in files {
            history.learn(&Ended { kind: kind.clone(), size: Bytes(*size), pattern: Pattern::Appended });
        }
        history
    }

    #[test]
    fn one_file_is_enough_in_its_own_directory_and_more_are_needed_elsewhere() {
        let a = kind("/a", "log", "app");
        let mut history = learned(&[(a.clone(), 64)]);
        assert_eq!(history.expect(&a).map(|e| e.size), Some(Bytes(64)));
        assert_eq!(history.expect(&kind("/a", "log", "other")).map(|e| e.size), Some(Bytes(64)));
        assert_eq!(history.expect(&kind("/b", "log", "app")), None);
        history.learn(&Ended { kind: a.clone(), size: Bytes(64), pattern: Pattern::Appended });
        assert!(history.expect(&kind("/b", "log", "app")).is_some());
        assert_eq!(history.expect(&kind("/b", "log", "other")), None);
        (0..2).for_each(|_| history.learn(&Ended { kind: a.clone(), size: Bytes(64), pattern: Pattern::Appended }));
        assert!(history.expect(&kind("/b", "log", "other")).is_some());
        assert_eq!(history.expect(&kind("/b", "dat", "app")), None);
    }

    #[test]
    fn one_huge_file_among_many_does_not_count_and_old_ones_are_forgotten() {
        let a = kind("/a", "log", "app");
        let files: Vec<_> = [10, 10, 10, 1 << 40, 10, 10].map(|size| (a.clone(), size)).into();
        assert_eq!(learned(&files).expect(&a).map(|e| e.size), Some(Bytes(10)));
        let files: Vec<_> = [1 << 40; 20].into_iter().chain([10; 8]).map(|size| (a.clone(), size)).collect();
        assert_eq!(learned(&files).expect(&a).map(|e| e.size), Some(Bytes(10)));
    }

    #[test]
    fn it_stays_small_and_forgets_what_was_not_seen_for_longest() {
        let mut history = History::default();
        let frequent = kind("/often", "log", "app");
        for nth in 0..20_000 {
            for kind in [kind(&format!("/d{nth}"), &format!("e{nth}"), "p"), frequent.clone()] {
                history.learn(&Ended { kind, size: Bytes(1), pattern: Pattern::Scattered });
            }
        }
        assert!(history.len() <= KINDS);
        assert_eq!(history.expect(&frequent).map(|e| e.pattern), Some(Pattern::Scattered));
        assert!(history.expect(&kind("/d0", "e0", "p")).is_none());
        let (read, reason) = History::from_json(&history.to_json());
        assert!(reason.is_none() && read == history);
    }

    #[test]
    fn another_version_is_not_read() {
        let (history, reason) = History::from_json(br#"{"version":2,"anything":[]}"#);
        assert!(history.is_empty());
        assert_eq!(reason, Some(Forgotten::Version { found: 2 }));
    }

    #[test]
    fn nothing_is_known_of_a_file_without_name_and_process() {
        let nothing = FileKind::default();
        let history = learned(&[(nothing.clone(), 64), (nothing.clone(), 64)]);
        assert!(history.is_empty());
        assert_eq!(history.expect(&nothing), None);
    }
}
