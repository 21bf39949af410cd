//! Defragments files in two steps where there is not enough room to do it in one step, like a distribution sort.
//!
//! The files are divided into groups. In the first step areas are cleared, stretch by stretch, and their data is
//! rewritten group by group: afterwards each group is in few places, and the free space is in long pieces. In the
//! second step each group is rewritten as a whole. Owns the groups, the choice of the areas that are cleared next, and
//! their order. Keeps no state: the map shows which areas were cleared before.

use super::room::Room;
use super::{AreaIndex, ChunkLimits, ChunkMap, Portion, Stage, UnitIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The size of a group is this fraction of the free space.
const GROUPS_TO_ROOM: u64 = 2;
/// An area belongs to the group that has at least this fraction of its used blocks.
const MOSTLY: u64 = 2;
/// A unit is moved as a whole if at most this fraction of it is elsewhere.
const STRAY: u64 = 16;
/// Consecutive areas are cleared together, up to this fraction of the free space.
const STRETCH: u64 = 8;
/// A stretch is cleared if more than this fraction of its areas hold fragmented data.
const PART: usize = 4;
/// An area with at most this fraction of fragmented data is left as it is.
const LITTLE: u64 = 8;

/// The next portions to rewrite for contiguous files.
pub(super) fn next(map: &ChunkMap, limits: &ChunkLimits, room: &Room) -> Option<Stage> {
    let sorter = Sorter::new(map, limits);
    sorter.old_areas(room).or_else(|| sorter.groups_that_lie_together(room))
}

/// The kind of fragmented data in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Almost none.
    Settled,
    /// Mostly that of one group.
    Of(u64),
    /// That of many groups.
    Mixed,
}

struct Sorter<'a> {
    map: &'a ChunkMap,
    limits: &'a ChunkLimits,
    /// The group of each unit.
    group: Vec<u64>,
    /// The blocks of fragmented units, by area and group.
    held: Vec<BTreeMap<u64, u64>>,
    /// For each area the units that have blocks in it, and how many.
    tenants: Vec<Vec<(UnitIndex, u64)>>,
}

/// Portions that end up in one piece come first. Within both kinds the order is by group, then larger before smaller.
type Ordered = (bool, u64, Reverse<u64>, Portion);

/// The portions to write so that some areas become free.
struct Clearing {
    portions: Vec<Ordered>,
    written: u64,
    /// The blocks of these that were fragmented and are contiguous afterwards.
    gathered: u64,
}

impl<'a> Sorter<'a> {
    fn new(map: &'a ChunkMap, limits: &'a ChunkLimits) -> Self {
        let length = (map.free_blocks().0 / GROUPS_TO_ROOM).max(1);
        let mut sorter = Self {
            map,
            limits,
            group: Vec::with_capacity(map.units.len()),
            held: vec![BTreeMap::new(); map.areas.len()],
            tenants: map.tenants(),
        };
        let mut before = 0;
        for unit in &map.units {
            let group = before / length;
            before += unit.written.0;
            sorter.group.push(group);
            for (area, blocks) in unit.vacates.iter().filter(|_| unit.excess > 0) {
                if let Some(held) = sorter.held.get_mut(area.0 as usize) {
                    *held.entry(group).or_default() += blocks.0;
                }
            }
        }
        sorter
    }

    fn kind(&self, at: usize) -> Kind {
        let (Some(area), Some(held)) = (self.map.areas.get(at), self.held.get(at)) else { return Kind::Settled };
        if held.values().sum::<u64>() * LITTLE <= area.length.0 {
            return Kind::Settled;
        }
        match held.iter().max_by_key(|(group, blocks)| (**blocks, Reverse(**group))) {
            Some((group, blocks)) if blocks * MOSTLY >= area.used.0 => Kind::Of(*group),
            _ => Kind::Mixed,
        }
    }

    /// All data in `areas`. Units that are mostly there are taken as a whole.
    fn clearing(&self, areas: &BTreeSet<AreaIndex>, groups: &BTreeSet<u64>) -> Clearing {
        let mut clearing = Clearing { portions: Vec::new(), written: 0, gathered: 0 };
        let mut seen = BTreeSet::new();
        let tenants = areas.iter().filter_map(|area| self.tenants.get(area.0 as usize)).flatten();
        for index in tenants.map(|(index, _)| *index) {
            let Some(unit) = self.map.unit(index).filter(|_| seen.insert(index)) else { continue };
            let inside = unit.vacates.iter().filter(|(area, _)| areas.contains(area));
            let here: u64 = inside.clone().map(|(_, blocks)| blocks.0).sum();
            let group = self.group.get(index.0 as usize).copied().unwrap_or_default();
            let strays = unit.written.0.saturating_sub(here);
            let whole = !unit.divisible || unit.excess == 0 || groups.contains(&group);
            if whole || strays * STRAY <= unit.written.0 {
                clearing.written += unit.written.0;
                clearing.gathered += if unit.excess > 0 { unit.written.0 } else { 0 };
                clearing.portions.push((false, group, Reverse(unit.written.0), Portion::whole(index)));
            } else {
                clearing.written += here;
                let within = inside.map(|(area, _)| *area).collect();
                clearing.portions.push((true, group, Reverse(here), Portion { unit: index, within }));
            }
        }
        clearing
    }

    /// The areas of some groups, with all units of these groups: those with the most data made contiguous per block
    /// written.
    fn groups_that_lie_together(&self, room: &Room) -> Option<Stage> {
        let mut own: BTreeMap<u64, BTreeSet<AreaIndex>> = BTreeMap::new();
        for at in 0..self.map.areas.len() {
            if let Kind::Of(group) = self.kind(at) {
                own.entry(group).or_default().insert(AreaIndex(at as u32));
            }
        }
        let mut groups: Vec<(Reverse<u64>, u64, BTreeSet<AreaIndex>)> = own
            .into_iter()
            .map(|(group, areas)| {
                let alone = self.clearing(&areas, &[group].into());
                (Reverse((alone.gathered << 10) / alone.written.max(1)), group, areas)
            })
            .collect();
        groups.sort_unstable();
        let mut chosen: BTreeSet<AreaIndex> = BTreeSet::new();
        let mut named: BTreeSet<u64> = BTreeSet::new();
        let mut best = None;
        for (_, group, areas) in groups {
            let with: BTreeSet<AreaIndex> = chosen.union(&areas).copied().collect();
            named.insert(group);
            match self.cleared(&with, &named, room) {
                Some(stage) => (chosen, best) = (with, Some(stage)),
                None => _ = named.remove(&group),
            }
        }
        best
    }

    /// Areas whose data is unchanged since the beginning of the pass, emptiest stretches first.
    fn old_areas(&self, room: &Room) -> Option<Stage> {
        let mut order: Vec<(u64, usize)> = Vec::new();
        let longest = self.map.areas.iter().map(|area| area.length.0).max().unwrap_or(1);
        let count = ((self.map.free_blocks().0 / STRETCH / longest.max(1)) as usize).max(1);
        for (number, stretch) in self.map.areas.chunks(count).enumerate() {
            let used: u64 = stretch.iter().map(|area| area.used.0).sum();
            let all: u64 = stretch.iter().map(|area| area.length.0).sum();
            let first = number * count;
            // What is left as it is between them would break the room up.
            let old: Vec<usize> = (first..).zip(stretch).filter(|(_, area)| area.old).map(|(at, _)| at).collect();
            let in_pieces = old.iter().filter(|at| self.kind(**at) != Kind::Settled).count();
            if in_pieces * PART > old.len() {
                order.extend(old.into_iter().map(|at| ((used << 10) / all.max(1), at)));
            }
        }
        order.sort_unstable();
        // The longest start of it for which there is room: what is moved as a whole makes it more than the areas hold.
        let first = |count: usize| order.iter().take(count).map(|(_, at)| AreaIndex(*at as u32)).collect();
        let (mut some, mut too_many, mut best) = (0, order.len() + 1, None);
        while some + 1 < too_many {
            let count = usize::midpoint(some, too_many);
            match self.cleared(&first(count), &BTreeSet::new(), room) {
                Some(stage) => (some, best) = (count, Some(stage)),
                None => too_many = count,
            }
        }
        best
    }

    /// The stage that clears `areas`, if there is room for all of their data: data that stayed would divide the free
    /// space.
    fn cleared(&self, areas: &BTreeSet<AreaIndex>, groups: &BTreeSet<u64>, room: &Room) -> Option<Stage> {
        let mut room = room.clone();
        areas.iter().for_each(|area| room.close(self.map, *area));
        let mut clearing = self.clearing(areas, groups);
        clearing.portions.sort_unstable();
        let fits = self.limits.affords(clearing.written)
            && !clearing.portions.is_empty()
            && clearing.portions.iter().all(|(_, _, length, _)| room.take(length.0));
        let portions = clearing.portions.into_iter().map(|(_, _, _, portion)| portion).collect();
        fits.then(|| Stage::Gather { portions, clears: areas.iter().copied().collect(), promises: 0 })
    }
}
