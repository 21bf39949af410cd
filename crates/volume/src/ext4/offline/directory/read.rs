//! The entries of a directory, from its blocks.
//!
//! Owns the checks that a directory must pass before its blocks are given up: what is not exactly as the kernel would have made it is
//! damage here. So every name is looked for where its hash says that it is.

use super::hash::Hasher;
use super::{Format, HEAD, IN_NODE, IN_ROOT, INDEX_ENTRY, INFO, INFO_BYTES, LEAST, needs};
use crate::bytes::{byte, le16, le32};
use crate::ext4::scan::directory::{is_self_or_parent, record_length};
use crate::ext4::scan::fault::{Read, damaged};

/// An entry in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) inode: u32,
    /// The type of what it names; 0 where entries have none.
    pub(super) kind: u8,
}

/// What a directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Content<'a> {
    /// `.` and `..`.
    pub(super) dots: [Entry<'a>; 2],
    /// All others, in the order of the blocks.
    pub(super) entries: Vec<Entry<'a>>,
    /// The function of its index, if it has one.
    pub(super) version: Option<u8>,
}

/// Reads the directory `own`, whose whole blocks are `data`. A fault where it is not in order.
pub(in super::super) fn read<'a>(format: &Format, own: u32, is_indexed: bool, data: &'a [u8]) -> Read<Content<'a>> {
    let mut blocks = data.chunks_exact(format.block_bytes);
    let Some(first) = blocks.next() else { return damaged("a directory has no blocks") };
    let mut content = Content { dots: dots(format, own, first)?, entries: Vec::new(), version: None };
    if is_indexed {
        if !format.has_index {
            return damaged("a directory has an index on a volume without");
        }
        read_index(format, data, &mut content)?;
    } else {
        let start = block_entries(format, first, &mut content.entries)?;
        if start < 2 || content.entries.drain(..2).count() < 2 {
            return damaged("a directory begins with other entries");
        }
        for block in blocks {
            block_entries(format, block, &mut content.entries)?;
        }
    }
    check_names(&content.entries)?;
    Ok(content)
}

/// Which bytes the entries of these blocks need, as far as they can be read: for directories whose entries are not understood.
pub(in super::super) fn space_needed(format: &Format, data: &[u8]) -> usize {
    let mut needed = 0;
    for block in data.chunks_exact(format.block_bytes) {
        // Each may have a hash behind its name.
        let taken = crate::ext4::scan::directory::for_each_entry(block, |entry| needed += needs(entry.name) + HEAD);
        if taken.is_err() {
            needed += format.block_bytes;
        }
    }
    needed
}

/// The first two entries, which are always there and in this order.
fn dots<'a>(format: &Format, own: u32, block: &'a [u8]) -> Read<[Entry<'a>; 2]> {
    let (this, behind) = entry(format, block, 0)?;
    let (parent, _) = entry(format, block, behind)?;
    match (this, parent) {
        (Some(this), Some(parent))
            if this.name == b"." && parent.name == b".." && this.inode == own && behind == LEAST =>
        {
            Ok([this, parent])
        }
        _ => damaged("a directory does not begin with itself and its parent"),
    }
}

/// The entry at `at`, if it is in use, and where the next one begins.
fn entry<'a>(format: &Format, block: &'a [u8], at: usize) -> Read<(Option<Entry<'a>>, usize)> {
    let length = record_length(le16(block, at + 4), format.block_bytes);
    let (name_length, kind) = match format.has_types {
        true => (usize::from(byte(block, at + 6)), byte(block, at + 7)),
        false => (usize::from(le16(block, at + 6)), 0),
    };
    let is_sound = length >= LEAST && length.is_multiple_of(4) && at + length <= block.len();
    let name = block.get(at + HEAD..at + HEAD + name_length);
    let Some(name) = name.filter(|name| is_sound && name.len() <= 255 && needs(name) <= length) else {
        return damaged("a malformed directory entry");
    };
    let inode = le32(block, at);
    if u64::from(inode) > format.inodes || (inode != 0 && name.is_empty()) {
        return damaged("a directory entry of no inode");
    }
    Ok(((inode != 0).then_some(Entry { name, inode, kind }), at + length))
}

/// Adds the entries of a block that is no part of an index, and returns how many these are.
fn block_entries<'a>(format: &Format, block: &'a [u8], entries: &mut Vec<Entry<'a>>) -> Read<usize> {
    let room = format.room();
    if let Some(tail) = format.tail(block)
        && block.get(room..) != Some(tail.as_slice())
    {
        return damaged("a directory block has a wrong checksum");
    }
    let (mut at, before) = (0, entries.len());
    while at < room {
        let (found, next) = entry(format, block, at)?;
        if next > room {
            return damaged("a directory entry that leaves its block");
        }
        entries.extend(found);
        at = next;
    }
    Ok(entries.len() - before)
}

fn check_names(entries: &[Entry<'_>]) -> Read<()> {
    let mut names: Vec<&[u8]> = entries.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    let is_twice = names.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
    let is_name = |name: &[u8]| !is_self_or_parent(name) && !name.contains(&b'/') && !name.contains(&0);
    if is_twice || !names.iter().all(|name| is_name(name)) {
        return damaged("a directory has impossible names");
    }
    Ok(())
}

/// What has been seen of an index.
struct Walk<'f, 'a> {
    format: &'f Format,
    data: &'a [u8],
    hasher: Hasher,
    seen: Vec<bool>,
}

fn read_index<'a>(format: &Format, data: &'a [u8], content: &mut Content<'a>) -> Read<()> {
    let block_bytes = format.block_bytes;
    let head = data.get(..block_bytes).unwrap_or_default();
    let (version, levels) = (byte(head, INFO + 4), byte(head, INFO + 6));
    let hides_rest = record_length(le16(head, LEAST + 4), block_bytes) == block_bytes - LEAST;
    let is_known = le32(head, INFO) == 0 && byte(head, INFO + 5) == INFO_BYTES && byte(head, INFO + 7) == 0;
    let Some(hasher) = Hasher::new(&format.name_hash, version).filter(|_| is_known && hides_rest) else {
        return damaged("a directory has an index of another kind");
    };
    if levels > format.most_levels {
        return damaged("a directory has an index with too many levels");
    }
    let mut walk = Walk { format, data, hasher, seen: vec![false; data.len() / block_bytes] };
    walk.enter(0)?;
    walk.node(head, IN_ROOT, levels, (0, u64::from(u32::MAX)), &mut content.entries)?;
    if walk.seen.contains(&false) {
        return damaged("a directory has a block that its index does not know");
    }
    content.version = Some(version);
    Ok(())
}

impl<'a> Walk<'_, 'a> {
    /// The block with this number, which must not have been seen before.
    fn enter(&mut self, number: u32) -> Read<&'a [u8]> {
        let start = number as usize * self.format.block_bytes;
        match (self.seen.get_mut(number as usize), self.data.get(start..start + self.format.block_bytes)) {
            (Some(seen), Some(block)) if !*seen => {
                *seen = true;
                Ok(block)
            }
            _ => damaged("the index of a directory leads to a block twice, or beyond its end"),
        }
    }

    /// Reads what is below a block of the index, whose hashes must be within `range`.
    fn node(
        &mut self,
        block: &[u8],
        start: usize,
        levels: u8,
        range: (u64, u64),
        entries: &mut Vec<Entry<'a>>,
    ) -> Read<()> {
        let (limit, count) = (usize::from(le16(block, start)), usize::from(le16(block, start + 2)));
        if limit != self.format.index_room(start) || count == 0 || count > limit {
            return damaged("a directory has a malformed index");
        }
        if self.format.index_sum(block, start, count).is_some_and(|(at, sum)| le32(block, at) != sum) {
            return damaged("the index of a directory has a wrong checksum");
        }
        let mut from = range.0;
        for number in 0..count {
            let at = start + number * INDEX_ENTRY;
            let is_last = number + 1 == count;
            let end = if is_last { range.1 } else { u64::from(le32(block, at + INDEX_ENTRY)) };
            if end < from || end > range.1 {
                return damaged("the index of a directory is out of order");
            }
            self.child(le32(block, at + 4), levels, (from, end), entries)?;
            from = end;
        }
        Ok(())
    }

    fn child(&mut self, number: u32, levels: u8, range: (u64, u64), entries: &mut Vec<Entry<'a>>) -> Read<()> {
        let block = self.enter(number)?;
        if let Some(below) = levels.checked_sub(1) {
            let hides_all = record_length(le16(block, 4), block.len()) == block.len();
            if le32(block, 0) != 0 || le16(block, 6) != 0 || !hides_all {
                return damaged("a block of an index is none");
            }
            return self.node(block, IN_NODE, below, range, entries);
        }
        let before = entries.len();
        block_entries(self.format, block, entries)?;
        // An odd hash says that names with the even one below it are in the block before, too.
        let is_here = |name: &[u8]| {
            let hash = u64::from(self.hasher.of(name).0);
            hash >= range.0 & !1 && hash < range.1
        };
        match entries.get(before..).unwrap_or_default().iter().all(|entry| is_here(entry.name)) {
            true => Ok(()),
            false => damaged("a name is not where its hash says"),
        }
    }
}
