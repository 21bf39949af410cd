//! The extent tree of a file: its extents in memory, and the records that say so.
//!
//! Owns the format of the tree's nodes. Never allocates, never reads or writes anything but what it is given.

use crate::bytes::put;
use crate::ext4::scan::checksum::Crc32c;
use crate::ext4::scan::inode::MAP_SIZE;
use crate::ext4::scan::map::{EXTENT_MAGIC, FileMap, RECORD, WRITTEN_LIMIT};
use longrun_layout::{Extent, LogicalRange, Run};

/// Records that the inode itself has room for, behind the head of the tree.
const IN_INODE: usize = MAP_SIZE / RECORD - 1;

/// Blocks of a file that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) logical: u64,
    pub(super) physical: u64,
    pub(super) length: u64,
    /// Allocated, and never written: it reads as zeros, and there is nothing to copy.
    pub(super) is_unwritten: bool,
}

impl Piece {
    /// Where it lies.
    pub(super) fn extent(&self) -> Extent {
        Extent::new(self.physical, self.length)
    }

    pub(super) fn end(&self) -> u64 {
        self.logical + self.length
    }

    /// The part of it within `[from, to)`.
    fn within(&self, from: u64, to: u64) -> Option<Self> {
        let (start, end) = (self.logical.max(from), self.end().min(to));
        (start < end).then(|| Self {
            logical: start,
            physical: self.physical + (start - self.logical),
            length: end - start,
            is_unwritten: self.is_unwritten,
        })
    }

    fn continues_into(&self, next: &Self) -> bool {
        self.end() == next.logical
            && self.physical + self.length == next.physical
            && self.is_unwritten == next.is_unwritten
    }

    /// How many records it takes: the length of one is limited.
    fn records(&self) -> usize {
        self.length.div_ceil(self.longest()) as usize
    }

    fn longest(&self) -> u64 {
        u64::from(WRITTEN_LIMIT) - u64::from(self.is_unwritten)
    }
}

/// The map of a file, and the blocks that hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    /// Ascending by logical address, joined where they continue each other.
    pieces: Vec<Piece>,
    /// Records of all of them: asked for with each move.
    records: usize,
    /// The blocks that the tree has, in the order in which it uses them. It may have more than it needs until the next commit.
    pub(super) nodes: Vec<u64>,
}

/// What is to be written of a tree.
pub(super) struct Encoded {
    /// Into the inode.
    pub(super) root: [u8; MAP_SIZE],
    /// Whole blocks.
    pub(super) nodes: Vec<(u64, Vec<u8>)>,
}

impl Tree {
    /// The tree that was read.
    pub(super) fn new(map: &FileMap) -> Self {
        let mut pieces: Vec<Piece> = Vec::with_capacity(map.runs.len());
        let mut unwritten = map.unwritten.iter().copied().peekable();
        for run in &map.runs {
            let whole =
                Piece { logical: run.logical.0, physical: run.physical.0, length: run.length.0, is_unwritten: false };
            let mut at = whole.logical;
            while let Some(&(first, length)) = unwritten.peek() {
                if first >= whole.end() {
                    break;
                }
                pieces.extend(whole.within(at, first));
                pieces.extend(whole.within(first, first + length).map(|piece| Piece { is_unwritten: true, ..piece }));
                at = first + length;
                unwritten.next();
            }
            pieces.extend(whole.within(at, whole.end()));
        }
        Self::of(pieces, map.nodes.clone())
    }

    fn of(mut pieces: Vec<Piece>, nodes: Vec<u64>) -> Self {
        join(&mut pieces);
        Self { records: records(&pieces), pieces, nodes }
    }

    /// The tree of a file whose content lies in these extents, one after the other. It has the blocks of `self` for what it needs.
    pub(super) fn rewritten(&self, extents: &[Extent]) -> Self {
        let mut logical = 0;
        let mut pieces = Vec::with_capacity(extents.len());
        for extent in extents {
            let (physical, length) = (extent.start.0, extent.length.0);
            pieces.push(Piece { logical, physical, length, is_unwritten: false });
            logical += length;
        }
        Self::of(pieces, self.nodes.clone())
    }

    /// The extents of a file of `blocks` blocks without holes, all of which were written; `None` where it is not so.
    pub(super) fn whole(&self, blocks: u64) -> Option<Vec<Extent>> {
        let pieces = self.within(0, blocks)?;
        let is_all = self.blocks() == blocks && pieces.iter().all(|piece| !piece.is_unwritten);
        is_all.then(|| pieces.iter().map(|piece| Extent::new(piece.physical, piece.length)).collect())
    }

    /// Blocks of the file.
    pub(super) fn blocks(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    /// Where the file lies.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.runs_around(LogicalRange::ALL)
    }

    /// The runs in `range`, and the nearest one on either side.
    pub(super) fn runs_around(&self, range: LogicalRange) -> Vec<Run> {
        let first = self.pieces.partition_point(|piece| piece.end() <= range.start.0).saturating_sub(1);
        let behind = self.pieces.partition_point(|piece| piece.logical < range.end().0) + 1;
        let pieces = self.pieces.get(first..behind.min(self.pieces.len())).unwrap_or_default();
        let mut runs: Vec<Run> = Vec::with_capacity(pieces.len());
        for run in pieces.iter().map(|piece| Run::new(piece.logical, piece.physical, piece.length)) {
            match runs.last_mut() {
                Some(last) if last.continues_into(&run) => last.length += run.length,
                _ => runs.push(run),
            }
        }
        runs
    }

    /// The pieces of a range; `None` when it has a hole.
    pub(super) fn within(&self, logical: u64, length: u64) -> Option<Vec<Piece>> {
        let end = logical.checked_add(length)?;
        let found: Vec<Piece> = self.overlapping(logical, end).filter_map(|piece| piece.within(logical, end)).collect();
        (found.iter().map(|piece| piece.length).sum::<u64>() == length).then_some(found)
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|piece| piece.end() <= from);
        self.pieces.iter().skip(first).take_while(move |piece| piece.logical < to)
    }

    /// Says that a range, which has no hole, lies at `physical` now.
    pub(super) fn put(&mut self, logical: u64, physical: u64, length: u64) {
        let end = logical + length;
        let first = self.pieces.partition_point(|piece| piece.end() <= logical);
        let behind = self.pieces.partition_point(|piece| piece.logical < end);
        // With a neighbour on each side, so that they can be joined.
        let (first, behind) = (first.saturating_sub(1), (behind + 1).min(self.pieces.len()));
        let old = self.pieces.get(first..behind).unwrap_or_default();
        let mut new = Vec::with_capacity(old.len() + 2);
        for piece in old {
            new.extend(piece.within(0, logical));
            new.extend(
                piece.within(logical, end).map(|part| Piece { physical: physical + (part.logical - logical), ..part }),
            );
            new.extend(piece.within(end, u64::MAX));
        }
        join(&mut new);
        self.records = self.records - records(old) + records(&new);
        self.pieces.splice(first..behind, new);
    }

    /// How many blocks the tree needs, when a block has room for `capacity` records.
    pub(super) fn needs(&self, capacity: usize) -> usize {
        let mut level = self.records;
        let mut needed = 0;
        while level > IN_INODE {
            level = level.div_ceil(capacity);
            needed += level;
        }
        needed
    }

    /// The tree as it lies on the disk: as flat as can be, in the first [`Self::needs`] of its blocks, which it must have.
    pub(super) fn encode(&self, block_bytes: usize, seed: Option<Crc32c>) -> Encoded {
        let capacity = capacity(block_bytes);
        let mut level: Vec<(u64, [u8; RECORD])> = self.pieces.iter().flat_map(leaf_records).collect();
        let (mut depth, mut nodes) = (0u16, Vec::new());
        let mut blocks = self.nodes.iter().copied();
        while level.len() > IN_INODE {
            let mut above = Vec::with_capacity(level.len().div_ceil(capacity));
            for (records, block) in level.chunks(capacity).zip(blocks.by_ref()) {
                let mut node = vec![0; block_bytes];
                put_node(&mut node, records, capacity, depth);
                if let Some(seed) = seed {
                    let tail = RECORD + capacity * RECORD;
                    let sum = seed.over(node.get(..tail).unwrap_or_default()).value();
                    put(&mut node, tail, &sum.to_le_bytes());
                }
                above.extend(records.first().map(|(logical, _)| (*logical, index_record(*logical, block))));
                nodes.push((block, node));
            }
            level = above;
            depth += 1;
        }
        let mut root = [0; MAP_SIZE];
        put_node(&mut root, &level, IN_INODE, depth);
        Encoded { root, nodes }
    }
}

/// How many records a block of the tree has room for. The checksum always fits behind them.
pub(super) fn capacity(block_bytes: usize) -> usize {
    (block_bytes - RECORD) / RECORD
}

fn records(pieces: &[Piece]) -> usize {
    pieces.iter().map(Piece::records).sum()
}

fn join(pieces: &mut Vec<Piece>) {
    pieces.dedup_by(|next, kept| {
        let joined = kept.continues_into(next);
        if joined {
            kept.length += next.length;
        }
        joined
    });
}

fn put_node(node: &mut [u8], records: &[(u64, [u8; RECORD])], capacity: usize, depth: u16) {
    let head = [EXTENT_MAGIC, records.len() as u16, capacity as u16, depth];
    head.iter().zip((0..).step_by(2)).for_each(|(field, at)| put(node, at, &field.to_le_bytes()));
    records.iter().zip((RECORD..).step_by(RECORD)).for_each(|((_, record), at)| put(node, at, record));
}

fn leaf_records(piece: &Piece) -> impl Iterator<Item = (u64, [u8; RECORD])> + use<> {
    let piece = *piece;
    (0..piece.length).step_by(piece.longest() as usize).map(move |done| {
        let (logical, physical) = (piece.logical + done, piece.physical + done);
        let length = piece.longest().min(piece.length - done) as u16;
        let coded = if piece.is_unwritten { length + WRITTEN_LIMIT } else { length };
        let mut record = [0; RECORD];
        put(&mut record, 0, &(logical as u32).to_le_bytes());
        put(&mut record, 4, &coded.to_le_bytes());
        put(&mut record, 6, &((physical >> 32) as u16).to_le_bytes());
        put(&mut record, 8, &(physical as u32).to_le_bytes());
        (logical, record)
    })
}

fn index_record(logical: u64, block: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    put(&mut record, 0, &(logical as u32).to_le_bytes());
    put(&mut record, 4, &(block as u32).to_le_bytes());
    put(&mut record, 8, &((block >> 32) as u16).to_le_bytes());
    record
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
