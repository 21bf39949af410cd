//! The planner's view of a volume.
//!
//! Owns the translation, and the list of tasks and chunks that are not tried again.

use super::tasks::{Prospect, Task, prospects};
use super::traits::{ChunkKey, DataChunk, Picture};
use longrun_layout::{Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex};
use longrun_planner::Mode;
use longrun_planner::chunks::{Area, AreaIndex, Chunk, ChunkIndex, ChunkMap, Portion, Unit};
use std::collections::BTreeMap;

/// Free pieces from this length on are what new places are made from.
const LONG_PIECE: Blocks = Blocks(256);
/// How often a unit is tried for which there was no place.
pub(super) const TRIES: u32 = 2;

/// What is known not to work.
#[derive(Debug, Default)]
pub(super) struct Experience {
    /// Chunks that could not be emptied, and what was in them then.
    pub(super) staying: BTreeMap<ChunkKey, Blocks>,
    /// What was there when the pass began, and has not been cleared since.
    old: Option<ExtentSet>,
    /// What was cleared for the free space's sake.
    tidied: ExtentSet,
    /// How often a file was left.
    pub(super) left: BTreeMap<FileId, u32>,
}

impl Experience {
    /// Notes what is there when nothing was done yet.
    pub(super) fn begin(&mut self, picture: &Picture) {
        self.old.get_or_insert_with(|| {
            let mut old: ExtentSet = picture.chunks.iter().map(|chunk| chunk.extent).collect();
            let free = picture.chunks.iter().flat_map(|chunk| &chunk.free);
            for piece in free.filter(|piece| piece.length >= LONG_PIECE) {
                old.remove(*piece);
            }
            old
        });
    }

    /// Forgets what was cleared.
    pub(super) fn begin_again(&mut self) {
        (self.old, self.tidied) = (None, ExtentSet::new());
    }

    /// Notes what was cleared, for files or for the free space alone.
    pub(super) fn cleared(&mut self, areas: &[Extent], for_files: bool) {
        if !for_files {
            self.tidied.extend(areas.iter().copied());
        }
        for area in areas {
            if let Some(old) = &mut self.old {
                old.remove(*area);
            }
        }
    }

    fn is_tidied(&self, area: Extent) -> bool {
        covers_most(&self.tidied, area)
    }

    /// Whether most of an area is as it was.
    fn is_old(&self, area: Extent) -> bool {
        self.old.as_ref().is_some_and(|old| covers_most(old, area))
    }

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

/// Whether at least half of `extent` is in `set`.
fn covers_most(set: &ExtentSet, extent: Extent) -> bool {
    let common = set.overlapping(extent).filter_map(|part| part.intersection(&extent));
    common.map(|part| part.length).sum::<Blocks>().0 * 2 >= extent.length.0
}

/// The planner's view, and the way back from it.
pub(super) struct Model {
    pub(super) map: ChunkMap,
    prospects: Vec<Prospect>,
    keys: Vec<ChunkKey>,
    areas: Vec<Extent>,
}

impl Model {
    /// The model of the volume in `picture`; only the units that `chosen` permits may be rewritten.
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
        let places = Areas::of(picture, experience);
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
            cleared_alone: CLEARED_ALONE.length(picture),
            units,
        };
        Self { map, prospects, keys: picture.chunks.iter().map(|chunk| chunk.key).collect(), areas: places.extents }
    }

    pub(super) fn prospect(&self, picture: &Picture, portion: &Portion) -> Option<Prospect> {
        let prospect = self.prospects.get(portion.unit.0 as usize)?;
        if portion.within.is_empty() {
            return Some(prospect.clone());
        }
        let areas: Vec<Extent> =
            portion.within.iter().filter_map(|area| self.areas.get(area.0 as usize)).copied().collect();
        prospect.within(picture, &areas)
    }

    /// The fragments less that a portion makes if it is all of a unit.
    pub(super) fn gain(&self, portion: &Portion) -> u64 {
        self.map.units.get(portion.unit.0 as usize).map_or(0, |unit| unit.excess)
    }

    pub(super) fn area(&self, index: AreaIndex) -> Option<Extent> {
        self.areas.get(index.0 as usize).copied()
    }

    pub(super) fn chunk(&self, index: ChunkIndex) -> Option<(ChunkKey, &Chunk)> {
        Some((*self.keys.get(index.0 as usize)?, self.map.chunks.get(index.0 as usize)?))
    }

    /// The fragmented units that may be rewritten.
    pub(super) fn wanted(&self) -> Blocks {
        self.map.units.iter().filter(|unit| unit.excess > 0).map(|unit| unit.written).sum()
    }

    /// The excess of all units that may be rewritten.
    pub(super) fn excess(&self) -> u64 {
        self.map.units.iter().map(|unit| unit.excess).sum()
    }
}

/// How long areas are.
struct AreaLengths {
    /// At least.
    least: Bytes,
    /// At most.
    most: Bytes,
    /// At most this part of what is free.
    to_room: u64,
}

impl AreaLengths {
    fn length(&self, picture: &Picture) -> Blocks {
        let size = picture.layout.block_size();
        let free: Blocks = picture.chunks.iter().flat_map(|chunk| &chunk.free).map(|piece| piece.length).sum();
        let part = (free + picture.unallocated).0 / self.to_room;
        Blocks(part.clamp(size.to_blocks(self.least).0, size.to_blocks(self.most).0))
    }
}

/// Each is cleared by itself; what lies in it has to find room elsewhere.
const CLEARED_ALONE: AreaLengths = AreaLengths { least: Bytes(4 << 20), most: Bytes(64 << 20), to_room: 8 };
/// Many are cleared at a time, and told apart by whose files they hold.
const TOLD_APART: AreaLengths = AreaLengths { least: Bytes(1 << 20), most: Bytes(64 << 20), to_room: 128 };

/// The areas of all chunks, ascending by place.
struct Areas {
    extents: Vec<Extent>,
    areas: Vec<Area>,
}

impl Areas {
    fn of(picture: &Picture, experience: &Experience) -> Self {
        let length = TOLD_APART.length(picture);
        let mut found: Vec<(Extent, Area)> = Vec::new();
        for (number, chunk) in (0..).map(ChunkIndex).zip(&picture.chunks) {
            let mut at = chunk.extent.start;
            while at < chunk.extent.end() {
                let end = (at + length).min(chunk.extent.end());
                let extent = Extent::between(at, end);
                let inside = chunk.free.iter().filter_map(|piece| piece.intersection(&extent)).map(|part| part.length);
                let used = extent.length.saturating_sub(inside.sum());
                let begin = chunk.free.iter().filter(|piece| extent.start <= piece.start && piece.start < end);
                let free = begin.map(|piece| piece.length).collect();
                found.push((
                    extent,
                    Area {
                        chunk: number,
                        old: experience.is_old(extent),
                        tidied: experience.is_tidied(extent),
                        length: extent.length,
                        used,
                        free,
                    },
                ));
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
