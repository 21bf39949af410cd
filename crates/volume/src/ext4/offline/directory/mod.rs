//! The content of directories: their entries, and the blocks that say so.
//!
//! Owns the format of directory blocks and of the index that finds names by their hashes. Pure: never reads or writes anything but what
//! it is given, never decides which directories are rewritten.

mod build;
mod hash;
mod read;
#[cfg(test)]
mod tests;

pub(super) use build::{Built, build};
pub(super) use read::{read, space_needed};

use crate::bytes::put;
use crate::ext4::scan::checksum::Crc32c;
use crate::ext4::scan::directory::{TAIL_BYTES, TAIL_TYPE};
use crate::ext4::scan::superblock::{NameHash, Superblock, incompat};

/// Of an entry, what stands before its name.
const HEAD: usize = 8;
/// An entry with a name of one byte: the least that the kernel accepts.
const LEAST: usize = 12;
/// Where the index begins in the first block of a directory, behind `.`, `..` and its own head; and in other blocks of the index.
const IN_ROOT: usize = 32;
const IN_NODE: usize = HEAD;
/// The head of the index in the first block, and its length.
const INFO: usize = 24;
const INFO_BYTES: u8 = 8;
/// An entry of the index: the least hash, and the block.
const INDEX_ENTRY: usize = 8;
/// The checksum of a block of the index, and what stands before it.
const INDEX_TAIL: usize = 8;

/// How the directories of a volume look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) block_bytes: usize,
    /// The seed of the checksums of this directory, where there are any.
    pub(super) seed: Option<Crc32c>,
    /// Whether entries have a type; else that byte belongs to the length of the name.
    has_types: bool,
    /// Whether large directories have an index.
    has_index: bool,
    /// Levels of index blocks below the first block that the kernel accepts.
    most_levels: u8,
    name_hash: NameHash,
    /// Inodes of the volume.
    inodes: u64,
}

impl Format {
    pub(super) fn new(sb: &Superblock, seed: Option<Crc32c>) -> Self {
        Self {
            block_bytes: sb.block_size.bytes() as usize,
            seed,
            has_types: sb.incompat & incompat::FILE_TYPE != 0,
            has_index: sb.has_dir_index,
            most_levels: if sb.incompat & incompat::LARGE_DIRECTORY != 0 { 2 } else { 1 },
            name_hash: sb.name_hash,
            inodes: u64::from(sb.group_count) * u64::from(sb.inodes_per_group),
        }
    }

    /// What of a block is for entries.
    fn room(&self) -> usize {
        self.block_bytes - if self.seed.is_some() { TAIL_BYTES } else { 0 }
    }

    /// How many entries a block of the index has room for, which begin at `start`.
    fn index_room(&self, start: usize) -> usize {
        (self.block_bytes - start - if self.seed.is_some() { INDEX_TAIL } else { 0 }) / INDEX_ENTRY
    }

    /// The end of a block with entries.
    fn tail(&self, block: &[u8]) -> Option<[u8; TAIL_BYTES]> {
        let seed = self.seed?;
        let mut tail = [0; TAIL_BYTES];
        put(&mut tail, 4, &(TAIL_BYTES as u16).to_le_bytes());
        put(&mut tail, 7, &[TAIL_TYPE]);
        put(&mut tail, 8, &seed.over(block.get(..self.room()).unwrap_or_default()).value().to_le_bytes());
        Some(tail)
    }

    /// Where the checksum of a block of the index lies that has `count` entries from `start`, and what it is.
    fn index_sum(&self, block: &[u8], start: usize, count: usize) -> Option<(usize, u32)> {
        let seed = self.seed?;
        let tail = start + self.index_room(start) * INDEX_ENTRY;
        let part = |range: std::ops::Range<usize>| block.get(range).unwrap_or_default();
        let sum = seed.over(part(0..start + count * INDEX_ENTRY)).over(part(tail..tail + 4)).over(&[0; 4]);
        Some((tail + 4, sum.value()))
    }
}

/// What an entry takes at least.
fn needs(name: &[u8]) -> usize {
    (HEAD + name.len()).next_multiple_of(4)
}
