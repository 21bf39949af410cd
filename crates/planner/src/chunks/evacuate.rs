//! Which chunks are emptied by the volume itself.

use super::room::LEAST;
use super::{Chunk, ChunkIndex, ChunkLimits, ChunkMap};

/// Emptying a chunk is worth while when it makes room for this part of one.
const WORTH: u64 = 4;
/// This part of the free space elsewhere stays unused when a chunk's content goes there.
const FITS: u64 = 20;
/// With so many free pieces a chunk is as good as one that is emptied.
const FEW: usize = 2;

/// The chunk that makes most room for what it holds.
pub(super) fn for_room(map: &ChunkMap, limits: &ChunkLimits) -> Option<ChunkIndex> {
    let large = |chunk: &Chunk| chunk.free.iter().map(|piece| piece.0).filter(|piece| *piece >= LEAST).sum::<u64>();
    let small = |chunk: &Chunk| chunk.free_blocks().0 - large(chunk);
    let all_small: u64 = map.chunks.iter().map(small).sum();
    candidates(map, limits)
        .filter_map(|(index, chunk)| {
            // What does not go into small holes elsewhere takes room there.
            let taken = chunk.used().0.saturating_sub(all_small - small(chunk));
            let gain = chunk.length.0.saturating_sub(large(chunk)).saturating_sub(taken);
            let worth_it = gain * WORTH >= map.chunk_length.0;
            worth_it.then(|| ((u128::from(chunk.used().0) << 20) / u128::from(gain.max(1)), index))
        })
        .min()
        .map(|(_, index)| index)
}

/// The chunk with most free pieces for what it holds.
pub(super) fn consolidate(map: &ChunkMap, limits: &ChunkLimits) -> Option<ChunkIndex> {
    candidates(map, limits)
        .filter(|(_, chunk)| chunk.free.len() > FEW)
        .min_by_key(|(index, chunk)| {
            // Blocks to write for each piece that goes.
            (chunk.used().0 / (chunk.free.len() as u64 - 1).max(1), *index)
        })
        .map(|(index, _)| index)
}

/// Chunks whose content has place elsewhere.
fn candidates<'a>(map: &'a ChunkMap, limits: &'a ChunkLimits) -> impl Iterator<Item = (ChunkIndex, &'a Chunk)> {
    let free = map.free_blocks();
    map.chunks.iter().enumerate().map(|(number, chunk)| (ChunkIndex(number as u32), chunk)).filter(move |(_, chunk)| {
        let elsewhere = free.saturating_sub(chunk.free_blocks()).saturating_sub(limits.reserve_beside);
        // Not every hole is of a length that something has.
        let fits = chunk.used().0 <= elsewhere.0 / FITS * (FITS - 1);
        !chunk.stays && fits && limits.affords(chunk.used().0)
    })
}
