//! Plans for volumes that cannot be told a place, but hand out their space in chunks that can be emptied.
//!
//! Owns what is gathered and which chunks are emptied, in stages: behind each the volume is read again, since where things
//! come to lie is its own decision. Never looks at addresses: a chunk is so long, so full, and free in such pieces.

mod choice;
mod evacuate;
mod model;
mod room;
mod sorting;
mod wide;
mod windows;

pub use model::{Area, AreaIndex, Chunk, ChunkIndex, ChunkLimits, ChunkMap, Gathering, Portion, Unit, UnitIndex};

use crate::Mode;
use choice::Aim;
use longrun_layout::Blocks;
use room::Room;

/// What is to be done until the volume is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Write some anew, each into one place. Then commit: what they left is free only then.
    Gather {
        /// What, and in which order.
        portions: Vec<Portion>,
        /// What is cleared by it of all that could be moved.
        clears: Vec<AreaIndex>,
        /// So many free pieces less are what it is done for; none when it is done for files.
        promises: u64,
    },
    /// Have the volume move everything out of a chunk.
    Evacuate {
        /// Which.
        chunk: ChunkIndex,
        /// As with the other.
        promises: u64,
    },
}

/// So many free pieces to a chunk are as good as none, on the average.
const PIECES_ENOUGH: u64 = 2;
/// With fewer quarters of the free space in long pieces, a chunk is emptied first, where that makes as much room as it costs.
const LONG_QUARTERS: u64 = 3;
/// For each free piece that goes, this part of the free space is written at most.
const WORTH: u64 = 64;
/// What is done for the free space first in a pass writes at most this part of the used bytes, and goes on only if that paid.
const TRIAL: u64 = 100;
/// With less room for what is gathered than this part of a chunk, a chunk is emptied first, if one can be.
const SCANT: u64 = 3;

/// What to do next, or nothing when there is no gain left within the limits.
#[must_use]
pub fn next_stage(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    let of_files = limits.at_most(limits.for_files);
    let wanted = choice::wanted(map, &of_files);
    let for_files = match limits.mode {
        _ if wanted.is_empty() => None,
        Mode::Files => choice::that_fit(map, &of_files, &wanted, Room::all(map, &of_files)).map(gather),
        Mode::Full | Mode::Efficient => for_files(map, &of_files, &wanted),
    };
    for_files.or_else(|| if limits.mode == Mode::Full { for_space(map, limits) } else { None })
}

fn gather(portions: Vec<Portion>) -> Stage {
    Stage::Gather { portions, clears: Vec::new(), promises: 0 }
}

fn evacuate_for_files(chunk: ChunkIndex) -> Stage {
    Stage::Evacuate { chunk, promises: 0 }
}

/// Towards files in one piece.
fn for_files(map: &ChunkMap, limits: &ChunkLimits, wanted: &[UnitIndex]) -> Option<Stage> {
    let needed: u64 = wanted.iter().filter_map(|unit| map.unit(*unit)).map(|unit| unit.written.0).sum();
    let room = Room::large(map, limits);
    if room.total() < needed.min(map.chunk_length.0 / SCANT)
        && let Some(chunk) = evacuate::for_room(map, limits, evacuate::Price::Any)
    {
        return Some(evacuate_for_files(chunk));
    }
    if limits.mode == Mode::Full
        && let Some(stage) = in_two_steps(map, limits, wanted, &room, needed)
    {
        return Some(stage);
    }
    let aim = if limits.mode == Mode::Efficient { Aim::Cheaply } else { Aim::Files };
    if let Some(portions) = choice::clearing_areas(map, limits, aim) {
        return Some(gather(portions));
    }
    if room.total() < needed.min(map.free_blocks().0 / 2)
        && let Some(portions) = choice::clearing_areas(map, limits, Aim::Space)
    {
        return Some(gather(portions));
    }
    let fitting = choice::that_fit(map, limits, wanted, room.half());
    fitting.or_else(|| choice::that_fit(map, limits, wanted, Room::all(map, limits))).map(gather)
}

/// All that is wanted at once where there is room for it; in two steps otherwise.
fn in_two_steps(map: &ChunkMap, limits: &ChunkLimits, wanted: &[UnitIndex], room: &Room, needed: u64) -> Option<Stage> {
    if needed <= room.total()
        && let Some(portions) = choice::that_fit(map, limits, wanted, room.clone())
    {
        return Some(gather(portions));
    }
    if !limits.has_just_emptied
        && room.total() * 4 < map.free_blocks().0 * LONG_QUARTERS
        && let Some(chunk) = evacuate::for_room(map, limits, evacuate::Price::NoMoreThanItMakes)
    {
        return Some(evacuate_for_files(chunk));
    }
    sorting::next(map, limits, room)
}

/// Towards free space in few pieces: only what pays, and has paid so far.
fn for_space(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    if map.free_pieces() <= PIECES_ENOUGH * map.chunks.len() as u64 || limits.space == Gathering::Disappoints {
        return None;
    }
    let limits = match limits.space {
        Gathering::Pays => *limits,
        Gathering::OnTrial | Gathering::Disappoints => limits.at_most(Blocks(map.used().0 / TRIAL)),
    };
    let price = map.free_blocks().0 / WORTH;
    let stage = |(chunk, promises)| Stage::Evacuate { chunk, promises };
    evacuate::sparse(map, &limits, price)
        .map(stage)
        .or_else(|| windows::densest(map, &limits, &Room::large(map, &limits), price))
        .or_else(|| evacuate::consolidate(map, &limits, price).map(stage))
}
