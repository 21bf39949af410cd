//! $ATTRIBUTE_LIST: which records a file's attributes stand in, when it has more than one record.
//!
//! Owns the entries of the list. Pure.

use super::attribute::{Attribute, Name, kind};
use super::fault::{Read, damaged};
use super::record::Reference;
use crate::bytes::{byte, le16, le32, le64, put};

/// Where the name of an entry begins.
const NAME_AT: usize = 0x1a;

/// One extent of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What it is of.
    pub(super) of: Name,
    /// The first cluster that the extent maps.
    pub(super) lowest: u64,
    /// The record that it stands in.
    pub(super) record: Reference,
    /// Its number there.
    pub(super) instance: u16,
}

impl Entry {
    /// All entries of a list.
    pub(super) fn parse_all(mut bytes: &[u8]) -> Read<Vec<Self>> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (length, units, at) =
                (usize::from(le16(bytes, 4)), usize::from(byte(bytes, 6)), usize::from(byte(bytes, 7)));
            let parts = bytes.split_at_checked(length).filter(|_| length >= NAME_AT);
            let Some((entry, rest)) = parts else { return damaged("an attribute list is not valid") };
            let Some(name) = entry.get(at..at + 2 * units) else { return damaged("an attribute list is not valid") };
            let name = name.chunks_exact(2).map(|unit| le16(unit, 0)).collect();
            entries.push(Self {
                of: Name { kind: le32(entry, 0), name },
                lowest: le64(entry, 8),
                record: Reference::parse(le64(entry, 0x10)),
                instance: le16(entry, 0x18),
            });
            bytes = rest;
        }
        Ok(entries)
    }

    /// The entry as it stands in the list.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut entry = vec![0; Self::length(&self.of)];
        let mut put = |at, value: &[u8]| put(&mut entry, at, value);
        put(0, &self.of.kind.to_le_bytes());
        put(4, &(Self::length(&self.of) as u16).to_le_bytes());
        put(6, &[self.of.name.len() as u8, NAME_AT as u8]);
        put(8, &self.lowest.to_le_bytes());
        put(0x10, &self.record.encode().to_le_bytes());
        put(0x18, &self.instance.to_le_bytes());
        let name: Vec<u8> = self.of.name.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        put(NAME_AT, &name);
        entry
    }

    /// The bytes that an entry of this name takes.
    pub(super) fn length(of: &Name) -> usize {
        (NAME_AT + 2 * of.name.len()).next_multiple_of(8)
    }
}

/// A resident list without entries.
pub(super) fn empty() -> Read<Attribute> {
    let mut bytes = vec![0; 0x18];
    let fields: [(usize, &[u8]); 4] =
        [(0, &kind::ATTRIBUTE_LIST.to_le_bytes()), (4, &[0x18]), (10, &[0x18]), (0x14, &[0x18])];
    for (at, value) in fields {
        put(&mut bytes, at, value);
    }
    bytes.extend([0xff; 4]);
    let parsed = Attribute::parse_all(&bytes, 0)?;
    parsed.into_iter().next().map_or_else(|| damaged("an attribute list is not valid"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed_again(kinds in proptest::collection::vec((any::<u32>(), 0usize..40, any::<u64>(), any::<u16>()), 0..9)) {
            let entries: Vec<Entry> = kinds.into_iter().map(|(kind, units, lowest, instance)| Entry {
                of: Name { kind, name: vec![0x41; units] },
                lowest,
                record: Reference { number: lowest >> 16, sequence: instance },
                instance,
            }).collect();
            let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
            prop_assert_eq!(Entry::parse_all(&bytes).unwrap(), entries);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entry::parse_all(&bytes);
        }
    }

    #[test]
    fn an_empty_list_takes_values() {
        let list = empty().unwrap().with_value(&[7; 33]);
        assert_eq!((list.value(), list.encoded_len(), list.of.kind), (&[7; 33][..], 64, kind::ATTRIBUTE_LIST));
    }
}
