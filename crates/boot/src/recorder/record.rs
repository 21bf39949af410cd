//! Decodes the events of the kernel, and encodes the settings of the programs. Pure. The type information of the compiled object gives the
//! layout, which the C header defines.

use super::skeleton::types;
use crate::model::{Part, Place, Touch, file_of};
use longrun_bpf::{KernelDevice, put, u32_at, u64_at};
use longrun_layout::{Bytes, FileId, InodeNumber};
use longrun_sys::{ByteRange, DeviceNumber};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Parts of a file whose use is known apart.
const PARTS: u64 = 64;

/// The constants of the programs.
pub(super) fn set_constants(constants: &mut [u8], volume: DeviceNumber, page_size: usize) {
    use types::reads_config as C;
    let base = offset_of!(types::rodata, config);
    put(constants, base + offset_of!(C, volume), &KernelDevice::of(volume).bytes());
    put(constants, base + offset_of!(C, page_shift), &page_size.trailing_zeros().to_ne_bytes());
}

/// An event.
pub(super) fn touch(record: &[u8]) -> Option<Touch> {
    use types::reads_event as E;
    let inode = u64_at(record, offset_of!(E, inode))?;
    let generation = u32_at(record, offset_of!(E, generation))?;
    let start = Bytes(u64_at(record, offset_of!(E, at))?);
    let length = Bytes(u64::from(u32_at(record, offset_of!(E, bytes))?));
    let place = match inode {
        0 => Place::Device,
        inode => Place::File(FileId { inode: InodeNumber(inode), generation }),
    };
    Some(Touch { place, range: ByteRange { start, length } })
}

/// Which parts of a file were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// One bit for each part.
    bits: u64,
    /// Bytes of a part, as a power of two.
    shift: u32,
}

impl Used {
    /// Of a file that is read ahead up to `end`, nothing yet.
    fn none(end: u64, page_size: usize) -> Self {
        let mut shift = page_size.trailing_zeros();
        while end.saturating_sub(1) >> shift >= PARTS && shift < 60 {
            shift += 1;
        }
        Self { bits: 0, shift }
    }

    /// Whether a byte was used, or one near it.
    fn has(self, at: u64) -> bool {
        self.bits >> (at >> self.shift).min(PARTS - 1) & 1 == 1
    }

    /// The ranges of `part` that were used.
    fn of(self, part: &Part) -> Vec<Part> {
        let grain = 1u64 << self.shift;
        let (mut at, mut used) = (part.range.start.0, Vec::new());
        while at < part.end() {
            let next = (at / grain + 1).saturating_mul(grain).min(part.end());
            if self.has(at) {
                used.push(part.within(at, next));
            }
            at = next;
        }
        used
    }
}

/// What was read ahead, by file, and which parts of it were used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(BTreeMap<FileId, Used>);

impl Uses {
    /// Of what will be read ahead.
    pub(super) fn of(parts: &[Part], page_size: usize) -> Self {
        let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
        for part in parts {
            if let Some(file) = file_of(part.place) {
                let end = ends.entry(file).or_default();
                *end = part.end().max(*end);
            }
        }
        Self(ends.into_iter().map(|(file, end)| (file, Used::none(end, page_size))).collect())
    }

    /// How many files.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entries of the kernel's table.
    pub(super) fn entries(&self, page_size: usize) -> impl Iterator<Item = ([u8; 8], Vec<u8>)> {
        use types::reads_use as U;
        let pages = page_size.trailing_zeros();
        self.0.iter().map(move |(file, used)| {
            let mut value = vec![0; size_of::<U>()];
            put(&mut value, offset_of!(U, shift), &used.shift.saturating_sub(pages).to_ne_bytes());
            put(&mut value, offset_of!(U, generation), &file.generation.to_ne_bytes());
            (file.inode.0.to_ne_bytes(), value)
        })
    }

    /// With what the kernel's table says by now.
    pub(super) fn update(&mut self, lookup: impl Fn([u8; 8]) -> Option<Vec<u8>>) {
        for (file, used) in &mut self.0 {
            let value = lookup(file.inode.0.to_ne_bytes());
            let bits = value.and_then(|value| u64_at(&value, offset_of!(types::reads_use, used)));
            used.bits = bits.unwrap_or(used.bits);
        }
    }

    /// What of `parts` was used.
    #[must_use]
    pub fn used(&self, parts: &[Part]) -> Vec<Part> {
        let of = |part: &Part| {
            let used = file_of(part.place).and_then(|file| self.0.get(&file));
            used.map_or_else(Vec::new, |used| used.of(part))
        };
        parts.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Seen, range};

    fn part(inode: u64, start: u64, end: u64) -> Part {
        let file = FileId { inode: InodeNumber(inode), generation: 5 };
        Part { place: Place::File(file), range: range(start, end), first: 0, seen: Seen::NOW }
    }

    #[test]
    fn an_event_is_decoded_and_a_short_one_is_none() {
        use types::reads_event as E;
        let mut record = vec![0; size_of::<E>()];
        put(&mut record, offset_of!(E, inode), &12u64.to_ne_bytes());
        put(&mut record, offset_of!(E, at), &8192u64.to_ne_bytes());
        put(&mut record, offset_of!(E, bytes), &4096u32.to_ne_bytes());
        put(&mut record, offset_of!(E, generation), &5u32.to_ne_bytes());
        let expected = part(12, 8192, 12288);
        assert_eq!(touch(&record), Some(Touch { place: expected.place, range: expected.range }));
        assert_eq!(touch(&record[..record.len() - 1]), None);
        put(&mut record, offset_of!(E, inode), &0u64.to_ne_bytes());
        assert_eq!(touch(&record).map(|touch| touch.place), Some(Place::Device));
    }

    #[test]
    fn what_was_used_is_known_by_the_sixty_fourth_of_a_file() {
        let parts = [part(1, 0, 1 << 20), part(2, 4096, 8192), part(3, 0, 4096)];
        let mut uses = Uses::of(&parts, 4096);
        let entries: Vec<_> = uses.entries(4096).collect();
        assert_eq!(entries.len(), 3);
        assert_eq!(u32_at(&entries[0].1, offset_of!(types::reads_use, shift)), Some(2), "256 pages, 64 parts");
        uses.update(|inode| {
            let mut value = vec![0; size_of::<types::reads_use>()];
            let bits: u64 = if inode == 1u64.to_ne_bytes() { 0b101 } else { 0b10 };
            put(&mut value, offset_of!(types::reads_use, used), &bits.to_ne_bytes());
            Some(value)
        });
        let used: Vec<_> = uses.used(&parts).iter().map(|part| (part.range.start.0, part.end())).collect();
        assert_eq!(used, [(0, 16384), (32768, 49152), (4096, 8192)]);
    }
}
