//! Reads the data of an exchange before it is made, in small amounts. Other I/O waits only for one of these reads, not
//! for all the data of the exchange.
//!
//! Owns what is in memory for the next exchange, and whether it was there before. Never decides how much is read at a
//! time.

use longrun_layout::{BlockSize, Bytes, FileId, Run};
use longrun_sys::ByteRange;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Read-ahead requests of this size fill the cache with single pages; in larger folios ext4 would force a commit for each
/// block that it exchanges.
pub(crate) const READ_STEP: Bytes = Bytes(128 << 10);

/// A range of a file that has been read, in part or whole, for the exchanges that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    id: FileId,
    range: ByteRange,
    /// Another process had some of it in memory before.
    pub(crate) was_cached: bool,
    /// When that began.
    pub(crate) since: Instant,
}

impl Ahead {
    /// Whether it was read for other exchanges, too.
    pub(crate) fn is_more_than(&self, range: ByteRange) -> bool {
        self.range != range
    }
}

/// What is being read now.
#[derive(Debug, Default)]
pub(crate) struct Reading(Option<Ahead>);

impl Reading {
    /// Whether the reading of this range has begun.
    pub(crate) fn is_of(&self, id: FileId, range: ByteRange) -> bool {
        self.0.is_some_and(|ahead| (ahead.id, ahead.range) == (id, range))
    }

    /// The reading of this range begins.
    pub(crate) fn begin(&mut self, id: FileId, range: ByteRange, was_cached: bool) {
        self.0 = Some(Ahead { id, range, was_cached, since: Instant::now() });
    }

    /// A range is exchanged now: what there is to know of it, when it is a part of what was read. With the last part that is
    /// forgotten.
    pub(crate) fn take(&mut self, id: FileId, range: ByteRange) -> Option<Ahead> {
        let end = |range: ByteRange| range.start.0 + range.length.0;
        let holds =
            |ahead: &Ahead| ahead.id == id && ahead.range.start <= range.start && end(range) <= end(ahead.range);
        let found = self.0.filter(holds);
        if found.is_none_or(|ahead| end(range) == end(ahead.range)) {
            self.0 = None;
        }
        found
    }
}

/// Where pieces of a file lie in it.
pub(crate) fn ranges_of(block_size: BlockSize, pieces: &[Run]) -> Vec<ByteRange> {
    pieces.iter().map(|piece| ByteRange::of_blocks(block_size, piece.logical, piece.length)).collect()
}

/// Asks for pieces of a file to be read into memory, all of them at once.
pub(crate) fn ask_for(file: &File, pieces: &[ByteRange]) {
    for step in pieces.iter().flat_map(|piece| steps_of(*piece)) {
        // Only a hint: data that cannot be read shows when it is exchanged.
        let _ = longrun_sys::read_ahead(file, step);
    }
}

/// Returns when pieces that were asked for are there.
pub(crate) fn await_read(file: &File, pieces: &[ByteRange]) {
    for step in pieces.iter().flat_map(|piece| steps_of(*piece)) {
        let last = step.start.0 + step.length.0.saturating_sub(1);
        let _ = file.read_at(&mut [0], last);
    }
}

/// A range in requests of [`READ_STEP`].
pub(crate) fn steps_of(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let stop = range.start.0 + range.length.0;
    let starts = (range.start.0..stop).step_by(READ_STEP.0 as usize);
    starts.map(move |from| ByteRange { start: Bytes(from), length: Bytes(READ_STEP.0.min(stop - from)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::InodeNumber;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange { start: Bytes(start), length: Bytes(length) }
    }

    #[test]
    fn only_the_range_that_was_read_is_known_and_only_once() {
        let id = |generation| FileId { inode: InodeNumber(5), generation };
        let mut reading = Reading::default();
        reading.begin(id(1), range(0, 10), true);
        assert!(reading.is_of(id(1), range(0, 10)));
        assert!(!reading.is_of(id(2), range(0, 10)) && !reading.is_of(id(1), range(0, 11)));
        assert!(reading.take(id(1), range(0, 10)).is_some_and(|ahead| ahead.was_cached));
        assert_eq!(reading.take(id(1), range(0, 10)), None);
        for (other, part) in [(id(2), range(0, 10)), (id(1), range(5, 10))] {
            reading.begin(id(1), range(0, 10), true);
            assert_eq!(reading.take(other, part), None);
            assert_eq!(reading.take(id(1), range(0, 5)), None, "another came between");
        }
    }

    #[test]
    fn what_was_read_for_several_exchanges_is_known_until_the_last() {
        let id = FileId { inode: InodeNumber(5), generation: 1 };
        let mut reading = Reading::default();
        reading.begin(id, range(10, 30), false);
        for part in [range(10, 10), range(20, 10), range(20, 10), range(30, 10)] {
            assert!(reading.take(id, part).is_some(), "{part:?}");
        }
        assert_eq!(reading.take(id, range(10, 10)), None);
    }

    #[test]
    fn long_pieces_are_read_in_steps() {
        let steps: Vec<ByteRange> = steps_of(range(4096, 300 << 10)).collect();
        assert_eq!(steps, [range(4096, 131_072), range(135_168, 131_072), range(266_240, 45_056)]);
        assert_eq!(steps_of(range(7, 0)).count(), 0);
    }
}
