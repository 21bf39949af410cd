//! Preallocates a range of a file, in extents as divided by the policy.
//!
//! Owns the rule that the extents of one runway are contiguous. On btrfs each extent takes a call of its own, for which
//! the allocator searches again, so we make no other allocation between two of them. If they are still not contiguous,
//! because short extents fit into gaps, longer extents are allocated. Never decides where in a file a runway begins,
//! except that it begins before the writer's position.

use super::file::{self, Opened};
use crate::policy::Cut;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno};
use std::sync::{Mutex, PoisonError};

/// So far ahead of a writer that was faster, an extent is tried next; twice as far each time again.
const LEAD: u64 = 64 << 10;
/// The first extent of all is no shorter: it keeps the writer busy while the others are made, and leads to a gap
/// that has room for them. If they still do not adjoin, longer extents are allocated, up to the longest.
const COARSE: u64 = 1 << 20;
const COARSEST: u64 = 16 << 20;
/// After so many preallocations shorter extents are tried again.
const TRY_AGAIN: u32 = 32;

/// How short extents of a volume may be to adjoin, as experience tells.
#[derive(Debug, Default)]
pub(super) struct Grain {
    least: u64,
    since: u32,
}

impl Grain {
    fn next(&mut self) {
        self.since += 1;
        if self.since >= TRY_AGAIN {
            *self = Self { least: if self.least > COARSE { self.least / 4 } else { 0 }, since: 0 };
        }
    }

    /// `count` extents came in so many `pieces`.
    fn learn(&mut self, count: u64, pieces: u64) {
        if count >= 2 && pieces > count / 4 + 1 {
            *self = Self { least: (self.least * 4).clamp(COARSE, COARSEST), since: 0 };
        }
    }
}

/// The extents that were made one behind the other.
struct Row<'a> {
    opened: &'a Opened,
    cut: Cut,
    made: Option<ByteRange>,
    count: u64,
}

impl Row<'_> {
    /// Makes the first extent of `rest`; what is left then.
    fn add(&mut self, rest: ByteRange, grain: &mut Grain) -> Result<Option<ByteRange>, Errno> {
        let least = if self.count == 0 { grain.least.max(COARSE) } else { grain.least };
        let piece = self.cut.first(rest, Bytes(least));
        longrun_sys::allocate(&self.opened.file, piece)?;
        let start = self.made.map_or(piece.start, |made| made.start);
        let end = Bytes(piece.start.0.saturating_add(piece.length.0));
        let made = ByteRange { start, length: end.saturating_sub(start) };
        (self.made, self.count) = (Some(made), self.count + 1);
        // Looked at now and then: after 2, 4, 8, …
        if self.cut != Cut::Whole && self.count.is_power_of_two() {
            let pieces = file::pieces(&self.opened.file, made).map_or(1, |(pieces, _)| pieces);
            grain.learn(self.count, pieces);
        }
        Ok(rest.not_before(end))
    }
}

/// Preallocates `range` behind the end of the file; answers which part of it is ahead of the writer, if any.
pub(super) fn runway(
    opened: &Opened,
    range: ByteRange,
    cut: Cut,
    grain: &Mutex<Grain>,
) -> Result<Option<ByteRange>, Errno> {
    in_turn(cut, grain, |grain| {
        let mut row = Row { opened, cut, made: None, count: 0 };
        let (mut rest, mut lead) = (range, 0);
        loop {
            // One that was overtaken would wait for the writer once more at each extent, and be overtaken again.
            let size = opened.file.metadata().map_or(0, |stat| stat.len());
            if size > rest.start.0 {
                let Some(ahead) = rest.not_before(Bytes(size.saturating_add(lead))) else { return Ok(None) };
                (rest, lead) = (ahead, (lead * 2).max(LEAD));
                row = Row { opened, cut, made: None, count: 0 };
            }
            match row.add(rest, grain)? {
                Some(next) => rest = next,
                None => return Ok(row.made),
            }
        }
    })
}

/// Preallocates what are holes in `range`.
pub(super) fn window(opened: &Opened, range: ByteRange, cut: Cut, grain: &Mutex<Grain>) -> Result<(), Errno> {
    in_turn(cut, grain, |grain| {
        let mut row = Row { opened, cut, made: None, count: 0 };
        let mut rest = Some(range);
        while let Some(range) = rest {
            rest = row.add(range, grain)?;
        }
        Ok(())
    })
}

/// One at a time where there are several extents; what takes one call need not wait.
fn in_turn<R>(cut: Cut, grain: &Mutex<Grain>, fill: impl FnOnce(&mut Grain) -> R) -> R {
    if cut == Cut::Whole {
        return fill(&mut Grain::default());
    }
    let mut grain = grain.lock().unwrap_or_else(PoisonError::into_inner);
    grain.next();
    fill(&mut grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_become_longer_where_short_ones_do_not_adjoin_and_short_again_after_a_while() {
        let mut grain = Grain::default();
        for (count, pieces) in [(1, 1), (2, 1), (64, 4)] {
            grain.learn(count, pieces);
            assert_eq!(grain.least, 0);
        }
        grain.learn(2, 2);
        assert_eq!(grain.least, COARSE);
        (0..4).for_each(|_| grain.learn(4, 4));
        assert_eq!(grain.least, COARSEST);
        (0..2 * TRY_AGAIN).for_each(|_| grain.next());
        assert_eq!(grain.least, COARSE);
        (0..TRY_AGAIN).for_each(|_| grain.next());
        assert_eq!(grain.least, 0);
    }
}
