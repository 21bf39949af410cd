//! The free space of chunks.
//!
//! Owns the reading of the free-space tree, or, where there is none, of the gaps between extents. Never writes.

use super::address::Address;
use super::items::kind;
use super::model::{Chunk, FreeSpaceSource, chunk_index_at};
use super::trees::Trees;
use crate::bytes::bit;
use longrun_engine::VolumeError;
use longrun_layout::{BlockSize, Bytes, Extent, ExtentSet, PhysicalBlock};
use longrun_sys::{BtrfsInfo, TreeId, TreeItem, TreeKey, Visit};

/// Notes what is free in each of `chunks`; answers where that was found.
pub(super) fn read(
    trees: &mut Trees<'_>,
    info: &BtrfsInfo,
    chunks: &mut [Chunk],
) -> Result<FreeSpaceSource, VolumeError> {
    if info.has_free_space_tree() {
        let (first, last) = (TreeKey::first_of(0), TreeKey::last_of(u64::MAX));
        let found = trees.visit(TreeId::FREE_SPACE, first, last, |item| {
            take(chunks, info.block_size, &item);
            Visit::Next
        })?;
        if found {
            chunks.iter_mut().for_each(spare_superblocks);
            return Ok(FreeSpaceSource::Tree);
        }
    }
    for chunk in chunks {
        read_gaps(trees, info, chunk)?;
        spare_superblocks(chunk);
    }
    Ok(FreeSpaceSource::Gaps)
}

/// Where superblocks lie nothing is allocated, though the tree calls it free.
fn spare_superblocks(chunk: &mut Chunk) {
    if chunk.superblocks.is_empty() {
        return;
    }
    let mut free: ExtentSet = chunk.free.iter().copied().collect();
    chunk.superblocks.iter().for_each(|extent| {
        free.remove(*extent);
    });
    chunk.free = free.iter().collect();
}

/// Takes an item of the free-space tree in.
fn take(chunks: &mut [Chunk], block_size: BlockSize, item: &TreeItem<'_>) {
    let (start, length) = (Address(item.key.object), item.key.offset);
    // What lies in no chunk is that of one that is gone by now.
    let Some(chunk) = chunk_index_at(chunks, start).and_then(|at| chunks.get_mut(at)) else { return };
    match item.key.kind {
        kind::FREE_EXTENT => add(chunk, block_size, start, Bytes(length)),
        kind::FREE_BITMAP => take_bitmap(chunk, block_size, start, length, item.bytes),
        _ => {}
    }
}

/// A bit for each block, set where it is free.
fn take_bitmap(chunk: &mut Chunk, block_size: BlockSize, start: Address, length: u64, bitmap: &[u8]) {
    let size = u64::from(block_size.bytes());
    let bits = usize::try_from(length / size).unwrap_or(usize::MAX).min(bitmap.len().saturating_mul(8));
    let mut at = 0;
    while at < bits {
        let free = bit(bitmap, at);
        let begin = at;
        while at < bits && bit(bitmap, at) == free {
            at += 1;
        }
        if free {
            let (from, length) = (start.plus(Bytes(begin as u64 * size)), Bytes((at - begin) as u64 * size));
            add(chunk, block_size, from, length);
        }
    }
}

/// Adds a free piece, which does not lie before those that the chunk has.
fn add(chunk: &mut Chunk, block_size: BlockSize, start: Address, length: Bytes) {
    let size = u64::from(block_size.bytes());
    let Some(from) = start.0.checked_sub(chunk.start.0) else { return };
    let to = from.saturating_add(length.0).min(chunk.length.0);
    let place = |inside: u64| PhysicalBlock(chunk.position.0 + inside / size);
    let piece = Extent::between(place(from.next_multiple_of(size)), place(to));
    match chunk.free.last_mut() {
        _ if piece.is_empty() => {}
        Some(last) if last.end() >= piece.start => *last = Extent::between(last.start, last.end().max(piece.end())),
        _ => chunk.free.push(piece),
    }
}

/// What lies between the extents of a chunk.
fn read_gaps(trees: &mut Trees<'_>, info: &BtrfsInfo, chunk: &mut Chunk) -> Result<(), VolumeError> {
    let mut at = chunk.start;
    let (first, last) = (TreeKey::first_of(chunk.start.0), TreeKey::last_of(chunk.end().0.saturating_sub(1)));
    let (block_size, node) = (info.block_size, info.node_bytes);
    trees.visit(TreeId::EXTENTS, first, last, |item| {
        let length = match item.key.kind {
            kind::EXTENT => Bytes(item.key.offset),
            kind::NODE => node,
            _ => return Visit::Next,
        };
        let start = Address(item.key.object);
        if start > at {
            add(chunk, block_size, at, Bytes(start.0 - at.0));
        }
        at = at.max(start.plus(length));
        Visit::Next
    })?;
    let rest = chunk.end().0.saturating_sub(at.0);
    add(chunk, block_size, at, Bytes(rest));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::{ChunkKind, Profile};
    use proptest::prelude::*;

    const START: u64 = 1 << 30;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    fn chunk(start: u64, blocks: u64, position: u64) -> Chunk {
        Chunk {
            start: Address(start),
            length: Bytes(blocks * 4096),
            kind: ChunkKind::Data,
            profile: Profile::Single,
            position: PhysicalBlock(position),
            copies: Vec::new(),
            superblocks: Vec::new(),
            used: Bytes(0),
            free: Vec::new(),
        }
    }

    fn taken(items: &[(u64, u8, u64, Vec<u8>)]) -> Vec<Chunk> {
        let mut chunks = vec![chunk(START, 1024, 300), chunk(START + (1024 << 12), 64, 9000)];
        for (object, kind, offset, bytes) in items {
            let key = TreeKey { object: *object, kind: *kind, offset: *offset };
            take(&mut chunks, block_size(), &TreeItem { key, bytes });
        }
        chunks
    }

    #[test]
    fn extents_and_bitmaps_are_places_on_the_device() {
        let at = |block: u64| START + (block << 12);
        let chunks = taken(&[
            (START, 198, 1024 << 12, vec![0; 8]),
            (at(4), 199, 8 << 12, vec![]),
            (at(16), 200, 24 << 12, vec![0b1111_0000, 0b0000_0011, 0b1000_0000]),
            (at(40), 200, 8 << 12, vec![0b0000_0001, 0xff]),
            (at(1024), 199, 64 << 12, vec![]),
        ]);
        let expected = [(304, 8), (320, 6), (339, 2)].map(|(start, length)| Extent::new(start, length));
        assert_eq!(chunks[0].free, expected, "a piece goes on from one bitmap into the next");
        assert_eq!(chunks[1].free, [Extent::new(9000, 64)]);
    }

    #[test]
    fn where_superblocks_lie_nothing_is_free() {
        let mut chunk = chunk(START, 4096, 14000);
        chunk.free = vec![chunk.extent(block_size())];
        chunk.superblocks = vec![Extent::new(16384, 16)];
        spare_superblocks(&mut chunk);
        assert_eq!(chunk.free, [Extent::new(14000, 2384), Extent::new(16400, 1696)]);
    }

    proptest! {
        #[test]
        fn no_items_make_free_space_where_no_chunk_is(
            items in prop::collection::vec(
                (START - 8192..START + (1200 << 12), 198u8..202, any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)),
                0..20,
            ),
        ) {
            let mut sorted = items;
            sorted.sort();
            for chunk in taken(&sorted) {
                let whole = chunk.extent(block_size());
                prop_assert!(chunk.free.iter().all(|piece| whole.contains(piece) && !piece.is_empty()));
                prop_assert!(chunk.free.windows(2).all(|pair| pair[0].end() < pair[1].start));
            }
        }
    }
}
