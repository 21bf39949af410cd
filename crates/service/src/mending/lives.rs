//! How long files live before they are deleted or fragment again, by their kind, and so how long a fragmented file waits
//! until it is mended. Pure: the time is an argument.
//!
//! Owns what is learned, the files that are followed to learn it, and the time before which a file is not worth mending.
//! Never looks at a file: the caller does, and tells what it found.

use longrun_prevention::policy::FileKind;
use longrun_prevention::{FileKey, Nanos, ProcessName};
use longrun_sys::DeviceNumber;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Ages differ by their doublings: each class ends at twice the age of the one before, the last at the time for
/// which files are followed.
const CLASSES: usize = 10;
/// A class of a kind is believed when so many files have reached it …
const EVIDENCE: u32 = 8;
/// … or so many of all directories beside each other.
const EVIDENCE_BESIDE: u32 = 32;
/// From so many on, older files lose half of their say.
const SAY: u32 = 64;
/// Kinds that are remembered at most; those not seen for longest go first.
const KINDS: usize = 2048;
/// Files that are followed at most, and mended ones that are remembered; the oldest goes first.
const FOLLOWED: usize = 512;
/// Certainty, in parts: shares of files are whole numbers, the same on every machine.
const CERTAIN: u64 = 1 << 32;

/// Why a file waits although it is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// Most files of its kind are deleted or fragment again soon.
    ShortLived,
    /// It has fragmented again soon after it was mended.
    Again,
}

/// What is known of the lives of files.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// No file waits longer than this, whatever is known of its kind; files are followed for so long. Zero: nothing is
    /// learned, and no file waits.
    patience: Duration,
    kinds: BTreeMap<Kind, Record>,
    /// Counts what was learned: the clock by which kinds age.
    learned: u64,
    followed: BTreeMap<FileKey, Followed>,
    /// When to look at a followed file.
    looks: BTreeSet<(Nanos, FileKey)>,
    mended: BTreeMap<FileKey, Mended>,
}

/// A directory, and what the names of files of a kind have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    directory: String,
    /// Any directory in `directory`, rather than that itself.
    beside: bool,
    extension: String,
}

/// What became of the files of a kind, by classes of age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    classes: [Class; CLASSES],
    last: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class {
    /// Files that lived up to this class.
    reached: u32,
    /// Files of these that did not live beyond it.
    ended: u32,
}

/// A file from the moment at which it was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Followed {
    kinds: Vec<(Kind, u32)>,
    since: Nanos,
    /// The class that it lives in, as far as anybody has looked.
    class: usize,
    /// It has fragmented again: its kind has learned that, and learns no more from it.
    ended: bool,
}

/// A file that was mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mended {
    last: Nanos,
    /// How often, with less than twice the patience in between.
    times: usize,
}

impl Lives {
    /// Sets how long files wait at most. Ages that were told apart otherwise are forgotten.
    pub(super) fn wait_at_most(&mut self, patience: Duration) {
        if self.patience != patience {
            *self = Self { patience, ..Self::default() };
        }
    }

    /// A file was noticed to be fragmented. If it was noticed before, its content has changed since.
    pub(super) fn noticed(&mut self, file: &FileKey, path: Option<&Path>, now: Nanos) {
        if !self.followed.contains_key(file) {
            let new = Followed { kinds: kinds(path), since: now, class: 0, ended: false };
            return self.follow(*file, new);
        }
        self.alive(file, now);
        // What is written in one go may be noticed more than once.
        let Some(known) = self.followed.get_mut(file).filter(|known| known.class > 0 && !known.ended) else { return };
        known.ended = true;
        let known = known.clone();
        self.learn(&known, true);
    }

    /// It was mended: what becomes of it from now on is a life of its own.
    pub(super) fn mended(&mut self, file: &FileKey, now: Nanos) {
        let before = self.mended.get(file).filter(|mended| between(mended.last, now) < self.patience.saturating_mul(2));
        let times = before.map_or(1, |mended| (mended.times + 1).min(CLASSES));
        self.mended.insert(*file, Mended { last: now, times });
        if self.mended.len() > FOLLOWED
            && let Some(oldest) = self.mended.iter().min_by_key(|(_, mended)| mended.last).map(|(file, _)| *file)
        {
            self.mended.remove(&oldest);
        }
        if let Some(known) = self.followed.get(file).filter(|known| known.ended).cloned() {
            self.forget(file);
            self.follow(*file, Followed { since: now, class: 0, ended: false, ..known });
        }
    }

    /// It was deleted.
    pub(super) fn gone(&mut self, file: &FileKey, now: Nanos) {
        self.mended.remove(file);
        let Some(known) = self.followed.get(file).cloned() else { return };
        self.forget(file);
        // What nobody has looked at for long may have been deleted at any time.
        if between(known.since, now) <= self.end(known.class).saturating_mul(2) && !known.ended {
            self.learn(&known, true);
        }
    }

    /// It is still there.
    pub(super) fn alive(&mut self, file: &FileKey, now: Nanos) {
        let Some(mut known) = self.followed.get(file).cloned() else { return };
        let class = self.class_at(between(known.since, now)).unwrap_or(CLASSES);
        if class == known.class {
            return;
        }
        self.forget(file);
        while known.class < class {
            if !known.ended {
                self.learn(&known, false);
            }
            known.class += 1;
        }
        self.follow(*file, known);
    }

    /// A file to look at now: whether it is still there is to be told.
    pub(super) fn to_look_at(&self, now: Nanos) -> Option<FileKey> {
        self.looks.first().filter(|(at, _)| *at <= now).map(|(_, file)| *file)
    }

    /// When there will be one.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// Until when a file is better left alone, and why. Never later than the patience after it was noticed or mended.
    pub(super) fn hold(&self, file: &FileKey, now: Nanos) -> Option<(Nanos, Hold)> {
        let again = self.mended.get(file).map(|mended| (after(mended.last, self.end(mended.times - 1)), Hold::Again));
        let short = self.followed.get(file).and_then(|known| {
            let class = self.class_at(between(known.since, now))?;
            Some((after(known.since, self.end(self.ends_soon(known, class)?)), Hold::ShortLived))
        });
        again.into_iter().chain(short).filter(|(until, _)| *until > now).max()
    }

    /// Forgets the files of a volume. What was learned from them stays.
    pub(super) fn forget_volume(&mut self, volume: DeviceNumber) {
        self.followed.retain(|file, _| file.volume != volume);
        self.looks.retain(|(_, file)| file.volume != volume);
        self.mended.retain(|file, _| file.volume != volume);
    }

    /// The class at whose end most files like this one, which has reached `class`, have come to an end. Of the most specific
    /// kind that enough is known of.
    fn ends_soon(&self, known: &Followed, class: usize) -> Option<usize> {
        let (record, evidence) = known.kinds.iter().find_map(|(kind, evidence)| {
            let record = self.kinds.get(kind)?;
            (record.classes.get(class)?.reached >= *evidence).then_some((record, *evidence))
        })?;
        let mut left = CERTAIN;
        for (number, class) in record.classes.iter().enumerate().skip(class) {
            if class.reached < evidence {
                return None;
            }
            left = left * u64::from(class.reached - class.ended) / u64::from(class.reached);
            if left < CERTAIN / 2 {
                return Some(number);
            }
        }
        None
    }

    /// The life of a file ended in the class that it lived in, or went on beyond it.
    fn learn(&mut self, known: &Followed, ended: bool) {
        self.learned = self.learned.saturating_add(1);
        for (kind, _) in &known.kinds {
            let record = self.kinds.entry(kind.clone()).or_default();
            record.last = self.learned;
            let Some(class) = record.classes.get_mut(known.class) else { continue };
            class.reached += 1;
            class.ended += u32::from(ended);
            if class.reached >= SAY {
                *class = Class { reached: class.reached / 2, ended: class.ended / 2 };
            }
        }
        self.forget_kinds();
    }

    fn follow(&mut self, file: FileKey, known: Followed) {
        if known.kinds.is_empty() || known.class >= CLASSES || self.patience.is_zero() {
            return;
        }
        self.looks.insert((self.look_at(&known), file));
        self.followed.insert(file, known);
        if self.followed.len() > FOLLOWED
            && let Some(oldest) = self.followed.iter().min_by_key(|(_, known)| known.since).map(|(file, _)| *file)
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, file: &FileKey) {
        if let Some(known) = self.followed.remove(file) {
            self.looks.remove(&(self.look_at(&known), *file));
        }
    }

    /// The age at which a class ends.
    fn end(&self, class: usize) -> Duration {
        let doublings = u32::try_from((CLASSES - 1).saturating_sub(class)).unwrap_or(u32::MAX);
        self.patience / 1_u32.checked_shl(doublings).unwrap_or(u32::MAX)
    }

    /// The class of an age; none beyond the last.
    fn class_at(&self, age: Duration) -> Option<usize> {
        (0..CLASSES).find(|class| age < self.end(*class))
    }

    fn look_at(&self, known: &Followed) -> Nanos {
        after(known.since, self.end(known.class))
    }

    /// Drops the kinds not seen for longest, an eighth at once, when there are too many.
    fn forget_kinds(&mut self) {
        if self.kinds.len() <= KINDS {
            return;
        }
        let mut ages: Vec<u64> = self.kinds.values().map(|record| record.last).collect();
        ages.sort_unstable();
        let oldest = ages.get(KINDS / 8).copied().unwrap_or(u64::MAX);
        self.kinds.retain(|_, record| record.last > oldest);
    }
}

/// The kinds that a file belongs to, the most specific first, each with the files that it takes to believe it. A file whose
/// name is not known is of no kind.
fn kinds(path: Option<&Path>) -> Vec<(Kind, u32)> {
    let FileKind { directory, extension, .. } = FileKind::new(path, &ProcessName::default());
    if directory.is_empty() || extension.is_empty() {
        return Vec::new();
    }
    let above = FileKind::new(path.and_then(Path::parent), &ProcessName::default()).directory;
    let own = Kind { directory, beside: false, extension: extension.clone() };
    let beside = Kind { directory: above, beside: true, extension };
    let known = !beside.directory.is_empty();
    [Some((own, EVIDENCE)), known.then_some((beside, EVIDENCE_BESIDE))].into_iter().flatten().collect()
}

fn between(then: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(then.0))
}

fn after(then: Nanos, time: Duration) -> Nanos {
    Nanos(then.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[path = "lives_tests.rs"]
mod tests;
