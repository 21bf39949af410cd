//! Bitmaps: which clusters, and which file records, are in use.
//!
//! Owns a bitmap in memory and which of its sectors were changed. Never reads or writes the disk itself.

use crate::bytes::{bit, byte, put};
use crate::offline::SECTOR;
use longrun_layout::{Blocks, Extent, PhysicalBlock};
use std::collections::BTreeSet;

/// A bitmap of the volume, as it shall be after the next commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Bitmap {
    bytes: Vec<u8>,
    bits: u64,
    changed: BTreeSet<usize>,
}

impl Bitmap {
    /// `bytes` has at least `bits` bits.
    pub(super) fn new(bytes: Vec<u8>, bits: u64) -> Self {
        let bits = bits.min(bytes.len() as u64 * 8);
        Self { bytes, bits, changed: BTreeSet::new() }
    }

    /// Whether this one is in use. What lies behind the end is.
    pub(super) fn is_set(&self, at: u64) -> bool {
        at >= self.bits || bit(&self.bytes, at as usize)
    }

    /// Marks a range as in use, or as free.
    pub(super) fn set(&mut self, extent: Extent, in_use: bool) {
        let (mut at, end) = (extent.start.0, extent.end().0.min(self.bits));
        while at < end {
            let index = (at / 8) as usize;
            let next = ((at / 8 + 1) * 8).min(end);
            // The bits from `at` on, without those from `next` on.
            let mask = (0xffu8 << (at % 8)) & (0xffu8 >> (7 - (next - 1) % 8));
            let Some(place) = self.bytes.get_mut(index) else { return };
            let before = *place;
            *place = if in_use { before | mask } else { before & !mask };
            if *place != before && self.changed.last() != Some(&(index / SECTOR)) {
                self.changed.insert(index / SECTOR);
            }
            at = next;
        }
    }

    /// Whether there are any that were changed since they were asked for last.
    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The sectors that were changed since they were asked for last: where each begins in the bitmap, and its bytes.
    pub(super) fn take_changed(&mut self) -> Vec<(u64, Vec<u8>)> {
        let sectors = std::mem::take(&mut self.changed);
        let of = |sector: usize| {
            let start = (sector * SECTOR) as u64;
            (start, self.sector(start).to_vec())
        };
        sectors.into_iter().map(of).collect()
    }

    /// The sector that begins at byte `at` of the bitmap.
    pub(super) fn sector(&self, at: u64) -> &[u8] {
        let start = at as usize;
        self.bytes.get(start..(start + SECTOR).min(self.bytes.len())).unwrap_or_default()
    }

    /// Takes over what another bitmap had in these sectors.
    pub(super) fn put_sectors(&mut self, sectors: &[(u64, Vec<u8>)]) {
        for (at, bytes) in sectors {
            put(&mut self.bytes, *at as usize, bytes);
        }
    }

    /// The free ranges, ascending.
    pub(super) fn free(&self) -> Vec<Extent> {
        let mut free = Vec::new();
        let mut begun: Option<u64> = None;
        let mut at = 0;
        while at < self.bits {
            let whole = if at % 8 == 0 && at + 8 <= self.bits { byte(&self.bytes, (at / 8) as usize) } else { 0x55 };
            let (in_use, step) = match whole {
                0 => (false, 8),
                0xff => (true, 8),
                _ => (self.is_set(at), 1),
            };
            match (in_use, begun) {
                (false, None) => begun = Some(at),
                (true, Some(start)) => {
                    free.push(Extent { start: PhysicalBlock(start), length: Blocks(at - start) });
                    begun = None;
                }
                _ => {}
            }
            at += step;
        }
        free.extend(begun.map(|start| Extent { start: PhysicalBlock(start), length: Blocks(self.bits - start) }));
        free
    }

    /// The first free one from `from` on.
    pub(super) fn first_free(&self, from: u64) -> Option<u64> {
        (from..self.bits).find(|at| !self.is_set(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_free_ranges_are_those_of_the_bits(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 1..60), less in 0u64..20) {
            let bits = (bytes.len() as u64 * 8).saturating_sub(less);
            let bitmap = Bitmap::new(bytes, bits);
            let free: Vec<u64> = bitmap.free().iter().flat_map(|e| e.start.0..e.end().0).collect();
            let expected: Vec<u64> = (0..bits).filter(|at| !bitmap.is_set(*at)).collect();
            prop_assert_eq!(free, expected);
        }
    }

    proptest! {
        #[test]
        fn a_range_is_set_bit_by_bit(bytes in proptest::collection::vec(any::<u8>(), 1..40), start in 0u64..330, length in 0u64..90, in_use: bool) {
            let bits = bytes.len() as u64 * 8;
            let before = Bitmap::new(bytes, bits);
            let mut after = before.clone();
            after.set(Extent::new(start, length), in_use);
            for at in 0..bits {
                let expected = if (start..start + length).contains(&at) { in_use } else { before.is_set(at) };
                prop_assert_eq!(after.is_set(at), expected, "{}", at);
            }
        }
    }

    #[test]
    fn only_changed_sectors_are_written() {
        let mut bitmap = Bitmap::new(vec![0; 1000], 8000);
        bitmap.set(Extent::new(4090, 10), true);
        bitmap.set(Extent::new(0, 1), false);
        let changed = bitmap.take_changed();
        let places: Vec<_> = changed.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
        assert_eq!(places, [(0, 512), (512, 488)]);
        assert!(bitmap.take_changed().is_empty());
        assert_eq!(bitmap.first_free(4089), Some(4089));
        assert_eq!(bitmap.first_free(4090), Some(4100));
    }
}
