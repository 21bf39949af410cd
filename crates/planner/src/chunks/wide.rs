//! Combines neighbouring areas into longer ones, for clearing areas regardless of which files they hold.
//!
//! Owns the combination and its reverse. Never combines areas of two chunks.

use super::{Area, AreaIndex, ChunkMap, Portion};
use longrun_layout::Blocks;
use std::collections::BTreeMap;
use std::ops::Range;

/// A map with longer areas, and which areas of the other each is.
pub(super) struct Wide {
    pub(super) map: ChunkMap,
    parts: Vec<Range<u32>>,
}

impl Wide {
    /// The areas of `map` put together up to the length that is cleared alone.
    pub(super) fn of(map: &ChunkMap) -> Self {
        let mut areas: Vec<Area> = Vec::new();
        let mut parts: Vec<Range<u32>> = Vec::new();
        // Which of the longer ones each area is in.
        let mut within: Vec<AreaIndex> = Vec::with_capacity(map.areas.len());
        for (number, area) in (0..).zip(&map.areas) {
            let fits = |last: &Area| last.chunk == area.chunk && last.length + area.length <= map.cleared_alone;
            match areas.last_mut().zip(parts.last_mut()).filter(|(last, _)| fits(last)) {
                Some((last, part)) => {
                    last.length += area.length;
                    last.used += area.used;
                    last.free.extend(&area.free);
                    part.end = number + 1;
                }
                None => {
                    areas.push(area.clone());
                    parts.push(number..number + 1);
                }
            }
            within.push(AreaIndex(areas.len() as u32 - 1));
        }
        let mut map = ChunkMap { areas, ..map.clone() };
        for unit in &mut map.units {
            let mut vacates: BTreeMap<AreaIndex, Blocks> = BTreeMap::new();
            for (area, blocks) in &unit.vacates {
                if let Some(area) = within.get(area.0 as usize) {
                    *vacates.entry(*area).or_default() += *blocks;
                }
            }
            unit.vacates = vacates.into_iter().collect();
        }
        Self { map, parts }
    }

    /// The same portion in the areas of the map that this was made of.
    pub(super) fn apart(&self, portion: Portion) -> Portion {
        let parts = portion.within.iter().filter_map(|area| self.parts.get(area.0 as usize)).cloned();
        Portion { within: parts.flatten().map(AreaIndex).collect(), ..portion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::{ChunkIndex, Unit, UnitIndex};

    fn area(chunk: u32, length: u64, used: u64) -> Area {
        let free = vec![Blocks(length - used)];
        Area { chunk: ChunkIndex(chunk), old: true, tidied: false, length: Blocks(length), used: Blocks(used), free }
    }

    #[test]
    fn neighbours_are_put_together_up_to_a_length_and_never_over_the_end_of_a_chunk() {
        let unit = Unit {
            excess: 3,
            written: Blocks(60),
            vacates: [(0, 10), (2, 20), (3, 25), (4, 5)].map(|(at, blocks)| (AreaIndex(at), Blocks(blocks))).to_vec(),
            divisible: true,
        };
        let map = ChunkMap {
            chunks: Vec::new(),
            areas: vec![area(0, 40, 30), area(0, 40, 20), area(0, 40, 35), area(0, 15, 10), area(1, 40, 5)],
            unallocated: Blocks(0),
            chunk_length: Blocks(135),
            cleared_alone: Blocks(90),
            units: vec![unit],
        };
        let wide = Wide::of(&map);
        let lengths: Vec<(u64, u64, usize)> =
            wide.map.areas.iter().map(|area| (area.length.0, area.used.0, area.free.len())).collect();
        assert_eq!(lengths, [(80, 50, 2), (55, 45, 2), (40, 5, 1)]);
        let held: Vec<(u32, u64)> = wide.map.units[0].vacates.iter().map(|(area, blocks)| (area.0, blocks.0)).collect();
        assert_eq!(held, [(0, 10), (1, 45), (2, 5)]);
        let apart = |within: &[u32]| {
            let within = within.iter().copied().map(AreaIndex).collect();
            wide.apart(Portion { unit: UnitIndex(0), within }).within.iter().map(|area| area.0).collect::<Vec<u32>>()
        };
        assert_eq!(apart(&[1, 2]), [2, 3, 4]);
        assert!(apart(&[]).is_empty(), "all of it stays all of it");
    }
}
