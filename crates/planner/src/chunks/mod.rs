//! Plans for volumes that cannot be told a place, but hand out their space in chunks that can be emptied.
//!
//! Owns what is gathered and which chunks are emptied, in stages: behind each the volume is read again, since where things
//! come to lie is its own decision. Never looks at addresses: a chunk is so long, so full, and free in such pieces.

mod choice;
mod evacuate;
mod model;
mod room;

pub use model::{Area, AreaIndex, Chunk, ChunkIndex, ChunkLimits, ChunkMap, Portion, Unit, UnitIndex};

use crate::Mode;
use choice::Aim;
use room::Room;

/// What is to be done until the volume is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Write these anew, each into one place, in this order. Then commit: what they left is free only then.
    Gather(Vec<Portion>),
    /// Have the volume move everything out of these chunks, in this order.
    Evacuate(Vec<ChunkIndex>),
}

/// So many free pieces to a chunk are as good as none, on the average.
const PIECES_ENOUGH: u64 = 2;
/// With less room for what is gathered than this part of a chunk, a chunk is emptied first, if one can be.
const SCANT: u64 = 3;

/// What to do next, or nothing when there is no gain left within the limits.
#[must_use]
pub fn next_stage(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    let wanted = choice::wanted(map, limits);
    match limits.mode {
        Mode::Files => choice::that_fit(map, limits, &wanted, Room::all(map, limits)).map(Stage::Gather),
        _ if !wanted.is_empty() => for_files(map, limits, &wanted),
        Mode::Full => for_space(map, limits),
        Mode::Efficient => None,
    }
}

/// Towards files in one piece.
fn for_files(map: &ChunkMap, limits: &ChunkLimits, wanted: &[UnitIndex]) -> Option<Stage> {
    let needed: u64 = wanted.iter().filter_map(|unit| map.unit(*unit)).map(|unit| unit.written.0).sum();
    let room = Room::large(map, limits);
    if room.total() < needed.min(map.chunk_length.0 / SCANT)
        && let Some(chunk) = evacuate::for_room(map, limits)
    {
        return Some(Stage::Evacuate(vec![chunk]));
    }
    let aim = if limits.mode == Mode::Efficient { Aim::Cheaply } else { Aim::Files };
    if let Some(portions) = choice::clearing_areas(map, limits, aim) {
        return Some(Stage::Gather(portions));
    }
    if room.total() < needed.min(map.free_blocks().0 / 2)
        && let Some(portions) = choice::clearing_areas(map, limits, Aim::Space)
    {
        return Some(Stage::Gather(portions));
    }
    let fitting = choice::that_fit(map, limits, wanted, room.half());
    fitting.or_else(|| choice::that_fit(map, limits, wanted, Room::all(map, limits))).map(Stage::Gather)
}

/// Towards free space in few pieces.
fn for_space(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    if map.free_pieces() <= PIECES_ENOUGH * map.chunks.len() as u64 {
        return None;
    }
    let evacuation = evacuate::consolidate(map, limits).map(|chunk| Stage::Evacuate(vec![chunk]));
    evacuation.or_else(|| choice::clearing_areas(map, limits, Aim::Space).map(Stage::Gather))
}
