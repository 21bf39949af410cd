//! Reads the runs of many files in one go over the map, in its order: each group of records is read about once.

use crate::groups::{IN_GROUP, group_at};
use crate::read::Source;
use crate::records::FileEntry;
use crate::{Atlas, AtlasError};
use longrun_layout::{FileId, InodeNumber, Run};
use std::collections::BTreeSet;
use std::ops::Range;

impl<S: Source> Atlas<S> {
    /// Calls `each` with those of the files `wanted` that the map has and their runs, a part of the runs at a time. Ends before the
    /// file with which it would be more than `most` runs.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn visit(
        &self,
        wanted: &BTreeSet<FileId>,
        most: u64,
        mut each: impl FnMut(&FileEntry, &[Run]),
    ) -> Result<(), AtlasError> {
        let (mut left, mut kept) = (most, None);
        for group in self.file_groups() {
            let [lowest, highest, _] = group.keys;
            let of = |inode, generation| FileId { inode: InodeNumber(inode), generation };
            if lowest > highest || wanted.range(of(lowest, 0)..=of(highest, u32::MAX)).next().is_none() {
                continue;
            }
            for file in self.files_of(group)?.iter().filter(|file| wanted.contains(&file.id)) {
                let Some(rest) = left.checked_sub(file.runs) else { return Ok(()) };
                left = rest;
                let numbers = file.first_run..file.first_run + file.runs;
                self.visit_runs(numbers, &mut kept, |runs| each(file, runs))?;
            }
        }
        Ok(())
    }

    /// Calls `each` with the runs of these numbers, a group's at a time. `kept` is the group that was read last, with its number: small
    /// files share one.
    pub(crate) fn visit_runs(
        &self,
        numbers: Range<u64>,
        kept: &mut Option<(u64, Vec<Run>)>,
        mut each: impl FnMut(&[Run]),
    ) -> Result<(), AtlasError> {
        let in_group = IN_GROUP as u64;
        let Range { start: mut at, end } = numbers;
        while at < end {
            let number = at / in_group;
            let runs = match kept.take() {
                Some((known, runs)) if known == number => runs,
                _ => self.sound_runs(group_at(self.run_groups(), number)?)?,
            };
            let some = (in_group - at % in_group).min(end - at);
            let inside = (at % in_group) as usize;
            each(runs.get(inside..inside + some as usize).ok_or(crate::read::DAMAGED)?);
            *kept = Some((number, runs));
            at += some;
        }
        Ok(())
    }
}
