//! Directory entries, from plain blocks (the leaves of hashed directories are plain, too) and from inline directories.

use super::bytes::{byte, le16, le32};
use super::checksum::Crc32c;
use super::fault::{Read, damaged};

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext4) struct Entry<'a> {
    pub(in crate::ext4) inode: u32,
    pub(in crate::ext4) name: &'a [u8],
}

/// The tail of a checked block poses as an entry of this type without a name.
pub(in crate::ext4) const TAIL_TYPE: u8 = 0xDE;
pub(in crate::ext4) const TAIL_BYTES: usize = 12;

/// Checks a directory block: its checksum where it has one, and nothing where it is an inner block of a hashed
/// directory, which holds no names and is not used here.
pub(super) fn check_block(seed: Option<Crc32c>, block: &[u8]) -> Read<()> {
    let Some(seed) = seed else { return Ok(()) };
    // First: the root of a hashed directory keeps the tail of the plain block that it was made from.
    if is_index(block) {
        return Ok(());
    }
    let start = block.len().saturating_sub(TAIL_BYTES);
    let (covered, tail) = block.split_at_checked(start).unwrap_or_default();
    let has_tail = le32(tail, 0) == 0 && le16(tail, 4) == 12 && byte(tail, 6) == 0 && byte(tail, 7) == TAIL_TYPE;
    if has_tail && seed.over(covered).value() == le32(tail, 8) {
        return Ok(());
    }
    damaged("directory block has a wrong checksum")
}

/// An inner block of a hashed directory hides its content from readers of plain blocks behind one long entry: an empty
/// one, or the parent's.
fn is_index(block: &[u8]) -> bool {
    let second = usize::from(le16(block, 4));
    let hides = |at: usize| record_length(le16(block, at + 4), block.len()) == block.len() - at;
    (le32(block, 0) == 0 && hides(0)) || (second == 12 && block.len() > 24 && hides(12))
}

/// 64 KiB does not fit the field.
pub(in crate::ext4) fn record_length(coded: u16, block_bytes: usize) -> usize {
    match coded {
        0 | u16::MAX if block_bytes >= 1 << 16 => block_bytes,
        _ => usize::from(coded),
    }
}

/// Calls `each` for every entry in use, `.` and `..` included.
pub(in crate::ext4) fn for_each_entry<'a>(block: &'a [u8], mut each: impl FnMut(Entry<'a>)) -> Read<()> {
    let mut rest = block;
    while rest.len() >= 8 {
        let length = record_length(le16(rest, 4), block.len());
        let name_length = usize::from(byte(rest, 6));
        let record =
            if length.is_multiple_of(4) && length >= 8 + name_length { rest.split_at_checked(length) } else { None };
        let Some((record, following)) = record.filter(|(r, _)| r.len() >= 8) else {
            return damaged("malformed directory entry");
        };
        let name = record.get(8..8 + name_length).unwrap_or_default();
        let inode = le32(record, 0);
        if inode != 0 && !name.is_empty() {
            each(Entry { inode, name });
        }
        rest = following;
    }
    Ok(())
}

/// Calls `each` for every entry of a directory kept in its inode: `map` is the inode's map area, `continuation` the rest
/// of the content. The parent comes first, as a bare number.
pub(super) fn for_each_inline_entry<'a>(
    map: &'a [u8],
    continuation: &'a [u8],
    mut each: impl FnMut(Entry<'a>),
) -> Read<()> {
    each(Entry { inode: le32(map, 0), name: b".." });
    for_each_entry(map.get(4..).unwrap_or_default(), &mut each)?;
    for_each_entry(continuation, each)
}

/// `.` and `..`.
pub(in crate::ext4) fn is_self_or_parent(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(entries: &[(u32, u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (inode, length, name) in entries {
            let start = bytes.len();
            bytes.extend(inode.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend([name.len() as u8, 1]);
            bytes.extend(*name);
            bytes.resize(start + usize::from(*length), 0);
        }
        bytes
    }

    #[test]
    fn entries_are_listed_and_deleted_ones_are_not() {
        let bytes =
            block(&[(2, 12, b"."), (2, 12, b".."), (11, 16, b"a\x1b[1m"), (0, 16, b"gone"), (12, 1000 - 32, b"b")]);
        let mut found = Vec::new();
        for_each_entry(&bytes, |e| found.push((e.inode, e.name.to_vec()))).unwrap();
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [2, 2, 11, 12]);
        assert_eq!(found[2].1, b"a\x1b[1m");
    }

    #[test]
    fn entries_that_leave_the_block_or_stand_still_are_damage() {
        for length in [0, 4, 9, 1024] {
            let mut bytes = block(&[(2, 12, b"."), (5, 500, b"x")]);
            bytes[16..18].copy_from_slice(&u16::to_le_bytes(length));
            assert!(for_each_entry(&bytes, |_| {}).is_err(), "record length {length}");
        }
    }
}
