//! What was read: parts of files and of the device. Pure.

use longrun_layout::{Bytes, FileId};
use longrun_sys::ByteRange;

/// Parts of a list begin and end at multiples of this, in bytes.
pub const GRAIN: u64 = 4096;
/// Gaps up to this, in bytes, are read with what is around them: one request costs more than what is read for nothing.
pub const GAP: u64 = 32 << 10;

/// What a part is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Metadata of ext4: offsets are those of the device.
    Device,
    /// A regular file.
    File(FileId),
}

/// In which of the last eight recordings a part was read: the lowest bit is the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen(pub u8);

impl Seen {
    /// In the last recording, and in none before.
    pub const NOW: Self = Self(1);

    /// Whether it is worth reading ahead after so many recordings: seen in two of the last three; of fewer than three, in all up to two.
    #[must_use]
    pub const fn is_wanted(self, boots: u32) -> bool {
        let last = (self.0 & 0b111).count_ones();
        last >= if boots < 2 { 1 } else { 2 }
    }

    /// After one more recording.
    #[must_use]
    pub const fn then(self, again: bool) -> Self {
        Self(self.0 << 1 | again as u8)
    }
}

/// A part of a file, or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of what.
    pub place: Place,
    /// Where, in bytes.
    pub range: ByteRange,
    /// When it was first needed: a rank, 0 for the first. Not used for metadata.
    pub first: u32,
    /// In which recordings.
    pub seen: Seen,
}

impl Part {
    /// The first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.range.start.0.saturating_add(self.range.length.0)
    }

    /// The same with another range, from `start` to `end`.
    #[must_use]
    pub fn within(&self, start: u64, end: u64) -> Self {
        Self { range: range(start, end), ..*self }
    }
}

/// From `start` to `end`, in bytes.
pub(crate) fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start: Bytes(start), length: Bytes(end.saturating_sub(start)) }
}

/// What was read in the last recordings of a volume. Parts are in order, do not overlap, and are never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The UUID of the volume.
    pub uuid: [u8; 16],
    /// How many recordings it is made of.
    pub boots: u32,
    parts: Vec<Part>,
}

/// One request of the device for something that can be read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Of what.
    pub place: Place,
    /// Where, in bytes.
    pub range: ByteRange,
}

impl List {
    /// Of a volume that nothing was recorded of.
    #[must_use]
    pub const fn empty(uuid: [u8; 16]) -> Self {
        Self { uuid, boots: 0, parts: Vec::new() }
    }

    /// What one recording says: `touches` in the order of time.
    #[must_use]
    pub fn recorded(uuid: [u8; 16], touches: &[Touch]) -> Self {
        let down = |bytes: u64| bytes / GRAIN * GRAIN;
        let ranked = (0u32..).zip(touches.iter().filter(|touch| touch.range.length.0 > 0));
        let mut parts: Vec<Part> = ranked
            .map(|(rank, touch)| {
                let end = touch.range.start.0.saturating_add(touch.range.length.0).min(LARGEST_OFFSET);
                let range = range(down(touch.range.start.0), down(end.saturating_add(GRAIN - 1)));
                Part { place: touch.place, range, first: first_of(touch.place, rank), seen: Seen::NOW }
            })
            .filter(|part| part.range.length.0 > 0)
            .collect();
        parts.sort_by_key(|part| (part.place, part.range.start));
        Self { uuid, boots: 1, parts: joined(&parts, GAP) }
    }

    /// Of parts that are in order and do not overlap; `None` when they are not.
    #[must_use]
    pub fn of_parts(uuid: [u8; 16], boots: u32, parts: Vec<Part>) -> Option<Self> {
        let in_order = parts.windows(2).all(|pair| match pair {
            [a, b] => a.place < b.place || (a.place == b.place && a.end() <= b.range.start.0),
            _ => true,
        });
        in_order.then_some(Self { uuid, boots, parts })
    }

    /// All parts, by place and offset.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts that are worth reading ahead, with small gaps filled.
    #[must_use]
    pub fn wanted(&self) -> Vec<Part> {
        let wanted: Vec<Part> = self.parts.iter().filter(|part| part.seen.is_wanted(self.boots)).copied().collect();
        joined(&wanted, GAP)
    }

    /// Without what `keep` does not want.
    #[must_use]
    pub fn retain(mut self, keep: impl Fn(&Part) -> bool) -> Self {
        self.parts.retain(keep);
        self
    }

    /// The files, in order.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        let mut files: Vec<FileId> = self.parts.iter().filter_map(|part| file_of(part.place)).collect();
        files.dedup();
        files
    }

    /// How many bytes of files and how many of metadata its parts have.
    #[must_use]
    pub fn bytes(&self) -> (Bytes, Bytes) {
        sums(&self.parts)
    }
}

/// What lies behind this, no file has.
pub(crate) const LARGEST_OFFSET: u64 = 1 << 60;

pub(crate) const fn file_of(place: Place) -> Option<FileId> {
    match place {
        Place::File(file) => Some(file),
        Place::Device => None,
    }
}

/// Metadata is read in the order of the device: it has no rank.
const fn first_of(place: Place, rank: u32) -> u32 {
    match place {
        Place::Device => 0,
        Place::File(_) => rank,
    }
}

/// Bytes of files, and of metadata.
pub(crate) fn sums(parts: &[Part]) -> (Bytes, Bytes) {
    let of = |device: bool| {
        let lengths =
            parts.iter().filter(|part| (part.place == Place::Device) == device).map(|part| part.range.length.0);
        Bytes(lengths.fold(0, u64::saturating_add))
    };
    (of(false), of(true))
}

/// Parts in order with those of one place joined that overlap or are at most `gap` bytes apart.
pub(crate) fn joined(parts: &[Part], gap: u64) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.place == part.place && part.range.start.0 <= last.end().saturating_add(gap) => {
                let end = last.end().max(part.end());
                last.range = range(last.range.start.0, end);
                last.first = last.first.min(part.first);
                last.seen = Seen(last.seen.0 | part.seen.0);
            }
            _ => joined.push(*part),
        }
    }
    joined
}
