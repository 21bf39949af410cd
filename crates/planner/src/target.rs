//! The target layout: the final place of every unit of a window. It does the packing; the schedule is separate.

use crate::board::{Board, Slot};
use crate::pool::Pool;
use crate::unit::{Unit, UnitIndex};
use longrun_layout::{Extent, ExtentSet};
use std::collections::{BTreeMap, BTreeSet};

/// How a target is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// Units from this size are placed first, largest first; smaller ones are left to fill what remains.
    pub(crate) large: u64,
    /// Blocks of kept units that may be given up to make holes solvable.
    pub(crate) unkeep: u64,
    /// Holes are not merged beyond this size.
    pub(crate) merge_limit: u64,
}

/// Where units shall start; units not named stay where they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) starts: BTreeMap<UnitIndex, u64>,
}

impl Target {
    /// Blocks that must move.
    pub(crate) fn cost(&self, units: &[Unit]) -> u64 {
        self.starts.iter().filter_map(|(unit, start)| units.get(*unit).map(|u| u.cost(*start))).sum()
    }
}

/// Finds places for `movers` on a board that already holds the kept units; may evict kept units that are not fixed.
/// Units for which there is no place are returned.
pub(crate) struct Packer<'a> {
    units: &'a [Unit],
    board: Board,
    pool: Pool,
    packing: Packing,
    /// Blocks of kept units that were given up so far to solve holes.
    given_up: u64,
    /// Slots that a search for a clearing looks at.
    patience: usize,
    /// Slots that searches may still look at with that patience. Units that give way search, too.
    work_left: usize,
}

/// A unit gives way to one that is larger by this part at least. Units of much the same size, parts of one file for example, would have
/// each other give way, one after the other.
const SMALLER: u64 = 8;

/// Slots that one search for a clearing looks at, at most.
const CLEARING_PATIENCE: usize = 40_000;

/// Slots that all of them look at together: bounds the planning time. With 100,000 large files, patience for 40,000 slots took five times as
/// long, and gave 20 free pieces instead of 22.
const CLEARING_WORK: usize = 20_000_000;

/// Slots that each may look at even so.
const CLEARING_LEAST: usize = 500;

impl<'a> Packer<'a> {
    fn new(units: &'a [Unit], board: Board, movers: &[UnitIndex], packing: Packing) -> Self {
        // Small ones are left to fill what remains, and search for nothing.
        let is_large = |unit: &&UnitIndex| units.get(**unit).is_some_and(|unit| unit.size >= packing.large);
        let large = movers.iter().filter(is_large).count();
        let patience = (CLEARING_WORK / large.max(1)).clamp(CLEARING_LEAST, CLEARING_PATIENCE);
        let mut packer =
            Self { units, board, pool: Pool::new(), packing, given_up: 0, patience, work_left: CLEARING_WORK };
        for &unit in movers {
            packer.pool_unit(unit);
        }
        packer
    }

    /// A packer for all units of a window: the kept ones have their place in `space`, the others wait for one.
    pub(crate) fn around(units: &'a [Unit], space: &ExtentSet, kept: &[(UnitIndex, u64)], packing: Packing) -> Self {
        let size = |unit: UnitIndex| units.get(unit).map_or(0, |u| u.size);
        let slots = kept.iter().map(|&(unit, start)| Slot { start, length: size(unit), unit });
        let board = Board::filled(space, slots);
        let mut moves = vec![true; units.len()];
        for slot in board.slots() {
            if let Some(moves) = moves.get_mut(slot.unit) {
                *moves = false;
            }
        }
        let movers: Vec<UnitIndex> = (0..).zip(&moves).filter_map(|(unit, moves)| moves.then_some(unit)).collect();
        Self::new(units, board, &movers, packing)
    }

    fn unit(&self, unit: UnitIndex) -> Option<&'a Unit> {
        self.units.get(unit)
    }

    fn pool_unit(&mut self, unit: UnitIndex) {
        if let Some(u) = self.unit(unit) {
            self.pool.insert(u.size, u.directory, unit);
        }
    }

    fn evict(&mut self, slot: Slot) {
        self.board.vacate(slot.start);
        self.pool_unit(slot.unit);
    }

    /// What giving a slot's place to another unit costs, in blocks; `None` when it must stay.
    fn price(&self, slot: &Slot) -> Option<u64> {
        let unit = self.unit(slot.unit)?;
        (!unit.fixed).then(|| unit.in_place(slot.start))
    }

    /// Large units first, descending: into the hole that fits best, else into the cheapest clearing. What finds no
    /// place is returned.
    pub(crate) fn place_large(&mut self) -> Vec<UnitIndex> {
        let mut homeless = Vec::new();
        while let Some((size, unit)) = self.pool.take_largest() {
            if size < self.packing.large {
                self.pool_unit(unit);
                break;
            }
            if !self.place_one(size, unit) {
                homeless.push(unit);
            }
        }
        homeless
    }

    fn place_one(&mut self, size: u64, unit: UnitIndex) -> bool {
        let Some(u) = self.unit(unit) else { return false };
        if let Some(hole) = self.board.best_fit(size) {
            // At the end that does not make the unit slide over itself.
            let tail = hole.end().0 - size;
            let start = if u.slides(hole.start.0) && !u.slides(tail) { tail } else { hole.start.0 };
            return self.board.occupy(start, size, unit);
        }
        let units = self.units;
        let price = |slot: &Slot| {
            let other = units.get(slot.unit)?;
            // Only smaller units give way: every eviction makes what remains to be placed smaller.
            (!other.fixed && slot.length < size - size / SMALLER).then(|| other.in_place(slot.start) + other.size / 16)
        };
        let patience = if self.work_left > 0 { self.patience } else { CLEARING_LEAST };
        self.work_left = self.work_left.saturating_sub(patience.min(self.board.slot_count()));
        let Some(clearing) = self.board.cheapest_clearing(size, patience, price) else { return false };
        for slot in clearing.evict {
            self.evict(slot);
        }
        self.board.occupy(clearing.start, size, unit)
    }

    /// Fills every hole exactly, ascending; a hole that no combination fills is joined with its cheapest neighbour and
    /// tried again, within the limits.
    pub(crate) fn fill_exactly(&mut self) {
        let mut unsolved: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut after = (0, 0);
        // Every turn fills a hole, gives one up, or spends some of a bounded budget.
        while let Some(hole) = self.board.next_hole(after) {
            let key = (hole.length.0, hole.start.0);
            if self.pool.blocks() == 0 {
                break;
            }
            if let Some(sizes) = self.pool.exact_combination(hole.length.0) {
                self.put(hole, &sizes);
                continue;
            }
            match self.cheapest_neighbour(hole) {
                Some((slot, price)) => {
                    self.given_up += price.max(1);
                    self.evict(slot);
                    // The joined hole is larger and comes later in the order; smaller ones that were skipped may have
                    // become solvable with the evicted unit only by chance, and are not tried again.
                }
                None => {
                    unsolved.insert(key);
                    after = key;
                }
            }
        }
        self.fill_loosely();
    }

    fn cheapest_neighbour(&self, hole: Extent) -> Option<(Slot, u64)> {
        let candidates = self.board.neighbours(hole).into_iter().flatten();
        let priced = candidates.filter_map(|slot| Some((slot, self.price(&slot)?)));
        let (slot, price) = priced.min_by_key(|(slot, price)| (*price, slot.length, slot.start))?;
        let affordable = self.given_up + price <= self.packing.unkeep;
        (affordable && hole.length.0 + slot.length <= self.packing.merge_limit).then_some((slot, price))
    }

    /// Puts units of the given sizes side by side into a hole, those of one directory together.
    fn put(&mut self, hole: Extent, sizes: &[u64]) {
        let [before, behind] = self.board.neighbours(hole);
        let beside = before.or(behind).and_then(|slot| self.unit(slot.unit)).map_or(0, |u| u.directory);
        let mut chosen: Vec<(u32, UnitIndex, u64)> = Vec::with_capacity(sizes.len());
        for &size in sizes {
            if let Some(unit) = self.pool.take(size, beside) {
                let directory = self.unit(unit).map_or(0, |u| u.directory);
                chosen.push((directory, unit, size));
            }
        }
        chosen.sort_unstable();
        let mut at = hole.start.0;
        for (_, unit, size) in chosen {
            self.board.occupy(at, size, unit);
            at += size;
        }
    }

    /// What is left of the pool goes into the holes that could not be filled exactly, largest first.
    pub(crate) fn fill_loosely(&mut self) {
        let mut homeless = Vec::new();
        while let Some((size, unit)) = self.pool.take_largest() {
            match self.board.best_fit(size) {
                Some(hole) => {
                    self.board.occupy(hole.start.0, size, unit);
                }
                None => homeless.push(unit),
            }
        }
        for unit in homeless {
            self.pool_unit(unit);
        }
    }

    /// Lowers the number of holes to `most` if it can. A unit between two holes that fills a third one exactly leaves two holes fewer. What
    /// has a hole on one side only, or does not fill the third one, leaves one fewer, and is tried where that is not enough.
    pub(crate) fn consolidate_holes(&mut self, most: usize) {
        // What moves leaves holes of other lengths, which others may fill: some more turns.
        for fewer in [2, 1, 1, 1] {
            if self.board.hole_count() > most {
                self.join_holes(most, fewer);
            }
        }
    }

    /// Each unit whose move leaves `fewer` holes at least, the cheapest first, until `most` are left.
    fn join_holes(&mut self, most: usize, fewer: usize) {
        let priced = self.board.slots().filter_map(|slot| Some((self.price(&slot)?, slot.length, slot)));
        let mut slots: Vec<(u64, u64, Slot)> = priced.collect();
        slots.sort_unstable_by_key(|(price, length, slot)| (*price, *length, slot.start));
        for (_, _, slot) in slots {
            if self.board.hole_count() <= most {
                return;
            }
            let beside = self.board.holes_beside(&slot);
            let joined = beside.iter().flatten().count();
            let elsewhere = |hole: &Extent| !beside.contains(&Some(*hole));
            let Some(hole) = self.board.best_fit(slot.length).filter(elsewhere) else { continue };
            if joined + usize::from(hole.length.0 == slot.length) > fewer {
                self.board.vacate(slot.start);
                self.board.occupy(hole.start.0, slot.length, slot.unit);
            }
        }
    }

    /// The places found, and the units without one.
    pub(crate) fn finish(mut self, homeless: Vec<UnitIndex>) -> (Target, Vec<UnitIndex>, usize) {
        let mut left = homeless;
        while let Some((_, unit)) = self.pool.take_largest() {
            left.push(unit);
        }
        let moves = |slot: &Slot| self.unit(slot.unit).is_some_and(|u| !u.fixed && u.cost(slot.start) > 0);
        let starts = self.board.slots().filter(moves).map(|slot| (slot.unit, slot.start)).collect();
        (Target { starts }, left, self.board.hole_count())
    }
}

/// Puts units without a place at the edge of the zone, one behind the other, so that what remains of the zone stays in
/// one piece; and from the start of the `spare` room when the zone has none. Returns those that did not fit.
pub(crate) fn place_at_edge(
    units: &[Unit],
    mut homeless: Vec<UnitIndex>,
    zone: &[Extent],
    spare: Option<Extent>,
    segments: &[Extent],
    target: &mut Target,
) -> Vec<UnitIndex> {
    let mut rooms: Vec<(Extent, bool)> = zone
        .iter()
        .map(|z| {
            // Grow from the side on which files lie: the other side may be an obstacle or the segment's end.
            let at = segments.partition_point(|s| s.end() <= z.start);
            let files_before = segments.get(at).is_some_and(|s| s.contains(z) && s.start < z.start);
            (*z, files_before)
        })
        .collect();
    rooms.sort_unstable_by_key(|(z, _)| (z.length, z.start));
    rooms.extend(spare.map(|spare| (spare, true)));
    homeless.sort_unstable_by_key(|u| units.get(*u).map(|u| (std::cmp::Reverse(u.size), u.directory, u.file)));
    let mut left = Vec::new();
    for unit in homeless {
        let Some(u) = units.get(unit) else { continue };
        // A unit that lies in the room as it is may stay when that does not cut the room.
        let fitting = rooms.iter_mut().find(|(room, _)| room.length.0 >= u.size);
        match fitting {
            Some((room, from_start)) => {
                let start = if *from_start { room.start.0 } else { room.end().0 - u.size };
                *room = if *from_start {
                    Extent::between(room.start + longrun_layout::Blocks(u.size), room.end())
                } else {
                    Extent::new(room.start.0, room.length.0 - u.size)
                };
                target.starts.insert(unit, start);
            }
            None => left.push(unit),
        }
    }
    left
}

/// The space of the segments without the zone.
pub(crate) fn outside(segments: &[Extent], zone: &[Extent]) -> ExtentSet {
    let mut space: ExtentSet = segments.iter().copied().collect();
    for z in zone {
        space.remove(*z);
    }
    space
}
