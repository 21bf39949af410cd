//! The primitives for writing files again on a mounted XFS or btrfs: one system call each.

use super::Place;
use super::donor::{Beside, Donor, Floor, directory_of};
use super::extents::left_for;
use super::subject::Subject;
use crate::mounted::reading::{ask_for, await_read};
use longrun_engine::share::unit::{Member, UnitPlan};
use longrun_engine::share::{
    Attempt, COPIED_AT_ONCE, Compared, Durable, Ended, MemberRange, NotMended, Request, Sharing,
};
use longrun_engine::{FileMap, Observer, SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, LogicalRange, Run};
use longrun_sys::{ByteRange, Errno, Shared};

/// Files of a mounted volume that are rewritten together.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub(crate) place: Place<'a>,
    /// All files that share any of the blocks.
    pub(crate) subjects: &'a [Subject],
    /// Only these blocks of the only one, when there are any.
    pub(crate) parts: &'a [LogicalRange],
    pub(crate) floor: Floor,
    pub(crate) durable: Durable,
    /// Whether the file system would look for space beside the file.
    pub(crate) beside: bool,
    /// Directly beside this block of the only file, or nowhere.
    pub(crate) at: Option<Beside>,
}

/// Rewrites the unit ([`longrun_engine::share::rewrite`]).
pub(crate) fn rewrite(unit: Unit<'_>, observer: &mut dyn Observer, written: &mut Bytes) -> Result<(), Ended> {
    let Some(first) = unit.subjects.first() else { return Ok(()) };
    if unit.subjects.iter().any(|subject| subject.in_place != first.in_place) {
        return Err(NotMended::Skipped(SkipReason::NotExchangeable).into());
    }
    let members: Vec<Member> = unit.subjects.iter().map(|subject| subject.member(unit.parts)).collect();
    let block_size = first.survey.block_size;
    let request = Request { members: &members, block_size, durable: unit.durable, beside: unit.beside };
    let mut kernel = Kernel { unit, block_size, in_place: first.in_place, buffer: Vec::new() };
    longrun_engine::share::rewrite(&mut kernel, &request, observer, written)
}

struct Kernel<'a> {
    unit: Unit<'a>,
    block_size: BlockSize,
    in_place: bool,
    buffer: Vec<u8>,
}

impl Kernel<'_> {
    /// A file, and the bytes of a range of it.
    fn locate(&self, range: MemberRange) -> Result<(&Subject, ByteRange), Ended> {
        let subject = self.unit.subjects.get(range.member).ok_or(NotMended::Skipped(SkipReason::Changed))?;
        Ok((subject, subject.survey.bytes(range.logical, range.length)))
    }

    fn failed(&self, act: &'static str, error: std::io::Error) -> Ended {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Ended::Left(NotMended::LowSpace),
            _ => {
                let path = self.unit.place.point.to_owned();
                Ended::Failed(VolumeError::Io { path, act, source: error })
            }
        }
    }

    fn not_copied(&self, error: std::io::Error) -> Ended {
        match error.kind() {
            // It was cut off meanwhile.
            std::io::ErrorKind::UnexpectedEof => Ended::Left(NotMended::Skipped(SkipReason::Changed)),
            _ => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) => {
                    Ended::Left(NotMended::Skipped(SkipReason::Unreadable))
                }
                _ => self.failed("copying a file", error),
            },
        }
    }

    fn ranges(&self, member: usize, pieces: &[Run]) -> Option<(&Subject, Vec<ByteRange>)> {
        let subject = self.unit.subjects.get(member)?;
        Some((subject, pieces.iter().map(|run| subject.survey.bytes(run.logical, run.length)).collect()))
    }
}

impl Sharing for Kernel<'_> {
    type Copy = Donor;

    fn permits(&self, more: Bytes) -> Result<(), NotMended> {
        self.unit.floor.permits(more, self.unit.place.root)
    }

    fn leaves_enough(&self) -> Result<(), NotMended> {
        self.unit.floor.holds(self.unit.place.root)
    }

    fn allocate(&mut self, plan: &UnitPlan, copy: usize, bytes: Bytes, attempt: Attempt) -> Result<Donor, NotMended> {
        let root = self.unit.place.root;
        if let Some(at) = self.unit.at {
            let subject = self.unit.subjects.first().ok_or(NotMended::NoGain)?;
            let directory = directory_of(&subject.file);
            let directory = directory.as_ref().unwrap_or(root);
            let donor = Donor::beside(directory, self.block_size, &subject.file, at, bytes);
            // Whatever is in the way: the file is mended in the usual way then, which tells the reason if that fails, too.
            return donor.ok().flatten().ok_or(NotMended::NoGain);
        }
        let first = self.unit.subjects.first().filter(|_| attempt == Attempt::Beside);
        let beside = first.and_then(|subject| directory_of(&subject.file));
        let directory = beside.as_ref().unwrap_or(root);
        let wanted = (plan, copy, bytes);
        Donor::allocate(directory, self.block_size, self.in_place, wanted, attempt == Attempt::InOne)
            .map_err(|errno| left_for(errno, SkipReason::Unreadable))
    }

    fn map<'c>(&self, copy: &'c Donor) -> &'c FileMap {
        &copy.map
    }

    fn is_unchanged(&self, member: usize) -> bool {
        self.unit.subjects.get(member).is_some_and(|subject| subject.stamp.is_on(&subject.file))
    }

    fn ask_for(&self, member: usize, pieces: &[Run]) {
        if let Some((subject, ranges)) = self.ranges(member, pieces) {
            ask_for(&subject.file, &ranges);
        }
    }

    fn await_read(&self, member: usize, pieces: &[Run]) {
        if let Some((subject, ranges)) = self.ranges(member, pieces) {
            await_read(&subject.file, &ranges);
        }
    }

    fn copy(&mut self, from: MemberRange, copy: &Donor, to: LogicalBlock) -> Result<(), Ended> {
        let to = self.block_size.to_bytes(Blocks(copy.place(to).0));
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(COPIED_AT_ONCE.0 as usize, 0);
        let (subject, range) = self.locate(from)?;
        let copied = copy.copy(&subject.file, range, to, &mut buffer).map_err(|error| self.not_copied(error));
        self.buffer = buffer;
        copied
    }

    fn sync(&mut self, copy: &Donor) -> Result<(), Ended> {
        copy.file.sync_all().map_err(|error| self.failed("syncing a copy", error))
    }

    fn start_writing(&mut self, copy: &Donor) {
        let _ = longrun_sys::start_writeback(&copy.file, ByteRange::ALL);
    }

    fn share_if_same(
        &mut self,
        copy: &Donor,
        at: LogicalBlock,
        range: MemberRange,
        done: Bytes,
    ) -> Result<Compared, Ended> {
        let (subject, range) = self.locate(range)?;
        let rest = ByteRange { start: range.start + done, length: range.length.saturating_sub(done) };
        let at = self.block_size.to_bytes(Blocks(copy.place(at).0)) + done;
        match longrun_sys::share_if_same(self.unit.place.root, &copy.file, at, &subject.file, rest) {
            Ok(Shared::Same(bytes)) => Ok(Compared::Same(bytes)),
            Ok(Shared::Differs) => Ok(Compared::Differs),
            Err(errno) => Err(match left_for(errno, SkipReason::Unreadable) {
                NotMended::Skipped(SkipReason::Unreadable) => self.failed("moving a file", errno.into()),
                reason => reason.into(),
            }),
        }
    }

    fn part_with(&mut self, copy: &Donor, start: LogicalBlock, length: Blocks) {
        copy.part_with(self.block_size, start, length);
    }

    /// Not known on old kernels.
    fn is_cached(&self, range: MemberRange) -> bool {
        self.locate(range).is_ok_and(|(subject, range)| {
            let pages = range.length.0.div_ceil(longrun_sys::page_size() as u64);
            longrun_sys::cache_state(&subject.file, range).is_ok_and(|state| state.cached_pages * 2 > pages)
        })
    }

    fn read_ahead(&self, range: MemberRange) {
        if let Ok((subject, range)) = self.locate(range) {
            let _ = longrun_sys::read_ahead(&subject.file, range);
        }
    }
}
