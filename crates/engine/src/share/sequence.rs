//! The sequence for files that share blocks: copies are made and become durable, then the files take them range by
//! range.
//!
//! Owns the order, the retries and the cleanup. Leaves everything unchanged if there is no better place; otherwise
//! never decides whether the work is worthwhile.

use super::call::carry_out;
use super::places::best;
use super::traits::{Compared, Ended, MemberRange, Sharing};
use super::unit::{Member, UnitPlan};
use super::{COPIED_AT_ONCE, Call, MOVED_AT_ONCE, NotMended};
use crate::turns::{Act, in_turns};
use crate::{FileMap, Observer, SkipReason, Turn, until_permitted};
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalRange, Run};
use std::time::Duration;

/// How often a range is copied again that was written to between copy and comparison.
const TRIES: u32 = 3;

/// How long others' need of the space that is held can go unnoticed.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// When a copy must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Before a file takes it: else a crash could find the file mapped to what never reached the device.
    BeforeItIsTaken,
    /// With the commit that makes the taking durable: btrfs writes the data of a range before it shares it, and
    /// flushes the device before a commit.
    WithTheCommit,
}

/// What to write again, and within which limits.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The files with their present maps, and the parts to rewrite: all files that share any of these blocks.
    pub members: &'a [Member],
    /// The volume's.
    pub block_size: BlockSize,
    /// When copies have to be durable.
    pub durable: Durable,
    /// Whether the file system would look for space beside the file.
    pub beside: bool,
}

impl Request<'_> {
    /// Bytes of a range of whole blocks, up to the end of the file.
    fn bytes(&self, range: MemberRange) -> Bytes {
        let start = self.block_size.to_bytes(Blocks(range.logical.0));
        let size = self.members.get(range.member).map_or(Bytes(0), |member| member.size);
        self.block_size.to_bytes(range.length).min(size.saturating_sub(start))
    }
}

/// Writes all that the request names into new places, one for each file and what it shares with none before it. `written`
/// grows with what is written, whatever comes of it. `observer` is asked before each part.
///
/// # Errors
/// [`Ended`]: whatever it is, no byte of a file has changed.
pub fn rewrite<S: Sharing>(
    volume: &mut S,
    request: &Request<'_>,
    observer: &mut dyn Observer,
    written: &mut Bytes,
) -> Result<(), Ended> {
    let Request { members, block_size, .. } = *request;
    let not_exchangeable = NotMended::Skipped(SkipReason::NotExchangeable);
    let plan = UnitPlan::new(members, block_size, block_size.to_blocks(MOVED_AT_ONCE)).ok_or(not_exchangeable)?;
    // In how few pieces they would lie at best, when parts of them are shared, counts as none.
    let at_best = plan.fragments_at_best(members);
    let excess = |fragments: u64| fragments.saturating_sub(at_best);
    let before: u64 = members.iter().map(Member::fragments).sum();
    let bytes: Vec<Bytes> = plan
        .copies
        .iter()
        .map(|copy| copy.ranges.iter().map(|range| request.bytes(part_of(copy.source, range))).sum())
        .collect();
    let lies_in = |volume: &S, copies: &[S::Copy]| {
        let maps: Vec<FileMap> = copies.iter().map(|copy| volume.map(copy).clone()).collect();
        excess(plan.fragments_with(members, &maps))
    };
    let copies = best(volume, &plan, &bytes, request.beside, excess(before), lies_in)?;
    let cached = plan.takes.iter().map(|take| volume.is_cached(part_of(take.member, &take.call))).collect();
    let mut work = Work { volume, request, plan: &plan, copies: &copies, cached, written };
    work.copy(observer)?;
    work.take(observer)
}

fn part_of(member: usize, call: &Call) -> MemberRange {
    MemberRange { member, logical: call.logical, length: call.length }
}

struct Work<'a, S: Sharing> {
    volume: &'a mut S,
    request: &'a Request<'a>,
    plan: &'a UnitPlan,
    copies: &'a [S::Copy],
    /// Which of the takes' ranges were in memory when we came.
    cached: Vec<bool>,
    written: &'a mut Bytes,
}

impl<S: Sharing> Work<'_, S> {
    /// Copies everything, and makes the copies durable where that must be before any file is mapped to them.
    fn copy(&mut self, observer: &mut dyn Observer) -> Result<(), Ended> {
        let block_size = self.request.block_size;
        let step = block_size.to_blocks(COPIED_AT_ONCE);
        for (planned, copy) in self.plan.copies.iter().zip(self.copies) {
            let Some(source) = self.request.members.get(planned.source) else { continue };
            let map = FileMap::new(source.data.iter().copied());
            for call in &planned.ranges {
                let mut done = Blocks(0);
                while done < call.length {
                    let length = step.min(call.length - done);
                    let from = MemberRange { member: planned.source, logical: call.logical + done, length };
                    self.checkpoint(planned.source, observer, block_size.to_bytes(length))?;
                    let range = LogicalRange { start: from.logical, length };
                    self.read_in_turns(planned.source, observer, map.within(range).collect())?;
                    *self.written += self.request.bytes(from);
                    self.volume.copy(from, copy, call.donor + done)?;
                    done += length;
                }
            }
            match self.request.durable {
                Durable::BeforeItIsTaken => self.volume.sync(copy)?,
                // On its way while the next is copied; what is shared is waited for by the kernel.
                Durable::WithTheCommit => self.volume.start_writing(copy),
            }
        }
        Ok(())
    }

    /// Asked before each part; also while the permission is waited for, another process may fill the volume or write to
    /// the file.
    fn checkpoint(&self, member: usize, observer: &mut dyn Observer, next: Bytes) -> Result<(), NotMended> {
        until_permitted(observer, next, LONGEST_WAIT, |observer| {
            if !self.volume.is_unchanged(member) {
                return Err(NotMended::Skipped(SkipReason::Changed));
            }
            self.volume.leaves_enough()?;
            if observer.cancelled() { Err(NotMended::Cancelled) } else { Ok(()) }
        })
    }

    /// Reads what is copied next a few pieces at a time, as an exchange does, and asks before each turn after the
    /// first and before the copy is written.
    fn read_in_turns(&self, member: usize, observer: &mut dyn Observer, pieces: Vec<Run>) -> Result<(), NotMended> {
        let most = observer.turn().pieces;
        if most == Turn::UNLIMITED.pieces {
            return Ok(());
        }
        for act in in_turns(pieces, most) {
            match act {
                Act::Ask(turn) => self.volume.ask_for(member, &turn),
                Act::Await(turn) => {
                    self.volume.await_read(member, &turn);
                    self.checkpoint(member, observer, Bytes(0))?;
                }
            }
        }
        Ok(())
    }

    /// Lets the files take the copies, range by range. Once begun, it ends only at a point where they have no more
    /// fragments than before. Files that share blocks must all take them, because otherwise space would be lost.
    fn take(&mut self, observer: &mut dyn Observer) -> Result<(), Ended> {
        let members = self.request.members;
        let mut maps: Vec<FileMap> = members.iter().map(|member| FileMap::new(member.runs.iter().copied())).collect();
        let count = |maps: &[FileMap]| maps.iter().map(FileMap::fragments).sum::<u64>();
        let before = count(&maps);
        let alone = members.len() == 1;
        let mut differs = false;
        for (position, take) in self.plan.takes.iter().enumerate() {
            let Some(copy) = self.copies.get(take.copy) else { continue };
            // Whatever ends the waiting is judged below; and space that others need is freed by going on.
            let _ = self.checkpoint(take.member, observer, self.request.block_size.to_bytes(take.call.length));
            let changed = !self.volume.is_unchanged(take.member);
            let unwanted = observer.cancelled() || changed;
            if unwanted && (position == 0 || alone && count(&maps) <= before) {
                let reason =
                    if observer.cancelled() { NotMended::Cancelled } else { NotMended::Skipped(SkipReason::Changed) };
                return if position == 0 { Err(reason.into()) } else { Ok(()) };
            }
            match self.take_range(take.member, copy, &take.call) {
                Ok(true) => {
                    if let Some(map) = maps.get_mut(take.member) {
                        carry_out(map, &take.call, self.volume.map(copy));
                    }
                }
                Ok(false) => differs = true,
                // What went before went well, and the map tells what that was worth.
                Err(Ended::Left(_)) if position > 0 && alone => return Ok(()),
                Err(ended) => return Err(ended),
            }
            if alone {
                self.volume.part_with(copy, take.call.donor, take.call.length);
            }
            if self.cached.get(position).is_some_and(|cached| *cached) {
                // Another process uses it: it is to be in memory as before.
                self.volume.read_ahead(part_of(take.member, &take.call));
            }
        }
        if differs && !alone { Err(NotMended::Skipped(SkipReason::Changed).into()) } else { Ok(()) }
    }

    /// One range; false when it does not hold what was copied, however often it is copied again.
    fn take_range(&mut self, member: usize, copy: &S::Copy, call: &Call) -> Result<bool, Ended> {
        let range = part_of(member, call);
        let length = self.request.bytes(range);
        // Of what several files share only one tells what it is.
        let most_tries = if self.request.members.len() == 1 { TRIES } else { 0 };
        let (mut done, mut tries) = (Bytes(0), 0);
        while done < length {
            match self.volume.share_if_same(copy, call.donor, range, done)? {
                // No progress without a difference: the kernel does not want to.
                Compared::Same(Bytes(0)) => return Err(NotMended::Skipped(SkipReason::NotExchangeable).into()),
                Compared::Same(more) => done += more,
                Compared::Differs if tries < most_tries => {
                    tries += 1;
                    let skipped = Blocks(done.0 / u64::from(self.request.block_size.bytes()));
                    let logical = call.logical + skipped;
                    let again = MemberRange { member, logical, length: call.length.saturating_sub(skipped) };
                    *self.written += self.request.bytes(again);
                    self.volume.copy(again, copy, call.donor + skipped)?;
                    if self.request.durable == Durable::BeforeItIsTaken {
                        self.volume.sync(copy)?;
                    }
                }
                Compared::Differs => return Ok(false),
            }
        }
        Ok(true)
    }
}
