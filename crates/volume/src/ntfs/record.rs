//! File records: their protection against torn writes, and their header.
//!
//! Owns the fixups and the fields of the header. Knows nothing of attributes but where they begin and end. Pure.

use super::fault::{Read, damaged};
use crate::bytes::{le16, le32, le64, put};

/// The fixups protect each of these, whatever the size of a sector.
const STRIDE: usize = 512;
const MAGIC: &[u8] = b"FILE";
/// The record is in use.
const IN_USE: u16 = 1;
/// It is of a directory.
const DIRECTORY: u16 = 2;
/// Where the first attribute may begin at the earliest, as NTFS 3.0 has it; 3.1 has the record's number before it.
const LEAST_HEADER: usize = 0x2a;
/// The mark behind the last attribute, and what pads it.
pub(super) const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The number of a record and how often it was used again, as one names the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    /// Which record.
    pub(super) number: u64,
    /// Its sequence number.
    pub(super) sequence: u16,
}

impl Reference {
    pub(super) fn parse(field: u64) -> Self {
        Self { number: field & ((1 << 48) - 1), sequence: (field >> 48) as u16 }
    }

    pub(super) fn encode(self) -> u64 {
        u64::from(self.sequence) << 48 | self.number
    }
}

/// A record without its fixups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number, by where it lies in $MFT.
    pub(super) number: u64,
    bytes: Vec<u8>,
}

impl Record {
    /// Takes a record as it lies on the disk; an error when it was torn or was never one.
    pub(super) fn decode(number: u64, mut bytes: Vec<u8>) -> Read<Self> {
        if !bytes.starts_with(MAGIC) {
            return damaged(format!("file record {number} has no signature"));
        }
        take_fixups(&mut bytes)
            .map_err(|what| super::fault::Fault::Damaged(format!("file record {number}: {what}")))?;
        let record = Self { number, bytes };
        let (first, used) = (record.first_attribute(), record.used());
        let numbered = first < 0x30 || le32(&record.bytes, 0x2c) == number as u32;
        if first < LEAST_HEADER || first % 8 != 0 || used < first + 4 || used > record.bytes.len() || !numbered {
            return damaged(format!("the header of file record {number} is not valid"));
        }
        Ok(record)
    }

    /// The record as it is written to the disk, with fixups that differ from the last ones.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        put_fixups(&mut bytes);
        bytes
    }

    /// A record of this number that was never used.
    pub(super) fn blank(number: u64, bytes: usize) -> Self {
        Self { number, bytes: vec![0; bytes] }
    }

    pub(super) fn is_in_use(&self) -> bool {
        le16(&self.bytes, 0x16) & IN_USE != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        le16(&self.bytes, 0x16) & DIRECTORY != 0
    }

    /// Its number and sequence number: by these others refer to it.
    pub(super) fn reference(&self) -> Reference {
        Reference { number: self.number, sequence: le16(&self.bytes, 0x10) }
    }

    /// The record that it extends, if it does.
    pub(super) fn base(&self) -> Option<Reference> {
        Some(Reference::parse(le64(&self.bytes, 0x20))).filter(|base| base.number != 0 || base.sequence != 0)
    }

    /// The attributes as they stand in the record, with what ends them.
    pub(super) fn attributes(&self) -> &[u8] {
        self.bytes.get(self.first_attribute()..self.used()).unwrap_or_default()
    }

    /// The room for attributes, their end mark not counted.
    pub(super) fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.first_attribute() + END.len())
    }

    /// The same record with other attributes, which must fit into [`Self::room`].
    pub(super) fn with_attributes(&self, attributes: &[u8], next_instance: u16) -> Self {
        let first = self.first_attribute();
        let mut changed = self.clone();
        changed.bytes.truncate(first);
        changed.bytes.extend(attributes.iter().chain(&END));
        let used = changed.bytes.len() as u32;
        changed.bytes.resize(self.bytes.len(), 0);
        changed.put(0x18, &used.to_le_bytes());
        changed.put(0x28, &next_instance.to_le_bytes());
        changed
    }

    /// The same record when nothing refers to it any more.
    pub(super) fn freed(&self) -> Self {
        let mut freed = self.clone();
        freed.put(0x16, &(le16(&self.bytes, 0x16) & !IN_USE).to_le_bytes());
        // 0 means that there is no number.
        freed.put(0x10, &le16(&self.bytes, 0x10).wrapping_add(1).max(1).to_le_bytes());
        freed
    }

    /// An empty record that extends `base`, in the place of this one, which is not in use.
    pub(super) fn extending(&self, base: Reference, like: &Self) -> Self {
        let first = like.first_attribute();
        let mut bytes = like.bytes.clone();
        if let Some(rest) = bytes.get_mut(first..) {
            rest.fill(0);
        }
        let mut new = Self { number: self.number, bytes };
        new.put(0x08, &[0; 8]); // no entry of the log is about it
        new.put(0x10, &le16(&self.bytes, 0x10).max(1).to_le_bytes());
        new.put(0x12, &[0; 2]); // no names
        new.put(0x16, &IN_USE.to_le_bytes());
        new.put(0x20, &base.encode().to_le_bytes());
        if first >= 0x30 {
            new.put(0x2c, &(self.number as u32).to_le_bytes());
        }
        new.with_attributes(&[], 0)
    }

    fn first_attribute(&self) -> usize {
        usize::from(le16(&self.bytes, 0x14))
    }

    fn used(&self) -> usize {
        le32(&self.bytes, 0x18) as usize
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        put(&mut self.bytes, at, value);
    }
}

/// Where the fixups stand and how many there are, when that is possible.
fn fixups(bytes: &[u8]) -> Option<(usize, usize)> {
    let (at, count) = (usize::from(le16(bytes, 4)), usize::from(le16(bytes, 6)));
    let strides = count.checked_sub(1)?;
    let fits = at % 2 == 0 && at >= 8 && at + 2 * count <= STRIDE - 2;
    (fits && strides > 0 && strides * STRIDE == bytes.len()).then_some((at, strides))
}

/// Puts the last two bytes of each stride back, after a look whether all of it was written at once. Also for records of
/// other kinds ($LogFile's restart pages).
pub(super) fn take_fixups(bytes: &mut [u8]) -> Result<(), &'static str> {
    let Some((at, strides)) = fixups(bytes) else { return Err("its update sequence is not valid") };
    let number = le16(bytes, at);
    for stride in 1..=strides {
        let (end, original) = (stride * STRIDE - 2, le16(bytes, at + 2 * stride));
        if le16(bytes, end) != number {
            return Err("it was written only in part");
        }
        set16(bytes, end, original);
    }
    Ok(())
}

/// The reverse of [`take_fixups`], with the next number.
fn put_fixups(bytes: &mut [u8]) {
    let Some((at, strides)) = fixups(bytes) else { return };
    // 0 and 0xffff are left out, as the drivers do.
    let number = match le16(bytes, at).wrapping_add(1) {
        0 | u16::MAX => 1,
        next => next,
    };
    set16(bytes, at, number);
    for stride in 1..=strides {
        let end = stride * STRIDE - 2;
        set16(bytes, at + 2 * stride, le16(bytes, end));
        set16(bytes, end, number);
    }
}

fn set16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, &value.to_le_bytes());
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An empty record of 1 KiB as it lies on the disk.
    pub(in super::super) fn empty(number: u32) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..8].copy_from_slice(&[0x30, 0, 3, 0]);
        bytes[0x10..0x18].copy_from_slice(&[1, 0, 1, 0, 0x38, 0, 1, 0]);
        bytes[0x18..0x20].copy_from_slice(&[0x40, 0, 0, 0, 0, 4, 0, 0]);
        bytes[0x2c..0x30].copy_from_slice(&number.to_le_bytes());
        bytes[0x38..0x40].copy_from_slice(&END);
        bytes[0x200 - 2..0x200].copy_from_slice(&[0, 0]);
        bytes
    }

    #[test]
    fn a_record_that_was_written_in_part_is_found() {
        let record = Record::decode(70, empty(70)).unwrap();
        let whole = record.encode();
        assert_eq!(Record::decode(70, whole.clone()).unwrap().attributes(), record.attributes());
        let mut torn = empty(70);
        torn[512..].copy_from_slice(&whole[512..]);
        assert!(format!("{:?}", Record::decode(70, torn)).contains("only in part"));
        assert!(format!("{:?}", Record::decode(71, whole)).contains("not valid"), "another's record");
        assert!(format!("{:?}", Record::decode(1, vec![0; 1024])).contains("no signature"));
    }

    #[test]
    fn a_freed_record_is_another_one_when_it_is_used_again() {
        let record = Record::decode(70, empty(70)).unwrap();
        let freed = record.freed();
        assert!(record.is_in_use() && !freed.is_in_use());
        assert_eq!(freed.reference().sequence, 2);
        let base = Reference { number: 64, sequence: 9 };
        let new = freed.extending(base, &record);
        assert!(new.is_in_use() && new.base() == Some(base) && new.reference() == freed.reference());
        assert_eq!(Record::decode(70, new.encode()).unwrap().base(), Some(base));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2050), whole: bool) {
            if whole && bytes.len() > 8 {
                bytes[..8].copy_from_slice(&empty(0)[..8]);
            }
            if let Ok(record) = Record::decode(0, bytes) {
                let _ = (record.attributes().len(), record.room(), record.encode());
            }
        }
    }
}
