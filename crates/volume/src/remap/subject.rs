//! A file that is written again, in its state before the work.
//!
//! Owns its opening and examination. Never changes it.

use super::extents::{Sharers, Stamp, Survey, left_for, reason_by_attributes};
use longrun_engine::share::NotMended;
use longrun_engine::share::unit::Member;
use longrun_engine::{FileMap, SkipReason};
use longrun_layout::{BlockSize, Bytes, LogicalRange, Run};
use longrun_sys::{FileHandle, OFlags};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The access time is not to suffer, and no lease of another process to be waited for.
const QUIETLY: OFlags =
    OFlags::RDONLY.union(OFlags::NOATIME).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::LARGEFILE);

/// A file to rewrite, in its state before the work.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) file: File,
    pub(crate) survey: Survey,
    pub(super) stamp: Stamp,
    pub(super) in_place: bool,
}

impl Subject {
    /// Looks at a file that [`open`] has opened.
    pub(crate) fn of(file: File, block_size: BlockSize, sharers: Sharers) -> Result<Self, NotMended> {
        let vanished = NotMended::Skipped(SkipReason::Vanished);
        let meta = file.metadata().map_err(|_| vanished)?;
        if !meta.is_file() || meta.nlink() == 0 {
            return Err(vanished);
        }
        let attributes = reason_by_attributes(&file)?;
        let survey = Survey::of(&file, block_size, sharers)?;
        // Looking has written back what was in memory, which sets no times: they are those of the content seen from here on.
        let stamp = Stamp::of(&file.metadata().map_err(|_| vanished)?);
        Ok(Self { file, survey, stamp, in_place: attributes.is_written_in_place() })
    }

    /// Its parts to rewrite.
    pub(crate) fn member(&self, parts: &[LogicalRange]) -> Member {
        let survey = &self.survey;
        let map = FileMap::new(survey.data.iter().copied());
        let data = match parts {
            [] => survey.data.clone(),
            parts => parts.iter().flat_map(|part| map.within(*part).collect::<Vec<Run>>()).collect(),
        };
        Member { runs: survey.runs.clone(), data, size: survey.size }
    }

    /// How much that is: whole blocks but for the last one, when the file ends in it.
    pub(crate) fn data_bytes(&self, parts: &[LogicalRange]) -> Bytes {
        let ranges = |run: &Run| self.survey.bytes(run.logical, run.length).length;
        self.member(parts).data.iter().map(ranges).sum()
    }
}

/// Opens a file by its handle, for [`Subject::of`].
pub(crate) fn open(root: &File, handle: &FileHandle) -> Result<File, NotMended> {
    let vanished = NotMended::Skipped(SkipReason::Vanished);
    // To btrfs generation 0 means "any": the file opened could be another one. It ends the handle on both file systems.
    if handle.bytes().last_chunk::<4>().is_none_or(|generation| *generation == [0; 4]) {
        return Err(vanished);
    }
    let file = handle.open(root, QUIETLY).map(File::from).map_err(|errno| left_for(errno, SkipReason::Vanished))?;
    // It is read a few pieces at a time. Without this advice nothing is lost but that.
    let _ = longrun_sys::expect_random_reads(&file);
    Ok(file)
}
