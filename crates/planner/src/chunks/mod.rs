//! Plans for volumes on which places cannot be chosen, but whose space is allocated in chunks that can be emptied.
//!
//! Owns the choice of the files to rewrite and of the chunks to empty, in stages. After each stage the volume is read
//! again, because the file system chooses the places itself. Never uses addresses: a chunk has a length, a usage, and
//! free pieces of certain lengths.

mod choice;
mod evacuate;
mod model;
mod room;
mod sorting;
mod wide;
mod windows;

pub use model::{Area, AreaIndex, Chunk, ChunkIndex, ChunkLimits, ChunkMap, Consolidation, Portion, Unit, UnitIndex};

use crate::Mode;
use choice::Aim;
use longrun_layout::Blocks;
use room::Room;

/// The work until the volume is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Rewrite portions, each into one place, then commit. The space that they leave is free only after the commit.
    Gather {
        /// The portions to rewrite, in order.
        portions: Vec<Portion>,
        /// The areas from which this removes all movable data.
        clears: Vec<AreaIndex>,
        /// The expected decrease of free pieces; 0 if the stage is done for files.
        promises: u64,
    },
    /// Let the volume move all data out of a chunk.
    Evacuate {
        /// The chunk.
        chunk: ChunkIndex,
        /// As for the other variant.
        promises: u64,
    },
}

/// An average of this many free pieces per chunk is good enough.
const PIECES_ENOUGH: u64 = 2;
/// If fewer quarters of the free space than this are in long pieces, a chunk is emptied first, provided that this
/// makes at least as much room as it costs.
const LONG_QUARTERS: u64 = 3;
/// At most this fraction of the free space is written per free piece removed.
const WORTH: u64 = 64;
/// The first work for the free space in a pass writes at most this fraction of the used bytes, and continues only if
/// that paid off.
const TRIAL: u64 = 100;
/// If the room for gathered data is less than this fraction of a chunk, a chunk is emptied first, if possible.
const SCANT: u64 = 3;
/// Where this part of the data's space is free, the first long piece is worth its writing.
const ROOM_TO_BEGIN: u64 = 20;

/// The next stage, or `None` if nothing more can be gained within the limits.
#[must_use]
pub fn next_stage(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    let of_files = limits.at_most(limits.for_files);
    let wanted = choice::wanted(map, &of_files);
    let for_files = match limits.mode {
        _ if wanted.is_empty() => None,
        Mode::Files => {
            let room = Room::all(map, &of_files);
            let all = if limits.into_pieces { room.total() } else { 0 };
            choice::that_fit(map, &of_files, &wanted, room)
                .or_else(|| choice::affordable(map, &of_files, &wanted, choice::up_to(all)))
                .map(gather)
        }
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

/// The next stage that defragments files.
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
    if let Some(portions) = choice::clearing_areas(map, limits, aim, room.clone()) {
        return Some(gather(portions));
    }
    if room.total() < needed.min(map.free_blocks().0 / 2)
        && let Some(portions) =
            choice::clearing_areas(map, limits, Aim::Space, room.clone()).or_else(|| first_long_piece(map, limits))
    {
        return Some(gather(portions));
    }
    let fitting = choice::that_fit(map, limits, wanted, room.half());
    fitting
        .or_else(|| choice::that_fit(map, limits, wanted, Room::all(map, limits)))
        .or_else(|| choice::in_fewer_pieces(map, limits, wanted, Room::all(map, limits).half()))
        .map(gather)
}

/// Where no free piece is long, sorting cannot begin: what lies in some areas goes into the short pieces, so that there is one. With 5
/// to 6 % free, most volumes on which nothing began had a seventh to a third of their excess left after that; with 2 to 3 %, all of it.
fn first_long_piece(map: &ChunkMap, limits: &ChunkLimits) -> Option<Vec<Portion>> {
    let free = map.free_blocks();
    let has_room = free.0 * ROOM_TO_BEGIN >= (map.used() + free).0;
    (limits.mode == Mode::Full && limits.makes_room && has_room)
        .then(|| choice::clearing_areas(map, limits, Aim::Space, Room::all(map, limits)))
        .flatten()
}

/// Rewrites all wanted units at once if there is enough room, otherwise in two steps.
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

/// The next stage that consolidates free space. It does only work that pays off, and stops when earlier work did not.
fn for_space(map: &ChunkMap, limits: &ChunkLimits) -> Option<Stage> {
    if map.free_pieces() <= PIECES_ENOUGH * map.chunks.len() as u64 || limits.space == Consolidation::Disappoints {
        return None;
    }
    let limits = match limits.space {
        Consolidation::Pays => *limits,
        Consolidation::OnTrial | Consolidation::Disappoints => limits.at_most(Blocks(map.used().0 / TRIAL)),
    };
    let price = map.free_blocks().0 / WORTH;
    let stage = |(chunk, promises)| Stage::Evacuate { chunk, promises };
    evacuate::sparse(map, &limits, price)
        .map(stage)
        .or_else(|| windows::densest(map, &limits, &Room::large(map, &limits), price))
        .or_else(|| evacuate::consolidate(map, &limits, price).map(stage))
}
