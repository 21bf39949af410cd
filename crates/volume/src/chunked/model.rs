//! What the planner is told of a volume.
//!
//! Owns the translation, and which tasks and chunks are not tried again.

use super::tasks::{Prospect, Task, prospects};
use super::traits::{ChunkKey, DataChunk, Picture};
use longrun_layout::{Blocks, Bytes, Extent, FileId, FileIndex};
use longrun_planner::Mode;
use longrun_planner::chunks::{Area, AreaIndex, Chunk, ChunkIndex, ChunkMap, Portion, Unit};
use std::collections::BTreeMap;

/// How often a unit is tried for which there was no place.
pub(super) const TRIES: u32 = 2;

/// What is known not to work.
#[derive(Debug, Default)]
pub(super) struct Experience {
    /// Chunks that could not be emptied, and what was in them then.
    pub(super) staying: BTreeMap<ChunkKey, Blocks>,
    /// How often a file was left.
    pub(super) left: BTreeMap<FileId, u32>,
}

impl Experience {
    /// Whether a chunk that could not be emptied still holds about as much.
    fn keeps(&self, chunk: &DataChunk) -> bool {
        let free: Blocks = chunk.free.iter().map(|piece| piece.length).sum();
        let used = chunk.extent.length.saturating_sub(free);
        self.staying.get(&chunk.key).is_some_and(|then| used.0 * 4 > then.0 * 3)
    }

    fn rules_out(&self, picture: &Picture, task: &Task) -> bool {
        let first = task.members.first().and_then(|file| picture.layout.file(*file));
        first.is_some_and(|file| self.left.get(&file.id()).is_some_and(|tries| *tries >= TRIES))
    }
}

/// The planner's view, and the way back from it.
pub(super) struct Model {
    pub(super) map: ChunkMap,
    prospects: Vec<Prospect>,
    keys: Vec<ChunkKey>,
    areas: Vec<Extent>,
}

impl Model {
    /// Of a volume as `picture` tells; only what `chosen` says is written anew.
    pub(super) fn of(
        picture: &Picture,
        mode: Mode,
        experience: &Experience,
        chosen: impl Fn(FileIndex) -> bool,
    ) -> Self {
        let mut prospects = prospects(picture, mode);
        prospects.retain(|prospect| {
            prospect.task.members.iter().any(|file| chosen(*file)) && !experience.rules_out(picture, &prospect.task)
        });
        let places = Areas::of(picture);
        let units = prospects
            .iter()
            .map(|prospect| Unit {
                excess: prospect.excess,
                written: prospect.written,
                vacates: places.held_by(&prospect.vacated),
                divisible: prospect.divisible,
            })
            .collect();
        let chunks = picture.chunks.iter().map(|chunk| Chunk {
            length: chunk.extent.length,
            free: chunk.free.iter().map(|piece| piece.length).collect(),
            stays: experience.keeps(chunk),
        });
        let map = ChunkMap {
            chunks: chunks.collect(),
            areas: places.areas,
            unallocated: picture.unallocated,
            chunk_length: picture.chunk_length,
            units,
        };
        Self { map, prospects, keys: picture.chunks.iter().map(|chunk| chunk.key).collect(), areas: places.extents }
    }

    pub(super) fn prospect(&self, picture: &Picture, portion: Portion) -> Option<Prospect> {
        let prospect = self.prospects.get(portion.unit.0 as usize)?;
        match portion.within {
            None => Some(prospect.clone()),
            Some(area) => prospect.within(picture, *self.areas.get(area.0 as usize)?),
        }
    }

    pub(super) fn chunk(&self, index: ChunkIndex) -> Option<(ChunkKey, &Chunk)> {
        Some((*self.keys.get(index.0 as usize)?, self.map.chunks.get(index.0 as usize)?))
    }

    /// The excess of all that may be written anew.
    pub(super) fn excess(&self) -> u64 {
        self.map.units.iter().map(|unit| unit.excess).sum()
    }
}

/// Areas are at least so long, and at most.
const SHORTEST_AREA: Bytes = Bytes(4 << 20);
const LONGEST_AREA: Bytes = Bytes(64 << 20);
/// An area is at most this part of what is free, so that what lies in it finds room elsewhere.
const AREAS_TO_ROOM: u64 = 8;

/// The areas of all chunks, ascending by place.
struct Areas {
    extents: Vec<Extent>,
    areas: Vec<Area>,
}

impl Areas {
    fn of(picture: &Picture) -> Self {
        let size = picture.layout.block_size();
        let free: Blocks = picture.chunks.iter().flat_map(|chunk| &chunk.free).map(|piece| piece.length).sum();
        let part = (free + picture.unallocated).0 / AREAS_TO_ROOM;
        let length = Blocks(part.clamp(size.to_blocks(SHORTEST_AREA).0, size.to_blocks(LONGEST_AREA).0));
        let mut found: Vec<(Extent, Area)> = Vec::new();
        for chunk in &picture.chunks {
            let mut at = chunk.extent.start;
            while at < chunk.extent.end() {
                let end = (at + length).min(chunk.extent.end());
                let extent = Extent::between(at, end);
                let inside = chunk.free.iter().filter_map(|piece| piece.intersection(&extent)).map(|part| part.length);
                let used = extent.length.saturating_sub(inside.sum());
                let begin = chunk.free.iter().filter(|piece| extent.start <= piece.start && piece.start < end);
                let free = begin.map(|piece| piece.length).collect();
                found.push((extent, Area { length: extent.length, used, free }));
                at = end;
            }
        }
        found.sort_unstable_by_key(|(extent, _)| *extent);
        let (extents, areas) = found.into_iter().unzip();
        Self { extents, areas }
    }

    fn held_by(&self, vacated: &[Extent]) -> Vec<(AreaIndex, Blocks)> {
        let mut found: BTreeMap<AreaIndex, Blocks> = BTreeMap::new();
        for extent in vacated {
            let first = self.extents.partition_point(|area| area.end() <= extent.start);
            for (number, area) in self.extents.iter().enumerate().skip(first) {
                let Some(common) = area.intersection(extent) else { break };
                *found.entry(AreaIndex(number as u32)).or_default() += common.length;
            }
        }
        found.into_iter().collect()
    }
}
