//! The work on one unit: copies made and durable, then taken range by range.
//!
//! Never decides whether it is worth while, beyond leaving everything as it is where no place is better.

use super::call::{Call, carry_out};
use super::donor::{COPIED_AT_ONCE, Donor, Floor, Wanted, best};
use super::extents::{Sharers, Stamp, Survey, left_for, reason_by_attributes};
use super::unit::{Member, UnitPlan};
use super::{LeftReason, Place};
use crate::engine::file_map::FileMap;
use crate::engine::reading::{Act, in_turns};
use crate::engine::{Observer, Permission, Turn};
use crate::live::reading::{ask_for, await_read};
use crate::{SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, LogicalBlock, PhysicalBlock, Run};
use longrun_sys::{ByteRange, Errno, FileHandle, OFlags, Shared};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The most that one call moves: the kernel holds the locks of the file meanwhile (about 5 ms), and btrfs takes no more.
pub(crate) const MOVED_AT_ONCE: Bytes = Bytes(16 << 20);
/// How often a range is copied again that was written to between copy and comparison.
const TRIES: u32 = 3;

/// How long others' need of the space that is held can go unnoticed.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// The access time is not to suffer, and nobody's lease to be waited for.
const QUIETLY: OFlags =
    OFlags::RDONLY.union(OFlags::NOATIME).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::LARGEFILE);

/// A file that is written anew, as it was found.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) file: File,
    pub(crate) survey: Survey,
    stamp: Stamp,
    in_place: bool,
}

impl Subject {
    /// Looks at a file that [`open`] has opened.
    pub(crate) fn of(file: File, block_size: BlockSize, sharers: Sharers) -> Result<Self, LeftReason> {
        let vanished = LeftReason::Skipped(SkipReason::Vanished);
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

    /// What of it is to be written anew.
    pub(crate) fn member(&self, parts: &[Extent]) -> Member {
        let survey = &self.survey;
        let map = FileMap::new(survey.data.iter().copied());
        let data = match parts {
            [] => survey.data.clone(),
            parts => parts.iter().flat_map(|part| map.within(*part).collect::<Vec<Run>>()).collect(),
        };
        Member { runs: survey.runs.clone(), data, size: survey.size }
    }

    /// How much that is: whole blocks but for the last one, when the file ends in it.
    pub(crate) fn data_bytes(&self, parts: &[Extent]) -> Bytes {
        let ranges = |run: &Run| self.survey.bytes(run.logical, run.length).length;
        self.member(parts).data.iter().map(ranges).sum()
    }
}

/// When a copy has to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Before a file takes it: else a crash could find the file mapped to what never reached the device.
    BeforeItIsTaken,
    /// With the commit that makes the taking durable: btrfs writes the data of a range before it shares it, and flushes the
    /// device before a commit.
    WithTheCommit,
}

/// What is to be done.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) place: Place<'a>,
    /// All files that share any of the blocks.
    pub(crate) subjects: &'a [Subject],
    /// Only these blocks of the only one, when there are any.
    pub(crate) parts: &'a [Extent],
    pub(crate) floor: Floor,
    pub(crate) durable: Durable,
    /// Whether the file system would look for space beside the file.
    pub(crate) beside: bool,
}

/// Why it was not done.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The files are as they were, or partly done.
    Left(LeftReason),
    /// The volume failed.
    Failed(VolumeError),
}

impl From<LeftReason> for Ended {
    fn from(reason: LeftReason) -> Self {
        Self::Left(reason)
    }
}

/// Opens a file by its handle, for [`Subject::of`].
pub(crate) fn open(root: &File, handle: &FileHandle) -> Result<File, LeftReason> {
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

/// Writes all that the request names into new places, one for each file and what it shares with none before it. `written`
/// grows with what is written, whatever comes of it. `observer` is asked before each part.
pub(crate) fn rewrite(request: &Request<'_>, observer: &mut dyn Observer, written: &mut Bytes) -> Result<(), Ended> {
    let Some(first) = request.subjects.first() else { return Ok(()) };
    let block_size = first.survey.block_size;
    let members: Vec<Member> = request.subjects.iter().map(|subject| subject.member(request.parts)).collect();
    let not_exchangeable = LeftReason::Skipped(SkipReason::NotExchangeable);
    if request.subjects.iter().any(|subject| subject.in_place != first.in_place) {
        return Err(not_exchangeable.into());
    }
    let plan = UnitPlan::new(&members, block_size, block_size.to_blocks(MOVED_AT_ONCE)).ok_or(not_exchangeable)?;
    // In how few pieces they would lie at best, when parts of them are shared, counts as none.
    let at_best = plan.fragments_at_best(&members);
    let excess = |fragments: u64| fragments.saturating_sub(at_best);
    let before: u64 = members.iter().map(Member::fragments).sum();
    let bytes: Vec<Bytes> = plan
        .copies
        .iter()
        .map(|copy| {
            let source = request.subjects.get(copy.source);
            copy.ranges
                .iter()
                .filter_map(|range| source.map(|source| source.survey.bytes(range.logical, range.length).length))
                .sum()
        })
        .collect();
    let wanted = Wanted { plan: &plan, bytes: &bytes, block_size, in_place: first.in_place, excess: excess(before) };
    let lies_in = |donors: &[Donor]| {
        let maps: Vec<FileMap> = donors.iter().map(|donor| donor.map.clone()).collect();
        excess(plan.fragments_with(&members, &maps))
    };
    let beside = request.beside.then_some(&first.file);
    let donors = best(request.place.root, beside, wanted, request.floor, lies_in)?;
    let range = |member: usize, call: &Call| {
        request.subjects.get(member).map(|subject| (subject, subject.survey.bytes(call.logical, call.length)))
    };
    let cached = plan
        .takes
        .iter()
        .map(|take| range(take.member, &take.call).is_some_and(|(subject, range)| is_cached(&subject.file, range)));
    let cached = cached.collect();
    let mut work = Work { request, block_size, members: &members, plan: &plan, donors: &donors, cached, written };
    work.copy(observer)?;
    work.take(observer)
}

struct Work<'a> {
    request: &'a Request<'a>,
    block_size: BlockSize,
    members: &'a [Member],
    plan: &'a UnitPlan,
    donors: &'a [Donor],
    /// Which of the takes' ranges were in memory when we came.
    cached: Vec<bool>,
    written: &'a mut Bytes,
}

impl Work<'_> {
    fn failed(&self, act: &'static str, error: std::io::Error) -> Ended {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Ended::Left(LeftReason::LowSpace),
            _ => {
                let path = self.request.place.point.to_owned();
                Ended::Failed(VolumeError::Io { path, act, source: error })
            }
        }
    }

    /// Copies everything, and makes the copies durable where that must be before any file is mapped to them.
    fn copy(&mut self, observer: &mut dyn Observer) -> Result<(), Ended> {
        let mut buffer = vec![0; COPIED_AT_ONCE];
        let step = self.block_size.to_blocks(Bytes(COPIED_AT_ONCE as u64));
        for (copy, donor) in self.plan.copies.iter().zip(self.donors) {
            let Some(source) = self.request.subjects.get(copy.source) else { continue };
            let map = FileMap::new(source.survey.data.iter().copied());
            for call in &copy.ranges {
                let mut done = Blocks(0);
                while done < call.length {
                    let part = step.min(call.length - done);
                    self.checkpoint(source, observer, self.block_size.to_bytes(part))?;
                    let place = Extent { start: PhysicalBlock((call.logical + done).0), length: part };
                    self.read_in_turns(source, observer, map.within(place).collect())?;
                    self.copy_part(source, donor, call.logical + done, call.donor + done, part, &mut buffer)?;
                    done += part;
                }
            }
            match self.request.durable {
                Durable::BeforeItIsTaken => {
                    donor.file.sync_all().map_err(|error| self.failed("making a copy durable", error))?;
                }
                // On its way while the next is copied; what is shared is waited for by the kernel.
                Durable::WithTheCommit => {
                    let _ = longrun_sys::start_writeback(&donor.file, ByteRange::ALL);
                }
            }
        }
        Ok(())
    }

    /// Asked before each part; also while the permission is waited for, somebody may fill the volume or write to the file.
    fn checkpoint(&self, source: &Subject, observer: &mut dyn Observer, next: Bytes) -> Result<(), LeftReason> {
        loop {
            if !source.stamp.is_on(&source.file) {
                return Err(LeftReason::Skipped(SkipReason::Changed));
            }
            self.request.floor.holds(self.request.place.root)?;
            if observer.cancelled() {
                return Err(LeftReason::Cancelled);
            }
            match observer.permission(next) {
                Permission::Go => return Ok(()),
                Permission::Wait(time) => observer.wait(time.min(LONGEST_WAIT)),
            }
        }
    }

    /// The same before copies that are complete are taken: whatever ends the waiting is looked at by the caller. Space that
    /// others need is freed by going on.
    fn await_permission(&self, subject: &Subject, observer: &mut dyn Observer, next: Bytes) {
        while !observer.cancelled()
            && subject.stamp.is_on(&subject.file)
            && self.request.floor.holds(self.request.place.root).is_ok()
            && let Permission::Wait(time) = observer.permission(next)
        {
            observer.wait(time.min(LONGEST_WAIT));
        }
    }

    /// Reads what is copied next a few pieces at a time, as an exchange does, and asks before each turn after the first and
    /// before the copy is written.
    fn read_in_turns(&self, source: &Subject, observer: &mut dyn Observer, pieces: Vec<Run>) -> Result<(), LeftReason> {
        let most = observer.turn().pieces;
        if most == Turn::UNLIMITED.pieces {
            return Ok(());
        }
        let ranges = |turn: &[Run]| -> Vec<ByteRange> {
            turn.iter().map(|run| source.survey.bytes(run.logical, run.length)).collect()
        };
        for act in in_turns(pieces, most) {
            match act {
                Act::Ask(turn) => ask_for(&source.file, &ranges(&turn)),
                Act::Await(turn) => {
                    await_read(&source.file, &ranges(&turn));
                    self.checkpoint(source, observer, Bytes(0))?;
                }
            }
        }
        Ok(())
    }

    fn copy_part(
        &mut self,
        source: &Subject,
        donor: &Donor,
        from: LogicalBlock,
        to: LogicalBlock,
        length: Blocks,
        buffer: &mut [u8],
    ) -> Result<(), Ended> {
        let range = source.survey.bytes(from, length);
        let to = self.block_size.to_bytes(Blocks(to.0));
        *self.written += range.length;
        donor.copy(&source.file, range, to, buffer).map_err(|error| match error.kind() {
            // It was cut off meanwhile.
            std::io::ErrorKind::UnexpectedEof => Ended::Left(LeftReason::Skipped(SkipReason::Changed)),
            _ => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) => {
                    Ended::Left(LeftReason::Skipped(SkipReason::Unreadable))
                }
                _ => self.failed("copying a file", error),
            },
        })
    }

    /// Has the files take the copies, range by range. Once it has begun it ends only where they lie in no more fragments
    /// than before; and where they share blocks only when all have taken them, or space would be lost.
    fn take(&mut self, observer: &mut dyn Observer) -> Result<(), Ended> {
        let mut maps: Vec<FileMap> =
            self.members.iter().map(|member| FileMap::new(member.runs.iter().copied())).collect();
        let count = |maps: &[FileMap]| maps.iter().map(FileMap::fragments).sum::<u64>();
        let before = count(&maps);
        let alone = self.members.len() == 1;
        let mut differs = false;
        for (position, take) in self.plan.takes.iter().enumerate() {
            let (Some(subject), Some(donor)) = (self.request.subjects.get(take.member), self.donors.get(take.copy))
            else {
                continue;
            };
            self.await_permission(subject, observer, self.block_size.to_bytes(take.call.length));
            let changed = !subject.stamp.is_on(&subject.file);
            let unwanted = observer.cancelled() || changed;
            if unwanted && (position == 0 || alone && count(&maps) <= before) {
                let reason =
                    if observer.cancelled() { LeftReason::Cancelled } else { LeftReason::Skipped(SkipReason::Changed) };
                return if position == 0 { Err(reason.into()) } else { Ok(()) };
            }
            match self.take_range(subject, donor, &take.call) {
                Ok(true) => {
                    if let Some(map) = maps.get_mut(take.member) {
                        carry_out(map, &take.call, &donor.map);
                    }
                }
                Ok(false) => differs = true,
                // What went before went well, and the map tells what that was worth.
                Err(Ended::Left(_)) if position > 0 && alone => return Ok(()),
                Err(ended) => return Err(ended),
            }
            if alone {
                donor.part_with(self.block_size, take.call.donor, take.call.length);
            }
            if self.cached.get(position).is_some_and(|cached| *cached) {
                // Somebody uses it: it is to be in memory as before. Advice only.
                let range = subject.survey.bytes(take.call.logical, take.call.length);
                let _ = longrun_sys::read_ahead(&subject.file, range);
            }
        }
        if differs && !alone { Err(LeftReason::Skipped(SkipReason::Changed).into()) } else { Ok(()) }
    }

    /// One range; false when it does not hold what was copied, however often it is copied again.
    fn take_range(&mut self, subject: &Subject, donor: &Donor, call: &Call) -> Result<bool, Ended> {
        let mut done = Bytes(0);
        let range = subject.survey.bytes(call.logical, call.length);
        let donor_start = self.block_size.to_bytes(Blocks(call.donor.0));
        // Of what several files share only one tells what it is.
        let most_tries = if self.members.len() == 1 { TRIES } else { 0 };
        let mut tries = 0;
        while done < range.length {
            let rest = ByteRange { start: range.start + done, length: range.length.saturating_sub(done) };
            match longrun_sys::share_if_same(&donor.file, donor_start + done, &subject.file, rest) {
                // No progress without a difference: the kernel does not want to.
                Ok(Shared::Same(Bytes(0))) => return Err(LeftReason::Skipped(SkipReason::NotExchangeable).into()),
                Ok(Shared::Same(more)) => done += more,
                Ok(Shared::Differs) if tries < most_tries => {
                    tries += 1;
                    let skipped = self.block_size.to_blocks(done);
                    let mut buffer = vec![0; COPIED_AT_ONCE];
                    let (from, to) = (call.logical + skipped, call.donor + skipped);
                    self.copy_part(subject, donor, from, to, call.length.saturating_sub(skipped), &mut buffer)?;
                    if self.request.durable == Durable::BeforeItIsTaken {
                        donor.file.sync_all().map_err(|error| self.failed("making a copy durable", error))?;
                    }
                }
                Ok(Shared::Differs) => return Ok(false),
                Err(errno) => {
                    return Err(match left_for(errno, SkipReason::Unreadable) {
                        LeftReason::Skipped(SkipReason::Unreadable) => self.failed("moving a file", errno.into()),
                        reason => reason.into(),
                    });
                }
            }
        }
        Ok(true)
    }
}
