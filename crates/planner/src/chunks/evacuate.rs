//! Chooses the chunks that the volume itself empties.

use super::room::LEAST;
use super::{Chunk, ChunkIndex, ChunkLimits, ChunkMap};

/// Emptying a chunk is worthwhile if it makes room of at least this fraction of a chunk.
const WORTH: u64 = 4;
/// This fraction of the free space elsewhere stays unused when the content of a chunk moves there.
const FITS: u64 = 20;
/// A chunk with this many free pieces counts as emptied.
const FEW: usize = 2;

/// The permitted cost of emptying a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Price {
    /// Any cost.
    Any,
    /// At most as many blocks written as room made.
    NoMoreThanItMakes,
}

/// The chunk that makes the most room per used block.
pub(super) fn for_room(map: &ChunkMap, limits: &ChunkLimits, price: Price) -> Option<ChunkIndex> {
    let large = |chunk: &Chunk| chunk.free.iter().map(|piece| piece.0).filter(|piece| *piece >= LEAST).sum::<u64>();
    let small = |chunk: &Chunk| chunk.free_blocks().0 - large(chunk);
    let all_small: u64 = map.chunks.iter().map(small).sum();
    candidates(map, limits)
        .filter_map(|(index, chunk)| {
            // What does not go into small holes elsewhere takes room there.
            let taken = chunk.used().0.saturating_sub(all_small - small(chunk));
            let gain = chunk.length.0.saturating_sub(large(chunk)).saturating_sub(taken);
            let worth_it = gain * WORTH >= map.chunk_length.0 && (price == Price::Any || chunk.used().0 <= gain);
            worth_it.then(|| ((u128::from(chunk.used().0) << 20) / u128::from(gain.max(1)), index))
        })
        .min()
        .map(|(_, index)| index)
}

/// The chunk with the most free pieces per used block, if each removed piece costs at most `price`, and the number
/// of removed pieces.
pub(super) fn consolidate(map: &ChunkMap, limits: &ChunkLimits, price: u64) -> Option<(ChunkIndex, u64)> {
    in_pieces(map, limits, price)
        .min_by_key(|(index, chunk)| (chunk.used().0 / pieces_less(chunk), *index))
        .map(|(index, chunk)| (index, pieces_less(chunk)))
}

/// The same among the chunks that are mostly free. They are emptied as a whole, because data moved out of them file
/// by file could come back.
pub(super) fn sparse(map: &ChunkMap, limits: &ChunkLimits, price: u64) -> Option<(ChunkIndex, u64)> {
    in_pieces(map, limits, price)
        .filter(|(_, chunk)| chunk.used().0 * 2 <= chunk.length.0)
        .min_by_key(|(index, chunk)| (chunk.used(), *index))
        .map(|(index, chunk)| (index, pieces_less(chunk)))
}

fn in_pieces<'a>(
    map: &'a ChunkMap,
    limits: &'a ChunkLimits,
    price: u64,
) -> impl Iterator<Item = (ChunkIndex, &'a Chunk)> {
    candidates(map, limits)
        .filter(move |(_, chunk)| chunk.free.len() > FEW && chunk.used().0 <= pieces_less(chunk) * price)
}

fn pieces_less(chunk: &Chunk) -> u64 {
    (chunk.free.len() as u64).saturating_sub(1).max(1)
}

/// Chunks whose content fits elsewhere.
fn candidates<'a>(map: &'a ChunkMap, limits: &'a ChunkLimits) -> impl Iterator<Item = (ChunkIndex, &'a Chunk)> {
    let free = map.free_blocks();
    map.chunks.iter().enumerate().map(|(number, chunk)| (ChunkIndex(number as u32), chunk)).filter(move |(_, chunk)| {
        let elsewhere = free.saturating_sub(chunk.free_blocks()).saturating_sub(limits.reserve_beside);
        // Not every hole is of a length that something has.
        let fits = chunk.used().0 <= elsewhere.0 / FITS * (FITS - 1);
        !chunk.stays && fits && limits.affords(chunk.used().0)
    })
}
