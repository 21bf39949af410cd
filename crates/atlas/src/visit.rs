//! Reads the runs of many files in one go over the map, in its order: each group of records is read about once.

use crate::groups::{IN_GROUP, group_at};
use crate::read::Source;
use crate::records::FileEntry;
use crate::{Atlas, AtlasError};
use longrun_layout::{FileId, InodeNumber, Run};
use std::collections::BTreeSet;

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
                self.visit_runs(file, &mut kept, &mut each)?;
            }
        }
        Ok(())
    }

    /// `kept` is the group of runs that was read last, with its number: small files share one.
    fn visit_runs(
        &self,
        file: &FileEntry,
        kept: &mut Option<(u64, Vec<Run>)>,
        each: &mut impl FnMut(&FileEntry, &[Run]),
    ) -> Result<(), AtlasError> {
        let in_group = IN_GROUP as u64;
        let (mut at, end) = (file.first_run, file.first_run + file.runs);
        while at < end {
            let number = at / in_group;
            let runs = match kept.take() {
                Some((known, runs)) if known == number => runs,
                _ => self.sound_runs(group_at(self.run_groups(), number)?)?,
            };
            let some = (in_group - at % in_group).min(end - at);
            let inside = (at % in_group) as usize;
            each(file, runs.get(inside..inside + some as usize).ok_or(crate::read::DAMAGED)?);
            *kept = Some((number, runs));
            at += some;
        }
        Ok(())
    }
}
