//! The blocks of a directory, made anew in the order of the hashes.
//!
//! Owns how full they are. Never drops an entry: what it makes is read again and compared.

use super::hash::Hasher;
use super::read::{Content, Entry, read};
use super::{Format, HEAD, IN_NODE, IN_ROOT, INDEX_ENTRY, INFO, INFO_BYTES, LEAST, needs};
use crate::bytes::put;

/// A block with hashed names is left with a part of so many free, so that the next name does not split it at once.
const SLACK: usize = 5;

/// Of a hash in the index: names with the hash without this bit are in the block before, too.
const CONTINUED: u32 = 1;

/// A directory as it shall be.
pub(in super::super) struct Built {
    /// Whole blocks.
    pub(in super::super) data: Vec<u8>,
    pub(in super::super) is_indexed: bool,
}

/// Makes the blocks of the directory `own` with this content, as few as can be. `None` when its index would have too many levels, when
/// names cannot be hashed, or when what was made does not say the same.
pub(in super::super) fn build(format: &Format, own: u32, content: &Content<'_>) -> Option<Built> {
    let room = format.room();
    let total: usize = 2 * LEAST + content.entries.iter().map(|entry| needs(entry.name)).sum::<usize>();
    let fits_one = total + format.block_bytes / SLACK <= room;
    let built = if fits_one || !format.has_index {
        Built { data: plain(format, content)?, is_indexed: false }
    } else {
        Built { data: indexed(format, content)?, is_indexed: true }
    };
    let again = read(format, own, built.is_indexed, &built.data).ok()?;
    let sorted = |entries: &[Entry<'_>]| {
        let mut all: Vec<(Vec<u8>, u32, u8)> =
            entries.iter().map(|entry| (entry.name.to_vec(), entry.inode, entry.kind)).collect();
        all.sort_unstable();
        all
    };
    let is_same = again.dots == content.dots && sorted(&again.entries) == sorted(&content.entries);
    is_same.then_some(built)
}

/// A block that is filled entry by entry.
struct Filling {
    block: Vec<u8>,
    /// Where the last entry begins, and where the next one would.
    last: usize,
    end: usize,
}

impl Filling {
    fn new(format: &Format) -> Self {
        Self { block: vec![0; format.block_bytes], last: 0, end: 0 }
    }

    fn put(&mut self, entry: &Entry<'_>) {
        let length = needs(entry.name);
        put(&mut self.block, self.end, &entry.inode.to_le_bytes());
        put(&mut self.block, self.end + 4, &(length as u16).to_le_bytes());
        put(&mut self.block, self.end + 6, &[entry.name.len() as u8, entry.kind]);
        put(&mut self.block, self.end + HEAD, entry.name);
        self.last = self.end;
        self.end += length;
    }

    /// The block, whose last entry has the rest of it.
    fn finished(mut self, format: &Format) -> Vec<u8> {
        let room = format.room();
        put_length(&mut self.block, self.last, room - self.last);
        if let Some(tail) = format.tail(&self.block) {
            put(&mut self.block, room, &tail);
        }
        self.block
    }
}

/// The length of an entry; that of a whole block of 64 KiB does not fit.
fn put_length(block: &mut [u8], at: usize, length: usize) {
    put(block, at + 4, &u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
}

/// Block after block, each as full as can be.
fn plain(format: &Format, content: &Content<'_>) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    let mut filling = Filling::new(format);
    for entry in content.dots.iter().chain(&content.entries) {
        if filling.end + needs(entry.name) > format.room() {
            data.extend(std::mem::replace(&mut filling, Filling::new(format)).finished(format));
        }
        filling.put(entry);
    }
    data.extend(filling.finished(format));
    Some(data)
}

/// The index, and behind it the blocks that it leads to.
fn indexed(format: &Format, content: &Content<'_>) -> Option<Vec<u8>> {
    let version = content.version.unwrap_or(format.name_hash.version);
    let hasher = Hasher::new(&format.name_hash, version)?;
    let leaves = leaves(format, &hasher, &content.entries);
    let (in_root, in_node) = (format.index_room(IN_ROOT), format.index_room(IN_NODE));
    // How many blocks each level has, from the lowest.
    let mut levels = Vec::new();
    let mut width = leaves.len();
    while width > in_root {
        width = width.div_ceil(in_node);
        levels.push(width);
    }
    if levels.len() > usize::from(format.most_levels) {
        return None;
    }
    let mut root = vec![0; format.block_bytes];
    let [this, parent] = content.dots;
    let mut filling = Filling { block: root, last: 0, end: 0 };
    filling.put(&this);
    filling.put(&parent);
    root = filling.block;
    put_length(&mut root, LEAST, format.block_bytes - LEAST);
    put(&mut root, INFO + 4, &[version, INFO_BYTES, levels.len() as u8]);
    // The top comes first, so that each block leads to blocks behind it.
    let mut data = Vec::with_capacity((leaves.len() + levels.iter().sum::<usize>() + 1) * format.block_bytes);
    let firsts: Vec<u32> = leaves.iter().map(|(hash, _)| *hash).collect();
    let mut number = 1;
    let mut nodes = Vec::new();
    let mut above: Vec<Vec<u8>> = vec![root];
    for level in (0..=levels.len()).rev() {
        // Each child at this depth stands for so many leaves.
        let each = in_node.checked_pow(level as u32)?;
        let children: Vec<(u32, u32)> = firsts.iter().step_by(each).copied().zip(number..).collect();
        number += children.len() as u32;
        let (start, capacity) = if level == levels.len() { (IN_ROOT, in_root) } else { (IN_NODE, in_node) };
        for (block, children) in above.iter_mut().zip(children.chunks(capacity)) {
            put_index(format, block, start, children);
        }
        let below = if level > 0 { children.iter().map(|_| node(format)).collect() } else { Vec::new() };
        nodes.extend(std::mem::replace(&mut above, below));
    }
    nodes.into_iter().for_each(|node| data.extend(node));
    leaves.into_iter().for_each(|(_, leaf)| data.extend(leaf));
    Some(data)
}

/// A block of the index hides behind an empty entry.
fn node(format: &Format) -> Vec<u8> {
    let mut block = vec![0; format.block_bytes];
    put_length(&mut block, 0, format.block_bytes);
    block
}

/// Puts the least hash and the number of each child into a block. That of the first is known from above.
fn put_index(format: &Format, block: &mut [u8], start: usize, children: &[(u32, u32)]) {
    for ((hash, number), at) in children.iter().zip((start..).step_by(INDEX_ENTRY)) {
        put(block, at, &hash.to_le_bytes());
        put(block, at + 4, &number.to_le_bytes());
    }
    put(block, start, &(format.index_room(start) as u16).to_le_bytes());
    put(block, start + 2, &(children.len() as u16).to_le_bytes());
    if let Some((at, sum)) = format.index_sum(block, start, children.len()) {
        put(block, at, &sum.to_le_bytes());
    }
}

/// Blocks with names in the order of their hashes, with the hash that the index has for each: odd when names with the same hash are in
/// the block before.
fn leaves(format: &Format, hasher: &Hasher, entries: &[Entry<'_>]) -> Vec<(u32, Vec<u8>)> {
    let mut hashed: Vec<(u32, u32, Entry<'_>)> = entries
        .iter()
        .map(|entry| {
            let (hash, minor) = hasher.of(entry.name);
            (hash, minor, *entry)
        })
        .collect();
    hashed.sort_unstable();
    let slack = format.block_bytes / SLACK;
    let mut leaves = Vec::new();
    let (mut filling, mut first, mut last) = (Filling::new(format), None, None);
    for (hash, _, entry) in &hashed {
        let left = format.room() - filling.end;
        if filling.end > 0 && (left < slack || left < needs(entry.name)) {
            let full = std::mem::replace(&mut filling, Filling::new(format));
            leaves.push((first.take().unwrap_or_default(), full.finished(format)));
        }
        if first.is_none() {
            first = Some(if last == Some(*hash) { hash | CONTINUED } else { *hash });
        }
        filling.put(entry);
        last = Some(*hash);
    }
    leaves.push((first.unwrap_or_default(), filling.finished(format)));
    leaves
}
