//! Attributes: what a record is made of.
//!
//! Owns the header of an attribute, resident or not. Pure.

use super::fault::{Read, damaged};
use super::runs::Map;
use crate::bytes::{byte, le16, le32, le64, put};

/// The kinds of attributes that this crate knows, by their numbers.
pub(super) mod kind {
    pub(in super::super) const ATTRIBUTE_LIST: u32 = 0x20;
    pub(in super::super) const FILE_NAME: u32 = 0x30;
    pub(in super::super) const VOLUME_INFORMATION: u32 = 0x70;
    pub(in super::super) const DATA: u32 = 0x80;
    pub(in super::super) const INDEX_ALLOCATION: u32 = 0xa0;
    pub(in super::super) const BITMAP: u32 = 0xb0;
    /// Of NTFS 3.x, all of them; a file with another one is left alone.
    pub(in super::super) const KNOWN: [u32; 16] =
        [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0, 0x100];
    /// Behind the last attribute.
    pub(super) const END: u32 = u32::MAX;
}

/// The shortest header of an attribute whose content lies in clusters.
const LEAST_OUTSIDE: usize = 0x40;
/// The shortest header of one whose content stands in the record.
const LEAST_RESIDENT: usize = 0x18;

/// What an attribute is of: all extents of a stream have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// The kind of attribute.
    pub(super) kind: u32,
    /// UTF-16; most have none.
    pub(super) name: Vec<u16>,
}

impl Name {
    pub(super) fn unnamed(kind: u32) -> Self {
        Self { kind, name: Vec::new() }
    }
}

/// An attribute, or one extent of an attribute that several records share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// What it is of.
    pub(super) of: Name,
    /// All of a resident one; the header of another, up to its mapping pairs.
    head: Vec<u8>,
    /// Where it lies, when it does not stand in the record.
    pub(super) outside: Option<Map>,
    /// The first cluster that its mapping pairs map.
    pub(super) lowest: u64,
}

impl Attribute {
    /// All attributes of a record of a volume of `clusters` clusters.
    pub(super) fn parse_all(mut bytes: &[u8], clusters: u64) -> Read<Vec<Self>> {
        let mut found = Vec::new();
        while le32(bytes, 0) != kind::END {
            let length = le32(bytes, 4) as usize;
            let parts = bytes.split_at_checked(length).filter(|_| length >= LEAST_RESIDENT && length.is_multiple_of(8));
            let Some((attribute, rest)) = parts else { return damaged("an attribute has a length that is not valid") };
            found.push(Self::parse(attribute, clusters)?);
            if rest.len() < 4 {
                return damaged("its attributes have no end");
            }
            bytes = rest;
        }
        Ok(found)
    }

    fn parse(bytes: &[u8], clusters: u64) -> Read<Self> {
        let kind = le32(bytes, 0);
        let (units, at) = (usize::from(byte(bytes, 9)), usize::from(le16(bytes, 10)));
        let Some(name) = bytes.get(at..at + 2 * units).filter(|_| units == 0 || at >= LEAST_RESIDENT) else {
            return damaged(format!("the name of an attribute of kind {kind:#x} lies outside of it"));
        };
        let name = name.chunks_exact(2).map(|unit| le16(unit, 0)).collect();
        let of = Name { kind, name };
        if byte(bytes, 8) == 0 {
            let (length, at) = (le32(bytes, 0x10) as usize, usize::from(le16(bytes, 0x14)));
            if at < LEAST_RESIDENT || at.checked_add(length).is_none_or(|end| end > bytes.len()) {
                return damaged(format!("the value of an attribute of kind {kind:#x} lies outside of it"));
            }
            return Ok(Self { of, head: bytes.to_vec(), outside: None, lowest: 0 });
        }
        let (lowest, highest, at) = (le64(bytes, 0x10), le64(bytes, 0x18), usize::from(le16(bytes, 0x20)));
        let Some((head, pairs)) = bytes.split_at_checked(at).filter(|_| at >= LEAST_OUTSIDE) else {
            return damaged(format!("the mapping pairs of an attribute of kind {kind:#x} lie outside of it"));
        };
        let map = Map::decode(pairs, lowest, clusters)?;
        let end = if map.segments().is_empty() { lowest } else { map.end() };
        // An empty one has a highest cluster of -1.
        if highest.wrapping_add(1) != end {
            return damaged(format!("an attribute of kind {kind:#x} maps other clusters than it says"));
        }
        Ok(Self { of, head: head.to_vec(), outside: Some(map), lowest })
    }

    /// The number that it has in its record.
    pub(super) fn instance(&self) -> u16 {
        le16(&self.head, 0x0e)
    }

    pub(super) fn is_resident(&self) -> bool {
        self.outside.is_none()
    }

    /// The content of a resident one.
    pub(super) fn value(&self) -> &[u8] {
        let at = usize::from(le16(&self.head, 0x14));
        let value = self.head.get(at..at + le32(&self.head, 0x10) as usize).filter(|_| self.is_resident());
        value.unwrap_or_default()
    }

    /// The bytes of its content, when it does not stand in the record. Only the first extent of a stream knows it.
    pub(super) fn size(&self) -> u64 {
        le64(&self.head, 0x30)
    }

    /// The bytes that its clusters take, holes included.
    pub(super) fn allocated(&self) -> u64 {
        le64(&self.head, 0x28)
    }

    /// How much of its content was ever written.
    pub(super) fn initialized(&self) -> u64 {
        le64(&self.head, 0x38)
    }

    /// The same one with another number in its record.
    pub(super) fn numbered(&self, instance: u16) -> Self {
        let mut changed = self.clone();
        changed.set(0x0e, &instance.to_le_bytes());
        changed
    }

    /// The same resident one with another value.
    pub(super) fn with_value(&self, value: &[u8]) -> Self {
        let at = usize::from(le16(&self.head, 0x14));
        let mut changed = self.clone();
        changed.head.truncate(at);
        changed.head.extend(value);
        changed.head.resize(changed.head.len().next_multiple_of(8), 0);
        changed.set(0x10, &(value.len() as u32).to_le_bytes());
        changed
    }

    /// The same one, not resident, with content of another size in the same clusters.
    pub(super) fn resized(&self, bytes: u64) -> Self {
        let mut changed = self.clone();
        changed.set(0x30, &bytes.to_le_bytes());
        changed.set(0x38, &bytes.to_le_bytes());
        changed
    }

    /// The extent of the stream that begins at `vcn` and takes at most `room` bytes of a record, and the cluster behind it.
    /// `None` when not even a part fits.
    pub(super) fn extent(&self, vcn: u64, room: usize) -> Option<(Self, u64)> {
        let map = self.outside.as_ref()?;
        let (_, mapped) = map.encode(vcn, room.checked_sub(self.head.len())? & !7);
        let end = vcn + mapped;
        let part = self.part(vcn, end)?;
        let is_some = mapped > 0 || map.segments().is_empty();
        (is_some && part.encoded_len() <= room).then_some((part, end))
    }

    /// The extent of the stream from `vcn` up to `end`. One behind the first knows no sizes.
    pub(super) fn part(&self, vcn: u64, end: u64) -> Option<Self> {
        let map = self.outside.as_ref()?.part(vcn, end);
        let mut part = Self { of: self.of.clone(), head: self.head.clone(), outside: Some(map), lowest: vcn };
        if vcn > 0 {
            part.set(0x28, &[0; 24]);
            if part.has_compressed_size() {
                part.set(0x40, &[0; 8]);
            }
        }
        Some(part)
    }

    /// As it stands in a record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Some(map) = &self.outside else { return self.head.clone() };
        let (pairs, mapped) = map.encode(self.lowest, usize::MAX);
        let mut bytes = self.head.clone();
        bytes.extend(pairs);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let length = bytes.len() as u32;
        put(&mut bytes, 4, &length.to_le_bytes());
        put(&mut bytes, 0x10, &self.lowest.to_le_bytes());
        put(&mut bytes, 0x18, &(self.lowest + mapped).wrapping_sub(1).to_le_bytes());
        bytes
    }

    /// The bytes that it takes in a record.
    pub(super) fn encoded_len(&self) -> usize {
        self.part_len(self.lowest, u64::MAX)
    }

    /// The bytes that its extent from `vcn` up to `end` takes in a record.
    pub(super) fn part_len(&self, vcn: u64, end: u64) -> usize {
        let pairs = self.outside.as_ref().map_or(0, |map| map.encoded_len(vcn, end));
        (self.head.len() + pairs).next_multiple_of(8)
    }

    /// Compressed and sparse ones have one field more, before the name.
    fn has_compressed_size(&self) -> bool {
        let (flags, name) = (le16(&self.head, 0x0c), usize::from(le16(&self.head, 10)));
        flags & 0x80ff != 0 && self.head.len() >= 0x48 && (self.of.name.is_empty() || name >= 0x48)
    }

    fn set(&mut self, at: usize, value: &[u8]) {
        put(&mut self.head, at, value);
        if self.outside.is_none() {
            let length = self.head.len() as u32;
            put(&mut self.head, 4, &length.to_le_bytes());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::runs::Segment;
    use super::*;
    use proptest::prelude::*;

    const CLUSTERS: u64 = 1 << 30;

    /// $DATA in these clusters, as a record has it.
    pub(in super::super) fn data(segments: &[Segment]) -> Attribute {
        let mut map = Map::default();
        segments.iter().for_each(|segment| map.push(*segment));
        let mut head = vec![0; LEAST_OUTSIDE];
        head[0] = kind::DATA as u8;
        head[8] = 1;
        head[10] = 0x40;
        head[0x20] = 0x40;
        head[0x28..0x30].copy_from_slice(&(map.end() * 4096).to_le_bytes());
        head[0x30..0x38].copy_from_slice(&(map.end() * 4096).to_le_bytes());
        Attribute { of: Name::unnamed(kind::DATA), head, outside: Some(map), lowest: 0 }
    }

    fn scattered(count: u64) -> Attribute {
        data(
            &(0..count)
                .map(|n| Segment { vcn: n, lcn: Some(1000 + n * 70_000 % 999_983), length: 1 })
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn what_is_encoded_is_parsed_again() {
        let attribute = scattered(20);
        let mut bytes = attribute.encode();
        bytes.extend([0xff; 4]);
        let again = Attribute::parse_all(&bytes, CLUSTERS).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].outside, attribute.outside);
        assert_eq!(again[0].encode(), attribute.encode());
        assert_eq!(attribute.encoded_len(), attribute.encode().len());
    }

    #[test]
    fn the_extents_of_a_stream_cover_it_once_and_only_the_first_knows_sizes() {
        let attribute = scattered(100);
        let (mut at, mut maps, mut sizes) = (0, Map::default(), Vec::new());
        while at < 100 {
            let (part, end) = attribute.extent(at, 200).unwrap();
            assert!(part.encoded_len() <= 200 && end > at);
            part.outside.iter().flat_map(Map::segments).for_each(|segment| maps.push(*segment));
            sizes.push(part.size());
            at = end;
        }
        assert_eq!(Some(maps), attribute.outside);
        assert!(sizes.len() > 2 && sizes[0] == 409_600 && sizes[1..].iter().all(|size| *size == 0), "{sizes:?}");
        assert!(attribute.extent(0, 60).is_none(), "not even a header fits");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..8) {
            if bytes.len() > 64 {
                let length = ((bytes.len() / 2) & !7) as u32;
                bytes[4..8].copy_from_slice(&length.to_le_bytes());
                bytes[8] = (at % 2) as u8;
            }
            for attribute in Attribute::parse_all(&bytes, CLUSTERS).unwrap_or_default() {
                let _ = (attribute.value().len(), attribute.encode(), attribute.instance());
            }
        }
    }
}
