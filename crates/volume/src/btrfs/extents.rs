//! The extents of all files, packed into 24 bytes each.
//!
//! Owns the packing. Never decides anything.

use super::address::Address;
use longrun_layout::{BlockSize, Blocks, Bytes, FileIndex};

/// A part of a file, and the extent on the device that it refers to. Holes and inline data are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// Where the part starts in the file.
    pub logical: Bytes,
    /// How much of the file it is.
    pub length: Bytes,
    /// Where the extent starts: what two files have in common that share it.
    pub disk: Address,
    /// How much the extent takes on the device, referred to or not; less than the data in it when it is compressed.
    pub disk_length: Bytes,
    /// Where the part starts in the extent's (decompressed) data.
    pub offset: Bytes,
    /// It is stored compressed.
    pub is_compressed: bool,
    /// It was preallocated and never written.
    pub is_preallocated: bool,
}

impl DataExtent {
    /// The first byte of the file behind it.
    #[must_use]
    pub fn logical_end(&self) -> Bytes {
        Bytes(self.logical.0.saturating_add(self.length.0))
    }

    /// What of the device has to be read for it: of an extent that is not compressed just the part.
    #[must_use]
    pub fn read(&self) -> (Address, Bytes) {
        if self.is_compressed { (self.disk, self.disk_length) } else { (self.disk.plus(self.offset), self.length) }
    }
}

/// A [`DataExtent`] in blocks: 48 bits for places, 32 for lengths, 30 for the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    logical_low: u32,
    disk_low: u32,
    logical_high: u16,
    disk_high: u16,
    length: u32,
    disk_length: u32,
    offset_and_marks: u32,
}

const COMPRESSED: u32 = 1 << 31;
const PREALLOCATED: u32 = 1 << 30;
const PLACE_LIMIT: u64 = 1 << 48;

/// The extents of all files of a scan.
#[derive(Clone, Debug)]
pub struct DataExtents {
    block_size: BlockSize,
    packed: Vec<Packed>,
    /// By file: where its extents start; they end where those of the next start.
    first: Vec<u32>,
}

impl DataExtents {
    pub(super) fn new(block_size: BlockSize) -> Self {
        Self { block_size, packed: Vec::new(), first: Vec::new() }
    }

    /// Begins the next file; false when there are more extents than can be numbered.
    pub(super) fn begin_file(&mut self) -> bool {
        u32::try_from(self.packed.len()).map(|first| self.first.push(first)).is_ok()
    }

    /// Adds an extent of the file begun last; false when it is not made of whole blocks, or beyond what can be packed.
    pub(super) fn push(&mut self, extent: &DataExtent) -> bool {
        let packed = self.pack(extent);
        self.packed.extend(packed);
        packed.is_some()
    }

    /// Adds the files of `other` behind these; false when there are more extents than can be numbered.
    pub(super) fn append(&mut self, other: Self) -> bool {
        let Ok(base) = u32::try_from(self.packed.len()) else { return false };
        if self.packed.len().saturating_add(other.packed.len()) > u32::MAX as usize {
            return false;
        }
        self.first.extend(other.first.iter().map(|first| base + first));
        self.packed.extend(other.packed);
        true
    }

    pub(super) fn shrink(&mut self) {
        self.packed.shrink_to_fit();
        self.first.shrink_to_fit();
    }

    /// The extents of a file, ascending by place in the file.
    pub fn of(&self, file: FileIndex) -> impl ExactSizeIterator<Item = DataExtent> + Clone + '_ {
        let at = file.0 as usize;
        let end = self.first.get(at + 1).map_or(self.packed.len(), |next| *next as usize);
        let start = self.first.get(at).map_or(end, |first| *first as usize);
        self.packed.get(start..end).unwrap_or_default().iter().map(|packed| self.unpack(*packed))
    }

    /// The number of extents of all files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.packed.len()
    }

    /// The number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.first.len()
    }

    /// Where extent number `at` of all starts on the device; only good for being compared.
    pub(super) fn place(&self, at: u32) -> u64 {
        self.packed.get(at as usize).map_or(u64::MAX, |packed| packed.disk())
    }

    /// Which file extent number `at` of all belongs to.
    pub(super) fn file_of(&self, at: u32) -> FileIndex {
        FileIndex((self.first.partition_point(|first| *first <= at)).saturating_sub(1) as u32)
    }

    fn pack(&self, extent: &DataExtent) -> Option<Packed> {
        let size = u64::from(self.block_size.bytes());
        let blocks = |bytes: u64| bytes.is_multiple_of(size).then_some(bytes / size);
        let logical = blocks(extent.logical.0).filter(|at| *at < PLACE_LIMIT)?;
        let disk = blocks(extent.disk.0).filter(|at| *at < PLACE_LIMIT)?;
        let offset = u32::try_from(blocks(extent.offset.0)?).ok().filter(|offset| *offset < PREALLOCATED)?;
        let marks =
            if extent.is_compressed { COMPRESSED } else { 0 } | if extent.is_preallocated { PREALLOCATED } else { 0 };
        Some(Packed {
            logical_low: logical as u32,
            logical_high: (logical >> 32) as u16,
            disk_low: disk as u32,
            disk_high: (disk >> 32) as u16,
            length: u32::try_from(blocks(extent.length.0)?).ok()?,
            disk_length: u32::try_from(blocks(extent.disk_length.0)?).ok()?,
            offset_and_marks: offset | marks,
        })
    }

    fn unpack(&self, packed: Packed) -> DataExtent {
        let bytes = |blocks: u64| self.block_size.to_bytes(Blocks(blocks));
        DataExtent {
            logical: bytes(u64::from(packed.logical_high) << 32 | u64::from(packed.logical_low)),
            length: bytes(u64::from(packed.length)),
            disk: Address(bytes(packed.disk()).0),
            disk_length: bytes(u64::from(packed.disk_length)),
            offset: bytes(u64::from(packed.offset_and_marks & !(COMPRESSED | PREALLOCATED))),
            is_compressed: packed.offset_and_marks & COMPRESSED != 0,
            is_preallocated: packed.offset_and_marks & PREALLOCATED != 0,
        }
    }
}

impl Packed {
    fn disk(&self) -> u64 {
        u64::from(self.disk_high) << 32 | u64::from(self.disk_low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    proptest! {
        #[test]
        fn packing_keeps_every_extent_of_whole_blocks(
            places in (0u64..1 << 47, 0u64..1 << 47),
            lengths in (0u64..1 << 32, 0u64..1 << 32, 0u64..1 << 30),
            marks in any::<(bool, bool)>(),
        ) {
            let extent = DataExtent {
                logical: Bytes(places.0 << 12),
                length: Bytes(lengths.0 << 12),
                disk: Address(places.1 << 12),
                disk_length: Bytes(lengths.1 << 12),
                offset: Bytes(lengths.2 << 12),
                is_compressed: marks.0,
                is_preallocated: marks.1,
            };
            let mut all = DataExtents::new(block_size());
            prop_assert!(all.begin_file() && all.push(&extent));
            prop_assert_eq!(all.of(FileIndex(0)).collect::<Vec<_>>(), vec![extent]);
        }

        #[test]
        fn what_no_volume_can_have_is_refused(numbers in any::<[u64; 5]>()) {
            let extent = DataExtent {
                logical: Bytes(numbers[0] | 1),
                length: Bytes(numbers[1]),
                disk: Address(numbers[2]),
                disk_length: Bytes(numbers[3]),
                offset: Bytes(numbers[4]),
                is_compressed: false,
                is_preallocated: false,
            };
            let mut all = DataExtents::new(block_size());
            prop_assert!(all.begin_file() && !all.push(&extent));
            prop_assert_eq!(all.count(), 0);
        }
    }

    #[test]
    fn an_extent_takes_24_bytes() {
        assert_eq!(size_of::<Packed>(), 24);
    }

    #[test]
    fn each_file_has_its_own_extents() {
        let extent = |at: u64| DataExtent {
            logical: Bytes(0),
            length: Bytes(4096),
            disk: Address(at * 4096),
            disk_length: Bytes(4096),
            offset: Bytes(0),
            is_compressed: false,
            is_preallocated: false,
        };
        let mut all = DataExtents::new(block_size());
        for places in [vec![10, 20], vec![], vec![30]] {
            all.begin_file();
            places.into_iter().for_each(|at| assert!(all.push(&extent(at))));
        }
        let places = |all: &DataExtents, file| all.of(FileIndex(file)).map(|e| e.disk.0 / 4096).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(|file| places(&all, file)), [vec![10, 20], vec![], vec![30], vec![]]);
        assert_eq!([0, 1, 2].map(|at| all.file_of(at).0), [0, 0, 2]);
        let mut twice = all.clone();
        assert!(twice.append(all));
        assert_eq!([3, 4, 5].map(|file| places(&twice, file)), [vec![10, 20], vec![], vec![30]]);
    }
}
