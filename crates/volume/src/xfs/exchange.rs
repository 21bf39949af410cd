//! Moves a part of a file to a chosen place.
//!
//! Owns the steps: allocate the place in a nameless file, write a copy of the data there, and let the kernel compare
//! the two under its locks and let the file share the copy's blocks (FIDEDUPERANGE). Times, attributes and holes stay.
//! A file that was changed meanwhile differs, and stays in place. The vacated blocks go back to the file system, which
//! does not allocate them before its log is written. Never plans, never waits for the log.

use super::anchors::{AnchorFile, AnchoredRange, Anchors};
use super::claims::Claims;
use super::log::Log;
use super::scan::free_in;
use super::sharers::Keep;
use crate::mounted::Named;
use crate::mounted::files::{Files, OpenFile};
use longrun_engine::{Exchanged, MoveError, SkipReason};
use longrun_layout::{Blocks, Bytes, Extent, FileId, LogicalBlock, PhysicalBlock, Pin, Run};
use longrun_sys::{ByteRange, Errno, FileExtent, Mapping, Shared, XfsGeometry, longest_folio, share_if_same};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// The most that the kernel is asked to compare at once: it holds the locks of the file meanwhile (1 MiB: 0.3 ms).
const MOST_BYTES: u64 = 4 << 20;
/// An allocation that cannot be obtained is not tried in smaller pieces than this.
const LEAST_STEP: Blocks = Blocks(64);
/// How often an allocation that missed is tried again although its place is free: what was freed lately can be obtained only
/// when the log has been written (and, on volumes that discard, a little later).
const RETRIES: u32 = 1;
const BETWEEN_RETRIES: Duration = Duration::from_millis(2);

/// What an exchange works with.
pub(super) struct Mover<'a> {
    pub(super) name: &'a Named,
    pub(super) root: &'a File,
    pub(super) geometry: XfsGeometry,
    pub(super) files: &'a mut Files,
    pub(super) anchors: &'a Anchors,
    pub(super) claims: &'a mut Claims,
    pub(super) log: &'a Log,
    pub(super) keep: &'a Keep,
    pub(super) buffer: &'a mut Vec<u8>,
    /// Whether another process had it in memory before it was read for this; none when it was not.
    pub(super) was_cached: Option<bool>,
}

/// A part of a file: blocks, and how many bytes of the file they hold.
#[derive(Clone, Copy, Debug)]
struct Part {
    logical: LogicalBlock,
    length: Blocks,
    bytes: Bytes,
}

/// The files that move together, at least one: the first leads.
type Group = Vec<Arc<OpenFile>>;

impl Mover<'_> {
    /// Has `length` blocks of `id` from `logical` lie at `target`, and of those that follow it.
    pub(super) fn exchange(
        &mut self,
        id: FileId,
        followers: &[FileId],
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let mut group = followers.iter().map(|id| self.files.open(*id)).collect::<Result<Group, _>>()?;
        group.insert(0, self.files.open(id)?);
        let block_size = self.geometry.block_size;
        let (folio, mut most) = (block_size.to_blocks(longest_folio()), block_size.to_blocks(Bytes(MOST_BYTES)));
        let mut done = Exchanged::default();
        while done.blocks < length {
            let at = logical + done.blocks;
            let wanted = Extent { start: target + done.blocks, length: next(at, length - done.blocks, most, folio) };
            match self.chunk(&group, at, wanted, &mut done) {
                Ok(true) => {}
                Ok(false) => break,
                // A group that has little left gives it in small pieces.
                Err(MoveError::Skip(SkipReason::TargetTaken)) if wanted.length > LEAST_STEP => {
                    most = Blocks(wanted.length.0 / 4).max(LEAST_STEP);
                }
                // What was exchanged before stays exchanged, and must be told.
                Err(MoveError::Skip(_)) if done.blocks.0 > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Moves the next part; false when it went only partly.
    fn chunk(
        &mut self,
        group: &Group,
        logical: LogicalBlock,
        wanted: Extent,
        done: &mut Exchanged,
    ) -> Result<bool, MoveError> {
        if !self.claims.covers(wanted) {
            return Err(MoveError::Skip(SkipReason::TargetTaken));
        }
        let [file, followers @ ..] = group.as_slice() else { return Ok(false) };
        let part = self.part(file, logical, wanted.length)?;
        let sources = self.sources(file, part, !followers.is_empty())?;
        for follower in followers {
            let same = self.part(follower, logical, wanted.length)?.bytes == part.bytes;
            if !same || self.sources(follower, part, true)? != sources {
                return Err(MoveError::Skip(SkipReason::Changed));
            }
        }
        let (anchor_file, anchored) = self.anchored(wanted)?;
        let moved = self.carry(group, part, &anchor_file, &anchored);
        // Whatever came of it, the anchor file's own share goes back.
        anchor_file.give_back(&anchored).map_err(self.name.failed("giving back free space"))?;
        let moved = moved?;
        let left = first_blocks(&sources, moved);
        let vacated: Vec<Extent> = left.iter().flat_map(|extent| self.anchors.without_anchors(*extent)).collect();
        self.claims.exchanged(Extent { length: moved, ..wanted }, &vacated);
        done.blocks += moved;
        done.vacated.extend(vacated);
        Ok(moved == wanted.length)
    }

    /// How much of the file the blocks hold. The last block of a file counts as a part only together with its end.
    fn part(&self, file: &OpenFile, logical: LogicalBlock, length: Blocks) -> Result<Part, MoveError> {
        let range = ByteRange::of_blocks(self.geometry.block_size, logical, length);
        let size = file.current_length().map_err(|_| MoveError::Skip(SkipReason::Vanished))?;
        let bytes = Bytes(size.0.saturating_sub(range.start.0).min(range.length.0));
        if bytes.0 == 0 {
            // Behind the end of the file lies preallocated space, which does not move.
            return Err(MoveError::Skip(SkipReason::NotExchangeable));
        }
        Ok(Part { logical, length, bytes })
    }

    /// Where the part lies now, in the order of the file. What was never written is left alone, and what is shared unless
    /// it `may_share`.
    fn sources(&self, file: &OpenFile, part: Part, may_share: bool) -> Result<Vec<Extent>, MoveError> {
        let block_size = self.geometry.block_size;
        let range = ByteRange::of_blocks(block_size, part.logical, part.length);
        let mut extents = self.extents(file, range, Mapping::AsIs)?;
        if extents.iter().any(|extent| extent.flags.is_delayed()) {
            self.files.write_back(file, range)?;
            extents = self.extents(file, range, Mapping::AsIs)?;
        }
        let is_anchor =
            |extent: &FileExtent| extent.run(block_size).is_some_and(|run| self.anchors.is_anchor(run.extent()));
        if !may_share && extents.iter().any(|extent| extent.flags.is_shared() && !is_anchor(extent)) {
            return Err(MoveError::Skip(SkipReason::Pinned(Pin::Shared)));
        }
        if extents.iter().any(|extent| extent.flags.is_unwritten()) {
            return Err(MoveError::Skip(SkipReason::Pinned(Pin::Preallocated)));
        }
        let runs = clipped(extents.iter().filter_map(|e| e.run(self.geometry.block_size)), part);
        if runs.iter().map(|run| run.length).sum::<Blocks>() != part.length {
            // A hole came about: to write zeros there would take space that the file does not have.
            return Err(MoveError::Skip(SkipReason::Changed));
        }
        let mut sources: Vec<Extent> = runs.iter().map(Run::extent).collect();
        // Where records begin differs from file to file.
        sources.dedup_by(|next, kept| {
            let joined = kept.end() == next.start;
            if joined {
                kept.length += next.length;
            }
            joined
        });
        Ok(sources)
    }

    fn extents(&self, file: &OpenFile, range: ByteRange, mapping: Mapping) -> Result<Vec<FileExtent>, MoveError> {
        longrun_sys::map_file(file, range, mapping).map_err(|errno| self.files.refusal("mapping a file", errno))
    }

    /// Allocates the place.
    fn anchored(&self, wanted: Extent) -> Result<(Arc<AnchorFile>, AnchoredRange), MoveError> {
        let group = self.geometry.group_of_block(wanted.start);
        for attempt in 0..=RETRIES {
            let Some(anchor_file) = self.anchors.anchor_file(group) else { break };
            if let Some(anchored) = anchor_file.take(wanted).map_err(self.name.failed("allocating free space"))? {
                return Ok((anchor_file, anchored));
            }
            let free = free_in(self.root, &self.geometry, wanted);
            if !free.map_err(self.name.failed("reading the free space"))?.covers(wanted) {
                break;
            }
            self.log.write().map_err(self.name.failed("writing the log"))?;
            std::thread::sleep(BETWEEN_RETRIES * attempt);
        }
        Err(MoveError::Skip(SkipReason::TargetTaken))
    }

    /// Copies the part into the range and has the file take it, and those that follow it: all or none. Returns how many
    /// blocks lie there now.
    fn carry(
        &mut self,
        group: &Group,
        part: Part,
        anchor_file: &AnchorFile,
        anchored: &AnchoredRange,
    ) -> Result<Blocks, MoveError> {
        let Some(file) = group.first() else { return Ok(Blocks(0)) };
        let was_cached = self.was_cached.unwrap_or_else(|| any_is_cached(group, self.bytes_of(part)));
        self.fill(file, part, anchor_file, anchored)?;
        if group.len() == 1 {
            let moved = self.take(file, part, anchor_file, anchored)?;
            self.warm(file, part, was_cached);
            return Ok(moved);
        }
        let range = self.bytes_of(part);
        let kept =
            self.keep.present(file, range).map_err(|errno| self.files.refusal("sharing a file's blocks", errno))?;
        let taken: Result<Vec<Blocks>, MoveError> =
            group.iter().map(|file| self.take(file, part, anchor_file, anchored)).collect();
        let all_went = taken.as_ref().is_ok_and(|moved| moved.iter().all(|moved| *moved == part.length));
        // A file that no one knows of keeps the old place: then the move would cost space.
        let is_wanted = kept.is_shared().map_err(self.name.failed("mapping a temporary file"))?;
        if all_went && !is_wanted {
            kept.give_back().map_err(self.name.failed("giving back free space"))?;
            group.iter().for_each(|file| self.warm(file, part, was_cached));
            return Ok(part.length);
        }
        group.iter().for_each(|file| kept.put_back(self.root, &**file, range, self.geometry.block_size));
        kept.give_back().map_err(self.name.failed("giving back free space"))?;
        taken?;
        Err(MoveError::Skip(if all_went { SkipReason::Pinned(Pin::Shared) } else { SkipReason::Busy }))
    }

    fn bytes_of(&self, part: Part) -> ByteRange {
        ByteRange { start: self.geometry.block_size.to_bytes(Blocks(part.logical.0)), length: part.bytes }
    }

    /// The kernel forgets the pages of what it moves. Only a hint.
    fn warm(&self, file: &OpenFile, part: Part, was_cached: bool) {
        if was_cached {
            let _ = longrun_sys::read_ahead(file, self.bytes_of(part));
        }
    }

    /// Copies the part into the range.
    fn fill(
        &mut self,
        file: &OpenFile,
        part: Part,
        anchor_file: &AnchorFile,
        anchored: &AnchoredRange,
    ) -> Result<(), MoveError> {
        let range = self.bytes_of(part);
        let Self { name, files, buffer, .. } = self;
        buffer.resize(usize::try_from(part.bytes.0).unwrap_or(0), 0);
        let read = file.read_at(buffer, range.start);
        if read.map_err(|errno| files.refusal("reading a file", errno))? < buffer.len() {
            return Err(MoveError::Skip(SkipReason::Busy));
        }
        anchor_file.write(anchored, buffer).map_err(name.failed("writing moved data"))?;
        // Nothing is taken from a place that is not the chosen one: the guarantee does not rest on the allocation alone.
        longrun_sys::wait_writeback(anchor_file, anchor_file.range(anchored))
            .map_err(name.failed("writing moved data"))?;
        if !anchor_file.lies(anchored).map_err(name.failed("mapping a temporary file"))? {
            return Err(MoveError::Skip(SkipReason::TargetTaken));
        }
        Ok(())
    }

    /// Has a file take the range, if both hold the same. Returns how many of its blocks lie there now.
    fn take(
        &self,
        file: &OpenFile,
        part: Part,
        anchor_file: &AnchorFile,
        anchored: &AnchoredRange,
    ) -> Result<Blocks, MoveError> {
        let Self { files, geometry, root, .. } = self;
        let range = self.bytes_of(part);
        let end = Bytes(range.start.0 + range.length.0);
        match share_if_same(root, anchor_file, anchor_file.range(anchored).start, file, range) {
            Ok(Shared::Same(_)) => {}
            Ok(Shared::Differs) => return Err(MoveError::Skip(SkipReason::Busy)),
            // It has just become shorter.
            Err(Errno::INVAL) if file.current_length().is_ok_and(|now| now < end) => {
                return Err(MoveError::Skip(SkipReason::Busy));
            }
            Err(errno) => return Err(files.refusal_of(file, "moving a file", errno)),
        }
        let whole = ByteRange::of_blocks(geometry.block_size, part.logical, part.length);
        let extents = longrun_sys::map_file(file, whole, Mapping::AsIs)
            .map_err(|errno| files.refusal("mapping a file", errno))?;
        let runs = clipped(extents.iter().filter_map(|extent| extent.run(geometry.block_size)), part);
        Ok(arrived(&runs, part.logical, anchored.extent.start))
    }
}

/// How much of what is `left` goes next, at most `most`. It ends where a folio can end, if that leaves any: what is
/// taken from the middle of a folio costs a comparison of all of it ([`longrun_sys::share_if_same`]).
fn next(at: LogicalBlock, left: Blocks, most: Blocks, folio: Blocks) -> Blocks {
    if left <= most {
        return left;
    }
    let beyond = Blocks((at + most).0 % folio.0.max(1));
    if beyond < most { most - beyond } else { most }
}

/// Whether any of the files has a part of the range in memory.
pub(super) fn any_is_cached(files: &[Arc<OpenFile>], range: ByteRange) -> bool {
    let is_cached = |file: &Arc<OpenFile>| longrun_sys::cache_state(file, range);
    files.iter().any(|file| is_cached(file).is_ok_and(|state| state.cached_pages > 0))
}

/// The part of runs that lies inside `part`.
fn clipped(runs: impl Iterator<Item = Run>, part: Part) -> Vec<Run> {
    let (start, end) = (part.logical, part.logical + part.length);
    runs.filter_map(|run| {
        let (from, to) = (run.logical.max(start), run.logical_end().min(end));
        (from < to).then(|| Run { logical: from, physical: run.physical + (from - run.logical), length: to - from })
    })
    .collect()
}

/// How many blocks from `logical` on lie from `target` on.
fn arrived(runs: &[Run], logical: LogicalBlock, target: PhysicalBlock) -> Blocks {
    let mut count = Blocks(0);
    for run in runs {
        if run.logical != logical + count || run.physical != target + count {
            break;
        }
        count += run.length;
    }
    count
}

/// The first `count` blocks of extents.
fn first_blocks(extents: &[Extent], count: Blocks) -> Vec<Extent> {
    let mut left = count;
    let mut first = Vec::with_capacity(extents.len());
    for extent in extents {
        let length = extent.length.min(left);
        if length.0 == 0 {
            break;
        }
        first.push(Extent { length, ..*extent });
        left -= length;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_divided_is_divided_where_folios_end() {
        let next = |at, left, most| next(LogicalBlock(at), Blocks(left), Blocks(most), Blocks(512)).0;
        assert_eq!(next(100, 1000, 1024), 1000);
        assert_eq!(next(100, 5000, 1024), 924);
        assert_eq!(next(1024, 5000, 1024), 1024);
        // Too little to reach the end of a folio.
        assert_eq!(next(100, 5000, 64), 64);
    }

    #[test]
    fn only_blocks_at_their_place_without_a_gap_have_arrived() {
        let runs = [Run::new(5, 100, 3), Run::new(8, 103, 2), Run::new(10, 300, 4)];
        let count = |logical, target| arrived(&runs, LogicalBlock(logical), PhysicalBlock(target)).0;
        assert_eq!([count(5, 100), count(5, 101), count(4, 99)], [5, 0, 0]);
    }

    #[test]
    fn what_was_vacated_ends_with_what_has_arrived() {
        let extents = [Extent::new(10, 3), Extent::new(50, 4)];
        assert_eq!(first_blocks(&extents, Blocks(5)), [Extent::new(10, 3), Extent::new(50, 2)]);
        assert_eq!(first_blocks(&extents, Blocks(0)), []);
    }
}
