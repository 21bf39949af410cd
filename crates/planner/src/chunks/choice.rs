//! Chooses the units to rewrite: those that gain most, in sets that free whole areas in one piece.

use super::room::Room;
use super::wide::Wide;
use super::{AreaIndex, ChunkLimits, ChunkMap, Portion, Unit, UnitIndex};
use crate::Mode;

/// A unit with less than this fraction of its blocks in an area is mostly elsewhere.
const MOSTLY: u64 = 2;
/// Where there is no room in one piece, so many times fewer than the excess fragments are worth the writing.
const FAR_FEWER: u64 = 4;

/// The units to rewrite, the best ratio of gain to cost first. In efficient mode only as many as the goal requires.
pub(super) fn wanted(map: &ChunkMap, limits: &ChunkLimits) -> Vec<UnitIndex> {
    let mut units: Vec<(UnitIndex, u64, u64)> = map
        .units
        .iter()
        .enumerate()
        .filter(|(_, unit)| unit.excess > 0 && unit.written.0 > 0 && limits.affords(unit.written.0))
        .map(|(number, unit)| (UnitIndex(number as u32), unit.excess, unit.written.0))
        .collect();
    let all: u64 = units.iter().map(|(_, excess, _)| excess).sum();
    // a/b > c/d without fractions.
    units.sort_unstable_by(|(i, a, b), (j, c, d)| {
        let (left, right) = (u128::from(*a) * u128::from(*d), u128::from(*c) * u128::from(*b));
        right.cmp(&left).then(i.cmp(j))
    });
    let mut left = all;
    units
        .into_iter()
        .take_while(|(_, excess, _)| {
            let go_on = limits.mode != Mode::Efficient || left > limits.goal;
            left -= excess;
            go_on
        })
        .map(|(index, _, _)| index)
        .collect()
}

/// The units of `wanted` that fit into `room` now.
pub(super) fn that_fit(
    map: &ChunkMap,
    limits: &ChunkLimits,
    wanted: &[UnitIndex],
    mut room: Room,
) -> Option<Vec<Portion>> {
    affordable(map, limits, wanted, |unit| room.take(unit.written.0))
}

/// The units of `wanted` that the limits permit, and `takes`.
pub(super) fn affordable(
    map: &ChunkMap,
    limits: &ChunkLimits,
    wanted: &[UnitIndex],
    mut takes: impl FnMut(&Unit) -> bool,
) -> Option<Vec<Portion>> {
    let mut spent = 0;
    let mut chosen = Vec::new();
    for index in wanted {
        let Some(unit) = map.unit(*index) else { continue };
        if limits.affords(spent + unit.written.0) && takes(unit) {
            spent += unit.written.0;
            chosen.push(Portion::whole(*index));
        }
    }
    (!chosen.is_empty()).then_some(chosen)
}

/// The units of `wanted` for which there is room in far fewer pieces than they have now. What is written that way does not qualify
/// again.
pub(super) fn in_fewer_pieces(
    map: &ChunkMap,
    limits: &ChunkLimits,
    wanted: &[UnitIndex],
    mut room: Room,
) -> Option<Vec<Portion>> {
    affordable(map, limits, wanted, |unit| room.take_in_pieces(unit.written.0, unit.excess / FAR_FEWER))
}

/// Takes lengths up to `all` together.
pub(super) fn up_to(all: u64) -> impl FnMut(&Unit) -> bool {
    let mut left = all;
    move |unit| {
        let takes = unit.written.0 <= left;
        left -= if takes { unit.written.0 } else { 0 };
        takes
    }
}

/// All data of some areas, with or without excess, so that these areas become free in one piece. The areas that cost
/// least are chosen first, as far as there is room. Of units that are mostly elsewhere only the part in these areas
/// is moved, because whole units would take more room than it makes.
pub(super) fn clearing_areas(map: &ChunkMap, limits: &ChunkLimits, aim: Aim, room: Room) -> Option<Vec<Portion>> {
    let wide = Wide::of(map);
    let mut sweep = Sweep::new(&wide.map, limits, aim, room);
    let mut chosen = Vec::new();
    while sweep.left > limits.goal || aim != Aim::Cheaply {
        let Some(area) = sweep.cheapest() else { break };
        chosen.extend(sweep.clear(area).into_iter().map(|portion| wide.apart(portion)));
    }
    // What an area was chosen for may find no place in one piece, though there is room for it in several: then what lies beside it
    // would be written for nothing.
    let gains = |portion: &Portion| map.unit(portion.unit).is_some_and(|unit| unit.excess > 0);
    (if limits.mode == Mode::Full { !chosen.is_empty() } else { chosen.iter().any(gains) }).then_some(chosen)
}

/// The purpose of clearing areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Contiguous files, and room for more of them.
    Files,
    /// The same with as little writing as possible.
    Cheaply,
    /// Free space in fewer pieces.
    Space,
}

struct Sweep<'a> {
    aim: Aim,
    map: &'a ChunkMap,
    limits: &'a ChunkLimits,
    room: Room,
    spent: u64,
    /// The remaining excess.
    left: u64,
    /// The units in each area.
    tenants: Vec<Vec<UnitIndex>>,
    /// The blocks to write to free an area, and the excess that this removes.
    cost: Vec<(u64, u64)>,
    /// The immovable blocks of an area.
    fixed: Vec<u64>,
    closed: Vec<bool>,
    taken: Vec<bool>,
    /// Units of which parts are moved.
    in_parts: Vec<bool>,
}

impl<'a> Sweep<'a> {
    fn new(map: &'a ChunkMap, limits: &'a ChunkLimits, aim: Aim, room: Room) -> Self {
        let mut sweep = Self {
            aim,
            map,
            limits,
            room,
            spent: 0,
            left: map.units.iter().map(|unit| unit.excess).sum(),
            tenants: vec![Vec::new(); map.areas.len()],
            cost: vec![(0, 0); map.areas.len()],
            fixed: map.areas.iter().map(|area| area.used.0).collect(),
            closed: vec![false; map.areas.len()],
            taken: vec![false; map.units.len()],
            in_parts: vec![false; map.units.len()],
        };
        for (number, unit) in map.units.iter().enumerate() {
            for (area, blocks) in &unit.vacates {
                let at = area.0 as usize;
                if let Some(((tenants, cost), fixed)) =
                    sweep.tenants.get_mut(at).zip(sweep.cost.get_mut(at)).zip(sweep.fixed.get_mut(at))
                {
                    tenants.push(UnitIndex(number as u32));
                    let (cost_here, excess_here) = price(unit, blocks.0);
                    cost.0 += cost_here;
                    cost.1 += excess_here;
                    *fixed = fixed.saturating_sub(blocks.0);
                }
            }
        }
        sweep
    }

    /// The area with the least writing per block that becomes free in one piece.
    fn cheapest(&self) -> Option<AreaIndex> {
        let affordable = |cost: u64| self.limits.affords(self.spent + cost) && cost <= self.room.total();
        self.map
            .areas
            .iter()
            .zip(&self.cost)
            .zip(&self.fixed)
            .zip(&self.closed)
            .enumerate()
            .filter(|(_, (((_, (cost, _)), _), closed))| !**closed && *cost > 0 && affordable(*cost))
            .filter_map(|(number, (((area, (cost, excess)), fixed), _))| {
                // What stays breaks the area up.
                let whole = area.length.0.saturating_sub(fixed * 2);
                let gain = match self.aim {
                    Aim::Cheaply => *excess,
                    Aim::Files => whole.min(excess * whole),
                    Aim::Space => area.scattered().min(whole),
                };
                (gain > 0).then(|| ((u128::from(*cost) << 20) / u128::from(gain), number))
            })
            .min()
            .map(|(_, number)| AreaIndex(number as u32))
    }

    /// Takes all data of an area, and finds room for it elsewhere.
    fn clear(&mut self, area: AreaIndex) -> Vec<Portion> {
        let at = area.0 as usize;
        if let Some(closed) = self.closed.get_mut(at) {
            *closed = true;
        }
        self.room.close(self.map, area);
        let mut chosen = Vec::new();
        for index in self.tenants.get_mut(at).map(std::mem::take).unwrap_or_default() {
            let Some(unit) = self.map.unit(index) else { continue };
            let Some(taken) = self.taken.get_mut(index.0 as usize).filter(|taken| !**taken) else { continue };
            let here = unit.vacates.iter().find(|(touched, _)| *touched == area).map_or(0, |(_, blocks)| blocks.0);
            let (cost, excess) = price(unit, here);
            let begun = self.in_parts.get(index.0 as usize).is_some_and(|flag| *flag);
            if begun && cost == unit.written.0 {
                continue;
            }
            if !self.limits.affords(self.spent + cost) || !self.room.take(cost) {
                continue;
            }
            self.spent += cost;
            self.left = self.left.saturating_sub(excess);
            let in_parts = self.in_parts.get_mut(index.0 as usize);
            if cost < unit.written.0 {
                in_parts.into_iter().for_each(|flag| *flag = true);
                chosen.push(Portion { unit: index, within: vec![area] });
                continue;
            }
            *taken = true;
            for (touched, blocks) in &unit.vacates {
                let (cost, excess) = price(unit, blocks.0);
                if let Some(sum) = self.cost.get_mut(touched.0 as usize) {
                    *sum = (sum.0.saturating_sub(cost), sum.1.saturating_sub(excess));
                }
            }
            chosen.push(Portion::whole(index));
        }
        chosen
    }
}

/// The blocks to write so that a unit leaves an area in which it has `here` blocks, and the excess that this removes.
fn price(unit: &Unit, here: u64) -> (u64, u64) {
    if unit.divisible && here * MOSTLY < unit.written.0 { (here, 0) } else { (unit.written.0, unit.excess) }
}
