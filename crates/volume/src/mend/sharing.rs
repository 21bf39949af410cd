//! Mending where the kernel can share blocks after comparing them: XFS and btrfs.
//!
//! Owns the order: check, allocate, copy, make the copy durable, and only then have the kernel compare it with the file and
//! map the file to it, range by range. Never writes to the file: where its bytes are no longer those of the copy, nothing
//! happens to it.

use super::donor::{COPIED_AT_ONCE, Donor, Floor};
use super::extents::{Stamp, Survey, left_for, reason_by_attributes};
use super::plan::{Call, calls, carry_out};
use super::{LeftReason, Limits, MendError, Mended, Place, checkpoint};
use crate::engine::file_map::FileMap;
use crate::engine::{Observer, Permission};
use crate::{SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock};
use longrun_sys::{ByteRange, Errno, FileHandle, OFlags, Shared};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// The most that one call moves: the kernel holds the locks of the file meanwhile (about 5 ms), and btrfs takes no more.
const MOVED_AT_ONCE: Bytes = Bytes(16 << 20);
/// How often a range is copied again that was written to between copy and comparison.
const TRIES: u32 = 3;

/// How long others' need of the space that is held can go unnoticed.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// The access time is not to suffer, and nobody's lease to be waited for.
const QUIETLY: OFlags =
    OFlags::RDONLY.union(OFlags::NOATIME).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::LARGEFILE);

/// A file being mended.
struct Work<'a> {
    place: Place<'a>,
    file: File,
    stamp: Stamp,
    survey: Survey,
    floor: Floor,
    /// Which of the calls' ranges were in memory when we came.
    cached: Vec<bool>,
    written: Bytes,
}

pub(super) fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let block_size = longrun_sys::capacity(place.root).map_err(place.failed("asking for the block size"))?.block_size;
    let floor = Floor::of(limits.floor, place.root).map_err(place.failed("asking for the free space"))?;
    let file = open(place.root, handle).map_err(MendError::left)?;
    let meta = file.metadata().map_err(|_| MendError::skipped(SkipReason::Vanished))?;
    if !meta.is_file() || meta.nlink() == 0 {
        return Err(MendError::skipped(SkipReason::Vanished));
    }
    let attributes = reason_by_attributes(&file).map_err(MendError::left)?;
    let survey = Survey::of(&file, block_size).map_err(MendError::left)?;
    // Looking has written back what was in memory, which sets no times: they are those of the content seen from here on.
    let meta = file.metadata().map_err(|_| MendError::skipped(SkipReason::Vanished))?;
    let before = survey.excess();
    if before == 0 {
        return Ok(Mended { before, after: 0, moved: Bytes(0) });
    }
    let needed = survey.data_bytes();
    if needed > limits.budget {
        return Err(MendError::left(LeftReason::Budget));
    }
    floor.permits(needed, place.root).map_err(MendError::left)?;
    checkpoint(observer, needed).map_err(MendError::left)?;
    require_sharing(place)?;
    let calls = calls(&survey.data, block_size.to_blocks(MOVED_AT_ONCE));
    let donor = Donor::best(place.root, &file, &survey, &calls, attributes.is_written_in_place(), floor)
        .map_err(MendError::left)?;
    let cached = calls.iter().map(|call| is_cached(&file, survey.bytes(call.logical, call.length))).collect();
    let mut work = Work { place, cached, file, stamp: Stamp::of(&meta), survey, floor, written: Bytes(0) };
    let left = |work: &Work<'_>, reason| MendError::Left { reason, written: work.written };
    if let Err(stop) = work.copy(&donor, &calls, observer) {
        return Err(stop.into_error(&work));
    }
    if let Err(stop) = work.take(&donor, &calls, observer) {
        return Err(stop.into_error(&work));
    }
    drop(donor);
    let after = Survey::of(&work.file, block_size).map_err(|reason| left(&work, reason))?.excess();
    Ok(Mended { before, after, moved: work.written })
}

fn open(root: &File, handle: &FileHandle) -> Result<File, LeftReason> {
    let vanished = LeftReason::Skipped(SkipReason::Vanished);
    // To btrfs generation 0 means "any": the file opened could be another one. It ends the handle on both file systems.
    if handle.bytes().last_chunk::<4>().is_none_or(|generation| *generation == [0; 4]) {
        return Err(vanished);
    }
    handle.open(root, QUIETLY).map(File::from).map_err(|errno| left_for(errno, SkipReason::Vanished))
}

/// Whether most of a range is in memory; not known on old kernels.
fn is_cached(file: &File, range: ByteRange) -> bool {
    let pages = range.length.0.div_ceil(longrun_sys::page_size() as u64);
    longrun_sys::cache_state(file, range).is_ok_and(|state| state.cached_pages * 2 > pages)
}

/// Whether the volume shares blocks at all: XFS may have been made without. Tried with two files of ours, because a large
/// copy that then cannot be used would have been written for nothing.
fn require_sharing(place: Place<'_>) -> Result<(), VolumeError> {
    let one = || -> std::io::Result<File> {
        let file = File::from(longrun_sys::temporary_file(place.root)?);
        file.write_all_at(&[0; 4096], 0)?;
        Ok(file)
    };
    let both = one().and_then(|first| Ok((first, one()?)));
    let (first, second) = both.map_err(place.failed("making a temporary file"))?;
    match longrun_sys::share_if_same(&first, Bytes(0), &second, ByteRange { start: Bytes(0), length: Bytes(4096) }) {
        Err(Errno::OPNOTSUPP) => {
            let what = "mending on a file system that cannot share blocks (XFS made with reflink=0)".to_owned();
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what })
        }
        other => other.map(drop).map_err(place.failed("trying to share a block")),
    }
}

/// Why a mending ends before its end.
enum Stop {
    Left(LeftReason),
    Fatal(&'static str, std::io::Error),
}

impl Stop {
    fn into_error(self, work: &Work<'_>) -> MendError {
        match self {
            Self::Left(reason) => MendError::Left { reason, written: work.written },
            Self::Fatal(act, source) => work.place.failed(act)(source).into(),
        }
    }

    fn of(act: &'static str, error: std::io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Left(LeftReason::LowSpace),
            _ => Self::Fatal(act, error),
        }
    }
}

impl From<LeftReason> for Stop {
    fn from(reason: LeftReason) -> Self {
        Self::Left(reason)
    }
}

impl Work<'_> {
    fn block_size(&self) -> BlockSize {
        self.survey.block_size
    }

    /// Copies everything, and makes the copy durable: before that no file may be mapped to it.
    fn copy(&mut self, donor: &Donor, calls: &[Call], observer: &mut dyn Observer) -> Result<(), Stop> {
        let mut buffer = vec![0; COPIED_AT_ONCE];
        let step = self.block_size().to_blocks(Bytes(COPIED_AT_ONCE as u64));
        for call in calls {
            let mut done = Blocks(0);
            while done < call.length {
                let part = step.min(call.length - done);
                self.checkpoint(observer, self.block_size().to_bytes(part))?;
                self.copy_part(donor, call.logical + done, call.donor + done, part, &mut buffer)?;
                done += part;
            }
        }
        donor.file.sync_all().map_err(|error| Stop::of("making a copy durable", error))
    }

    /// Asked before each part; also while the permission is waited for, somebody may fill the volume or write to the file.
    fn checkpoint(&self, observer: &mut dyn Observer, next: Bytes) -> Result<(), LeftReason> {
        loop {
            if !self.stamp.is_on(&self.file) {
                return Err(LeftReason::Skipped(SkipReason::Changed));
            }
            self.floor.holds(self.place.root)?;
            if observer.cancelled() {
                return Err(LeftReason::Cancelled);
            }
            match observer.permission(next) {
                Permission::Go => return Ok(()),
                Permission::Wait(time) => observer.wait(time.min(LONGEST_WAIT)),
            }
        }
    }

    fn copy_part(
        &mut self,
        donor: &Donor,
        from: LogicalBlock,
        to: LogicalBlock,
        length: Blocks,
        buffer: &mut [u8],
    ) -> Result<(), Stop> {
        let range = self.survey.bytes(from, length);
        let to = self.block_size().to_bytes(Blocks(to.0));
        self.written += range.length;
        donor.copy(&self.file, range, to, buffer).map_err(|error| match error.kind() {
            // It was cut off meanwhile.
            std::io::ErrorKind::UnexpectedEof => Stop::Left(LeftReason::Skipped(SkipReason::Changed)),
            _ => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) => {
                    Stop::Left(LeftReason::Skipped(SkipReason::Unreadable))
                }
                _ => Stop::of("copying a file", error),
            },
        })
    }

    /// Has the file take the copy, range by range. Once it has begun it ends only where the file lies in no more fragments
    /// than before.
    fn take(&mut self, donor: &Donor, calls: &[Call], observer: &mut dyn Observer) -> Result<(), Stop> {
        let mut map = FileMap::new(self.survey.runs.iter().copied());
        let before = map.fragments();
        for (position, call) in calls.iter().enumerate() {
            let unwanted = observer.cancelled() || !self.stamp.is_on(&self.file);
            if unwanted && map.fragments() <= before {
                let reason =
                    if observer.cancelled() { LeftReason::Cancelled } else { LeftReason::Skipped(SkipReason::Changed) };
                return if position == 0 { Err(reason.into()) } else { Ok(()) };
            }
            match self.take_range(donor, call) {
                Ok(true) => carry_out(&mut map, call, &donor.map),
                Ok(false) => {}
                // What went before went well, and the map tells what that was worth.
                Err(Stop::Left(_)) if position > 0 => return Ok(()),
                Err(stop) => return Err(stop),
            }
            donor.part_with(self.block_size(), call.donor, call.length);
            if self.cached.get(position).is_some_and(|cached| *cached) {
                // Somebody uses it: it is to be in memory as before. Advice only.
                let _ = longrun_sys::read_ahead(&self.file, self.survey.bytes(call.logical, call.length));
            }
        }
        Ok(())
    }

    /// One range; false when it does not hold what was copied, however often it is copied again.
    fn take_range(&mut self, donor: &Donor, call: &Call) -> Result<bool, Stop> {
        let mut done = Bytes(0);
        let range = self.survey.bytes(call.logical, call.length);
        let donor_start = self.block_size().to_bytes(Blocks(call.donor.0));
        let mut tries = 0;
        while done < range.length {
            let rest = ByteRange { start: range.start + done, length: range.length.saturating_sub(done) };
            match longrun_sys::share_if_same(&donor.file, donor_start + done, &self.file, rest) {
                // No progress without a difference: the kernel does not want to.
                Ok(Shared::Same(Bytes(0))) => return Err(LeftReason::Skipped(SkipReason::NotExchangeable).into()),
                Ok(Shared::Same(more)) => done += more,
                Ok(Shared::Differs) if tries < TRIES => {
                    tries += 1;
                    let skipped = self.block_size().to_blocks(done);
                    let mut buffer = vec![0; COPIED_AT_ONCE];
                    let (from, to) = (call.logical + skipped, call.donor + skipped);
                    self.copy_part(donor, from, to, call.length.saturating_sub(skipped), &mut buffer)?;
                    donor.file.sync_all().map_err(|error| Stop::of("making a copy durable", error))?;
                }
                Ok(Shared::Differs) => return Ok(false),
                Err(errno) => {
                    return Err(match left_for(errno, SkipReason::Unreadable) {
                        LeftReason::Skipped(SkipReason::Unreadable) => Stop::Fatal("moving a file", errno.into()),
                        reason => reason.into(),
                    });
                }
            }
        }
        Ok(true)
    }
}
