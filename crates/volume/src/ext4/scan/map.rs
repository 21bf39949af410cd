//! The map of a file: walks extent trees and the older indirect blocks.
//!
//! Every node is checked before use (checksum, depth, order, range). The whole scan has a budget of as many nodes and
//! blocks as the volume can hold, so that a malicious tree can make it neither run long nor use much memory.

use super::bytes::{joined, le16, le32};
use super::fault::{Fault, Read, damaged};
use super::inode::{Inode, Mapping};
use super::source::Source;
use super::superblock::Superblock;
use longrun_layout::Run;

pub(in crate::ext4) const EXTENT_MAGIC: u16 = 0xF30A;
const EXTENT_DEPTH_LIMIT: u16 = 5;
pub(in crate::ext4) const RECORD: usize = 12;
/// A longer extent is unwritten, and this much is to be taken off.
pub(in crate::ext4) const WRITTEN_LIMIT: u16 = 0x8000;
const DIRECT_POINTERS: usize = 12;

/// The blocks of one file; buffers are reused from file to file.
#[derive(Debug, Default)]
pub(in crate::ext4) struct FileMap {
    /// Ascending by logical address; neighbours joined.
    pub(in crate::ext4) runs: Vec<Run>,
    /// Logical blocks that were allocated and never written, ascending: the first, and how many.
    pub(in crate::ext4) unwritten: Vec<(u64, u64)>,
    /// Blocks that hold the map itself.
    pub(in crate::ext4) nodes: Vec<u64>,
    blocks: u64,
}

impl FileMap {
    fn clear(&mut self) {
        self.runs.clear();
        self.unwritten.clear();
        self.nodes.clear();
        self.blocks = 0;
    }

    fn push(&mut self, run: Run) {
        self.blocks += run.length.0;
        match self.runs.last_mut() {
            Some(last) if last.continues_into(&run) => last.length += run.length,
            _ => self.runs.push(run),
        }
    }
}

/// Reads maps, and keeps the budget of a scan.
pub(in crate::ext4) struct Mapper<'a> {
    source: &'a dyn Source,
    sb: &'a Superblock,
    nodes_left: u64,
    blocks_left: u64,
    spare_buffers: Vec<Vec<u8>>,
}

/// A part of an extent tree: what its parent says about it.
struct Expected {
    /// `None` for the root, which tells itself.
    depth: Option<u16>,
    /// Logical blocks that it may map.
    range: std::ops::Range<u64>,
}

impl<'a> Mapper<'a> {
    pub(in crate::ext4) fn new(source: &'a dyn Source, sb: &'a Superblock) -> Self {
        // Twice: on a live volume a file may be seen in its old place and another already in the same one.
        let limit = sb.blocks.saturating_mul(2);
        Self { source, sb, nodes_left: limit, blocks_left: limit, spare_buffers: Vec::new() }
    }

    /// Reads the map of `inode` into `map`.
    pub(in crate::ext4) fn read(&mut self, inode: &Inode, map: &mut FileMap) -> Read<()> {
        map.clear();
        match inode.mapping() {
            Mapping::Inline => {}
            Mapping::Extents => {
                self.extent_node(inode, &inode.map, &Expected { depth: None, range: 0..1 << 32 }, map)?;
            }
            Mapping::Indirect => self.indirect_map(inode, map)?,
        }
        let budget = self.nodes_left.checked_sub(map.nodes.len() as u64).zip(self.blocks_left.checked_sub(map.blocks));
        let Some((nodes, blocks)) = budget else { return exceeds(inode) };
        (self.nodes_left, self.blocks_left) = (nodes, blocks);
        Ok(())
    }

    fn extent_node(&mut self, inode: &Inode, node: &[u8], expected: &Expected, map: &mut FileMap) -> Read<()> {
        let (entries, depth) = self.extent_header(inode, node, expected)?;
        let records = node.chunks_exact(RECORD).skip(1).take(entries);
        if depth == 0 {
            return self.extent_leaf(inode, records, &expected.range, map);
        }
        let mut following = records.clone().skip(1).map(|r| u64::from(le32(r, 0)));
        let mut from = expected.range.start;
        for record in records {
            let first = u64::from(le32(record, 0));
            let end = following.next().unwrap_or(expected.range.end);
            if first < from || end <= first || end > expected.range.end {
                return damaged(format!("inode {}: extent tree out of order at logical block {first}", inode.number));
            }
            from = end;
            let child = Expected { depth: Some(depth - 1), range: first..end };
            let location = joined(le32(record, 4), u32::from(le16(record, 8)));
            let mut buffer = self.read_node(inode, location, map)?;
            let checked = self.extent_checksum(inode, &buffer);
            let result = checked.and_then(|()| self.extent_node(inode, &buffer, &child, map));
            buffer.clear();
            self.spare_buffers.push(buffer);
            result?;
        }
        Ok(())
    }

    /// Checks the head of a node; returns the number of its records and its depth.
    fn extent_header(&self, inode: &Inode, node: &[u8], expected: &Expected) -> Read<(usize, u16)> {
        let (entries, capacity, depth) = (le16(node, 2), le16(node, 4), le16(node, 6));
        let room = node.len() / RECORD - 1;
        let deep = expected.depth.map_or(depth > EXTENT_DEPTH_LIMIT, |d| d != depth);
        let empty = entries == 0 && (expected.depth.is_some() || depth > 0);
        if le16(node, 0) != EXTENT_MAGIC || usize::from(capacity) > room || entries > capacity || deep || empty {
            return damaged(format!("inode {}: malformed extent tree node", inode.number));
        }
        Ok((usize::from(entries), depth))
    }

    fn extent_checksum(&self, inode: &Inode, node: &[u8]) -> Read<()> {
        let Some(seed) = inode.seed else { return Ok(()) };
        let tail = RECORD + usize::from(le16(node, 4)) * RECORD;
        match node.get(..tail) {
            Some(covered) if tail + 4 <= node.len() && seed.over(covered).value() == le32(node, tail) => Ok(()),
            _ => damaged(format!("inode {}: extent tree node has a wrong checksum", inode.number)),
        }
    }

    fn extent_leaf<'r>(
        &self,
        inode: &Inode,
        records: impl Iterator<Item = &'r [u8]>,
        range: &std::ops::Range<u64>,
        map: &mut FileMap,
    ) -> Read<()> {
        let mut from = range.start;
        for record in records {
            let (first, coded) = (u64::from(le32(record, 0)), le16(record, 4));
            let length = u64::from(if coded > WRITTEN_LIMIT { coded - WRITTEN_LIMIT } else { coded });
            let start = joined(le32(record, 8), u32::from(le16(record, 6)));
            if length == 0 || first < from || first + length > range.end || !self.sb.holds(start, length) {
                return damaged(format!("inode {}: impossible extent at logical block {first}", inode.number));
            }
            from = first + length;
            if coded > WRITTEN_LIMIT {
                map.unwritten.push((first, length));
            }
            map.push(Run::new(first, start, length));
        }
        Ok(())
    }

    fn indirect_map(&mut self, inode: &Inode, map: &mut FileMap) -> Read<()> {
        let mut logical = 0;
        for (pointer, index) in inode.map.chunks_exact(4).zip(0usize..) {
            let level = (index + 1).saturating_sub(DIRECT_POINTERS) as u32;
            logical = self.indirect_pointer(inode, u64::from(le32(pointer, 0)), level, logical, map)?;
        }
        Ok(())
    }

    /// Follows a pointer that stands for `pointers a block ^ level` blocks from `logical`; returns the block behind them.
    fn indirect_pointer(
        &mut self,
        inode: &Inode,
        block: u64,
        level: u32,
        logical: u64,
        map: &mut FileMap,
    ) -> Read<u64> {
        let fan_out = u64::from(self.sb.block_size.bytes() / 4);
        let end = logical.saturating_add(fan_out.saturating_pow(level));
        if block == 0 {
            return Ok(end);
        }
        if level == 0 {
            if !self.sb.holds(block, 1) {
                return damaged(format!("inode {}: data block {block} is beyond the end", inode.number));
            }
            map.push(Run::new(logical, block, 1));
            if map.blocks > self.blocks_left {
                return exceeds(inode);
            }
            return Ok(end);
        }
        let buffer = self.read_node(inode, block, map)?;
        let mut at = logical;
        for pointer in buffer.chunks_exact(4) {
            at = self.indirect_pointer(inode, u64::from(le32(pointer, 0)), level - 1, at, map)?;
        }
        self.spare_buffers.push(buffer);
        Ok(end)
    }

    fn read_node(&mut self, inode: &Inode, block: u64, map: &mut FileMap) -> Read<Vec<u8>> {
        if !self.sb.holds(block, 1) {
            return damaged(format!("inode {}: map block {block} is beyond the end", inode.number));
        }
        map.nodes.push(block);
        if map.nodes.len() as u64 > self.nodes_left {
            return exceeds(inode);
        }
        let mut buffer = self.spare_buffers.pop().unwrap_or_default();
        buffer.resize(self.sb.block_size.bytes() as usize, 0);
        self.source.read_exact_at(&mut buffer, self.sb.offset(block))?;
        Ok(buffer)
    }
}

fn exceeds<T>(inode: &Inode) -> Read<T> {
    Err(Fault::Damaged(format!("inode {}: the files have more blocks than the volume", inode.number)))
}
