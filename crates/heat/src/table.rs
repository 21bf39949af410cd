//! The heat of the files of one volume. Pure: minutes come from the caller.
//!
//! Owns the half-life, and what is forgotten when there are too many files. Each figure is as of the minute in which its file was
//! used last, and is diminished when it is asked for: a harvest touches only what it found.

use crate::recorder::{Counted, Harvested};
use longrun_layout::FileId;
use std::collections::BTreeMap;

/// Minutes since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minute(pub u32);

impl Minute {
    /// That of a time in seconds since 1970.
    #[must_use]
    pub fn of_seconds(seconds: i64) -> Self {
        Self(u32::try_from(seconds.max(0) / 60).unwrap_or(u32::MAX))
    }

    /// When it began, in seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0 as i64 * 60
    }

    /// The minutes since `earlier`; zero where that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// What is left of 1 that was counted `self` ago, at `now`.
    fn left(self, now: Self) -> f32 {
        (-f64::from(now.since(self)) / f64::from(HALF_LIFE)).exp2() as f32
    }
}

/// Seven days, in minutes.
const HALF_LIFE: u32 = 7 * 24 * 60;
/// The most files of a table.
pub const MOST_FILES: usize = 262_144;

/// How much the device was used for a file. All figures but `last` lose half of their value in seven days.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    /// Requests that read.
    pub reads: f32,
    /// Bytes that they read.
    pub bytes: f32,
    /// Minutes in which the file was written. Steadily once a day is about ten.
    pub changes: f32,
    /// When the device was used for it last.
    pub last: Minute,
}

impl Heat {
    /// As it is at `now`.
    #[must_use]
    pub fn at(self, now: Minute) -> Self {
        let left = self.last.left(now);
        Self { reads: self.reads * left, bytes: self.bytes * left, changes: self.changes * left, last: self.last }
    }
}

/// All reads of the device, those for no file included, with the same half-life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests.
    pub reads: f64,
    /// Bytes.
    pub bytes: f64,
}

/// The heat of the files of one volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatTable {
    pub(crate) files: BTreeMap<FileId, Heat>,
    pub(crate) totals: Totals,
    /// As of when the totals are.
    pub(crate) totals_at: Minute,
    pub(crate) began: Minute,
    /// What is not in the table was not used since then, for all that is known.
    pub(crate) complete_since: Minute,
    /// Minutes in which was recorded.
    pub(crate) recorded: u32,
}

impl HeatTable {
    /// Without any file.
    #[must_use]
    pub fn beginning(now: Minute) -> Self {
        Self { began: now, complete_since: now, totals_at: now, ..Self::default() }
    }

    /// When it began.
    #[must_use]
    pub fn began(&self) -> Minute {
        self.began
    }

    /// For how many minutes requests were counted.
    #[must_use]
    pub fn recorded(&self) -> u32 {
        self.recorded
    }

    /// A file that is not in the table was not used since then, for all that is known.
    #[must_use]
    pub fn complete_since(&self) -> Minute {
        self.complete_since
    }

    /// When something was added last.
    #[must_use]
    pub fn updated(&self) -> Minute {
        self.totals_at
    }

    /// How many files it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All reads at `now`.
    #[must_use]
    pub fn totals(&self, now: Minute) -> Totals {
        let left = f64::from(self.totals_at.left(now));
        Totals { reads: self.totals.reads * left, bytes: self.totals.bytes * left }
    }

    /// The heat of a file at `now`.
    #[must_use]
    pub fn of(&self, file: FileId, now: Minute) -> Option<Heat> {
        self.files.get(&file).map(|heat| heat.at(now))
    }

    /// All files with their heat at `now`, by number.
    pub fn files(&self, now: Minute) -> impl Iterator<Item = (FileId, Heat)> + '_ {
        self.files.iter().map(move |(file, heat)| (*file, heat.at(now)))
    }

    /// The `most` files with the most reads at `now`, the hottest first.
    #[must_use]
    pub fn hottest(&self, most: usize, now: Minute) -> Vec<(FileId, Heat)> {
        let mut files: Vec<(FileId, Heat)> = self.files(now).filter(|(_, heat)| heat.reads > 0.0).collect();
        let order = |a: &(FileId, Heat), b: &(FileId, Heat)| b.1.reads.total_cmp(&a.1.reads).then(a.0.cmp(&b.0));
        if let Some(last) = most.checked_sub(1).filter(|last| *last < files.len()) {
            files.select_nth_unstable_by(last, order);
        }
        files.truncate(most);
        files.sort_unstable_by(order);
        files
    }

    /// Adds what was counted in the last minute, and keeps at most `most` files: those with the most reads.
    pub fn add(&mut self, harvested: &Harvested, now: Minute, most: usize) {
        // A clock that was put back must not make old figures grow.
        let now = now.max(self.totals_at);
        self.totals = self.totals(now);
        self.totals.reads += harvested.reads as f64;
        self.totals.bytes += harvested.read_bytes as f64;
        // A minute counts once, however often its counts are taken.
        if self.totals_at < now || self.recorded == 0 {
            self.recorded = self.recorded.saturating_add(1);
        }
        self.totals_at = now;
        for (file, Counted { reads, read_bytes, writes, .. }) in &harvested.files {
            let heat = self.files.entry(*file).or_default();
            let is_new_minute = heat.last < now;
            *heat = heat.at(now);
            heat.reads += *reads as f32;
            heat.bytes += *read_bytes as f32;
            heat.changes += if *writes > 0 && is_new_minute { 1.0 } else { 0.0 };
            heat.last = now;
        }
        self.forget(most, now);
    }

    /// Keeps the `most` hottest files; an eighth is forgotten at once, so that this is not done each minute.
    fn forget(&mut self, most: usize, now: Minute) {
        if self.files.len() <= most {
            return;
        }
        let keep = most - most / 8;
        let mut by_heat: Vec<(f32, Minute, FileId)> =
            self.files(now).map(|(file, heat)| (heat.reads + heat.changes, heat.last, file)).collect();
        let order = |a: &(f32, Minute, FileId), b: &(f32, Minute, FileId)| {
            b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2))
        };
        by_heat.sort_unstable_by(order);
        for (_, last, file) in by_heat.drain(keep.min(by_heat.len())..) {
            self.complete_since = self.complete_since.max(last);
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::InodeNumber;
    use proptest::prelude::*;

    fn file(inode: u64) -> FileId {
        FileId { inode: InodeNumber(inode), generation: 7 }
    }

    fn harvest(files: &[(u64, u64, u64)]) -> Harvested {
        let counted = |reads, writes| Counted { reads, read_bytes: reads * 4096, writes, written_bytes: writes * 4096 };
        let files: Vec<_> =
            files.iter().map(|(inode, reads, writes)| (file(*inode), counted(*reads, *writes))).collect();
        let reads = files.iter().map(|(_, counted)| counted.reads).sum::<u64>() + 5;
        Harvested { reads, read_bytes: reads * 4096, own_reads: 0, files }
    }

    #[test]
    fn half_is_left_after_seven_days_and_what_is_read_again_is_added() {
        let mut table = HeatTable::beginning(Minute(1000));
        table.add(&harvest(&[(1, 80, 0), (2, 10, 1)]), Minute(1000), 100);
        let week = Minute(1000 + HALF_LIFE);
        assert_eq!(table.of(file(1), week).unwrap().reads, 40.0);
        assert_eq!(table.totals(week).reads, 47.5);
        table.add(&harvest(&[(1, 2, 0)]), week, 100);
        assert_eq!(table.of(file(1), week).unwrap().reads, 42.0);
        assert_eq!(table.of(file(2), week).unwrap().changes, 0.5);
        assert_eq!(table.hottest(1, week)[0].0, file(1));
        assert_eq!(table.recorded(), 2);
        // A clock that was put back changes nothing.
        table.add(&harvest(&[]), Minute(5), 100);
        assert_eq!((table.of(file(1), week).unwrap().reads, table.updated()), (42.0, week));
    }

    #[test]
    fn the_hottest_stay_when_there_are_too_many_and_it_is_known_since_when_the_rest_is_unknown() {
        let mut table = HeatTable::beginning(Minute(0));
        let files: Vec<(u64, u64, u64)> = (0..80).map(|n| (n, n + 1, 0)).collect();
        table.add(&harvest(&files), Minute(10), 80);
        assert_eq!((table.len(), table.complete_since()), (80, Minute(0)));
        table.add(&harvest(&[(100, 500, 0)]), Minute(20), 80);
        assert_eq!((table.len(), table.complete_since()), (70, Minute(10)));
        assert!(table.of(file(100), Minute(20)).is_some() && table.of(file(79), Minute(20)).is_some());
        assert!(table.of(file(3), Minute(20)).is_none());
    }

    proptest! {
        #[test]
        fn a_table_stays_bounded_and_no_figure_grows_by_itself(
            harvests in prop::collection::vec((prop::collection::vec((0u64..300, 0u64..1000, 0u64..3), 0..60), 0u32..20_000), 1..30),
            most in 8usize..100,
        ) {
            let mut table = HeatTable::beginning(Minute(50));
            let mut now = Minute(50);
            for (files, later) in harvests {
                now = Minute(now.0 + later);
                table.add(&harvest(&files), now, most);
                prop_assert!(table.len() <= most);
                let later = Minute(now.0 + 77);
                for (file, heat) in table.files(now) {
                    prop_assert!(heat.reads.is_finite() && table.of(file, later).unwrap().reads <= heat.reads);
                }
                let hottest = table.hottest(10, now);
                prop_assert!(hottest.windows(2).all(|pair| pair[0].1.reads >= pair[1].1.reads));
                let coldest = hottest.last().map_or(0.0, |(_, heat)| heat.reads);
                let hotter = table.files(now).filter(|(_, heat)| heat.reads > coldest).count();
                prop_assert!(hotter < 10);
            }
        }
    }
}
