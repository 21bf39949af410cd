//! The growth of one file: how it fragmented by itself, and what it was granted since.

use crate::{Nanos, SignalKind};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use std::collections::BTreeMap;

/// So many windows are remembered per file; a file with more gets no others before it is settled.
const WINDOWS: usize = 4096;
/// No piece is smaller.
const BLOCK: u64 = 4096;

/// The growth of one file. The part that grants its runways stores this value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Small allocations that did not lie behind each other, and their bytes, before the first runway or window.
    alone: Pieces,
    alone_end: Bytes,
    runways: u32,
    pieces: u64,
    last_length: Bytes,
    last_at: Nanos,
    runway_end: Bytes,
    /// Start → end.
    windows: BTreeMap<Bytes, Bytes>,
}

/// A number of allocations, their bytes together, and the bytes that the file grew by meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) count: u64,
    bytes: u64,
    span: u64,
}

/// How many excess fragments the runways of a file have prevented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prevented(pub u64);

impl Growth {
    /// A signal about the file has come. Call it before asking for a decision.
    pub fn note(&mut self, signal: &SignalKind) {
        if self.runways > 0 {
            return;
        }
        let (allocations, bytes, span) = match *signal {
            // What lies between counts too, when it was allocated behind the last and therefore not told of. A file that was
            // there before grew by what is told.
            SignalKind::Fragmenting { allocations, bytes, end } => {
                let span = end.saturating_sub(self.alone_end);
                self.alone_end = end;
                (allocations, bytes, if span.0 / 4 > bytes.0 { bytes } else { span.max(bytes) })
            }
            SignalKind::Scattered { allocations, bytes, .. } => (allocations, bytes, bytes),
            SignalKind::HalfUsed { .. } | SignalKind::InPieces | SignalKind::Closed => return,
        };
        self.alone.count = self.alone.count.saturating_add(u64::from(allocations));
        self.alone.bytes = self.alone.bytes.saturating_add(bytes.0);
        self.alone.span = self.alone.span.saturating_add(span.0);
    }

    /// A runway was granted at `range`, in so many pieces.
    pub fn granted_runway(&mut self, range: ByteRange, pieces: u32, now: Nanos) {
        self.count(pieces, now);
        self.last_length = range.length;
        // Not the furthest: when the file was shortened, so was its runway.
        self.runway_end = end_of(range);
    }

    /// A window was granted at `range`, in so many pieces.
    pub fn granted_window(&mut self, range: ByteRange, pieces: u32, now: Nanos) {
        self.count(pieces, now);
        self.windows.insert(range.start, end_of(range));
    }

    /// Where the last runway ends; zero when there was none.
    #[must_use]
    pub fn runway_end(&self) -> Bytes {
        self.runway_end
    }

    /// How many runways and windows there were.
    #[must_use]
    pub fn grants(&self) -> u32 {
        self.runways
    }

    /// How many windows there were.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.windows.len()
    }

    /// How many excess fragments were saved, when `used` bytes of the runways have been written.
    ///
    /// By itself the file needed one piece per `mean` bytes that it grew, as counted before its first runway; so the used part would
    /// have been `used / mean` pieces, and is in as many as the runways were granted in:
    ///
    /// `prevented = max(0, ⌊used ÷ mean⌋ − pieces)`
    ///
    /// The limits: the rate is that of the file's beginning; a writer that changes its request size, or is left alone by
    /// the others later on, would have fared otherwise. Pieces that were given back unused count as needed, and pieces that
    /// happen to adjoin count apart; both make the figure smaller. A file whose rate is unknown prevented nothing.
    #[must_use]
    pub fn prevented(&self, used: Bytes) -> Prevented {
        let mean = self.alone.span.checked_div(self.alone.count).map(|mean| mean.max(BLOCK));
        Prevented(mean.map_or(0, |mean| (used.0 / mean).saturating_sub(self.pieces)))
    }

    /// How long the pieces were that the file got by itself, on average; at least a block.
    pub(super) fn mean_alone(&self) -> Option<Bytes> {
        self.alone.bytes.checked_div(self.alone.count).map(|mean| Bytes(mean.max(BLOCK)))
    }

    pub(super) fn alone(&self) -> Pieces {
        self.alone
    }

    pub(super) fn last_length(&self) -> Bytes {
        self.last_length
    }

    /// When the last runway or window was granted.
    pub(super) fn last_at(&self) -> Nanos {
        self.last_at
    }

    pub(super) fn has_window_at(&self, offset: Bytes) -> bool {
        self.windows.range(..=offset).next_back().is_some_and(|(_, end)| offset < *end)
    }

    pub(super) fn has_room_for_windows(&self) -> bool {
        self.windows.len() < WINDOWS
    }

    fn count(&mut self, pieces: u32, now: Nanos) {
        self.runways = self.runways.saturating_add(1);
        self.pieces = self.pieces.saturating_add(u64::from(pieces.max(1)));
        self.last_at = now;
    }
}

fn end_of(range: ByteRange) -> Bytes {
    Bytes(range.start.0.saturating_add(range.length.0))
}
