//! The schedule: in which order units reach their places, in time-honest terms: vacated blocks are usable only after a
//! barrier, and at no moment does the volume have more excess fragments than at the start.

use crate::plan::{PlannedMove, Step, Why};
use crate::regions::Regions;
use crate::target::Target;
use crate::traveller::{Traveller, join, piece_length, rank};
use crate::unit::{Piece, Unit, UnitIndex};
use crate::window::Window;
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, FileMove, LogicalBlock, PhysicalBlock};
use std::collections::{BTreeMap, BTreeSet};

/// Limits of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Blocks moved between two barriers.
    pub(crate) epoch: u64,
    /// Blocks that may be moved aside, to break cycles.
    pub(crate) aside: u64,
    /// Blocks that may be moved at all.
    pub(crate) budget: u64,
}

impl Limits {
    /// Below this many blocks an epoch is not worth its barrier, and units step aside to widen the front.
    fn slow(&self) -> u64 {
        self.epoch / 8
    }
}

/// Carries units to their targets.
pub(crate) struct Scheduler<'a> {
    units: &'a [Unit],
    limits: Limits,
    available: ExtentSet,
    pending: ExtentSet,
    travellers: Vec<Traveller>,
    /// Target start → traveller; targets do not overlap.
    targets: BTreeMap<u64, usize>,
    /// Travellers whose target is wholly available, best first.
    ready: BTreeSet<(u64, u64, usize)>,
    steps: Vec<Step>,
    in_epoch: u64,
    moved: u64,
    aside: u64,
    /// Excess fragments now, relative to the start (never above zero).
    excess: i64,
    regions: Regions,
}

/// What a schedule comes to.
pub(crate) struct Scheduled {
    pub(crate) steps: Vec<Step>,
    /// The files of the units that moved, with their directory and the unit's pieces afterwards.
    pub(crate) moved_files: Vec<(FileIndex, u32, Vec<Piece>)>,
    pub(crate) moved: u64,
    /// The window's free space afterwards.
    pub(crate) free: ExtentSet,
    /// Excess fragments compared with before, never above zero.
    pub(crate) excess: i64,
}

impl Scheduled {
    /// Whether files or free space are better afterwards, and neither is worse.
    pub(crate) fn improves(&self, window: &Window) -> bool {
        let (before, after) = (window.free.pieces(), self.free.pieces());
        let largest = |free: &ExtentSet| free.largest().map(|e| e.length);
        let not_worse = after <= before && largest(&self.free) >= largest(&window.free);
        not_worse && self.excess <= 0 && (self.excess < 0 || after < before)
    }
}

impl<'a> Scheduler<'a> {
    pub(crate) fn new(
        units: &'a [Unit],
        target: &Target,
        free: &ExtentSet,
        regions: &Regions,
        limits: Limits,
        why: impl Fn(UnitIndex) -> Why,
    ) -> Self {
        let mut scheduler = Self {
            units,
            limits,
            available: free.clone(),
            pending: ExtentSet::new(),
            travellers: Vec::with_capacity(target.starts.len()),
            targets: BTreeMap::new(),
            ready: BTreeSet::new(),
            steps: Vec::new(),
            in_epoch: 0,
            moved: 0,
            aside: 0,
            excess: 0,
            regions: regions.clone(),
        };
        for (&unit, &start) in &target.starts {
            let Some(u) = units.get(unit) else { continue };
            let mut offset = 0;
            let pieces: Vec<(u64, Piece)> = u
                .pieces
                .iter()
                .map(|p| {
                    let at = offset;
                    offset += p.length;
                    (at, *p)
                })
                .collect();
            let index = scheduler.travellers.len();
            scheduler.targets.insert(start, index);
            scheduler.travellers.push(Traveller {
                unit,
                target: start,
                waiting: 0,
                size: u.size,
                gain: u.fragments() - 1,
                why: why(unit),
                done: false,
                pieces,
            });
            scheduler.recount(index);
        }
        scheduler
    }

    /// Recomputes what a traveller waits for.
    fn recount(&mut self, index: usize) {
        let Some(t) = self.travellers.get_mut(index) else { return };
        t.waiting = t
            .pieces
            .iter()
            .filter(|(offset, piece)| piece.at != t.target + offset)
            .map(|(offset, piece)| {
                let extent = Extent::new(t.target + offset, piece.length);
                let there: u64 = self.available.overlapping(extent).map(|e| e.length.0).sum();
                piece.length - there
            })
            .sum();
        if t.waiting == 0 && !t.done {
            self.ready.insert((rank(t.gain, t.size), t.target, index));
        }
    }

    /// Runs to the end: every unit in place, or no more progress within the limits.
    pub(crate) fn run(mut self) -> Scheduled {
        loop {
            self.move_ready();
            // Little to do before the next barrier: chains and cycles. Parts that split nothing first, they reach their
            // place at once; parts that split a unit last: they use up the excess that was saved so far.
            if self.in_epoch < self.limits.slow() {
                self.move_parts(0);
            }
            if self.in_epoch < self.limits.slow() {
                self.step_aside();
            }
            if self.in_epoch == 0 {
                self.move_parts(2);
            }
            if !self.barrier() {
                break;
            }
        }
        let (free, excess) = (self.available, self.excess);
        let units = self.units;
        let moved_files = self
            .travellers
            .into_iter()
            .filter_map(|t| {
                let unit = units.get(t.unit)?;
                Some((unit.file, unit.directory, join(t.pieces.into_iter().map(|(_, p)| p))))
            })
            .collect();
        Scheduled { steps: self.steps, moved_files, moved: self.moved, free, excess }
    }

    /// Makes what was vacated available, and finds out who can move now. False when nothing was pending.
    fn barrier(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.steps.push(Step::Barrier);
        self.in_epoch = 0;
        let pending = std::mem::take(&mut self.pending);
        let mut touched = BTreeSet::new();
        for extent in pending.iter() {
            self.available.insert(extent);
            touched.extend(self.travellers_at(extent));
        }
        for index in touched {
            self.recount(index);
        }
        true
    }

    /// The unfinished travellers whose targets overlap an extent.
    fn travellers_at(&self, extent: Extent) -> Vec<usize> {
        let before = self.targets.range(..extent.start.0).next_back();
        let inside = self.targets.range(extent.start.0..extent.end().0);
        before
            .into_iter()
            .chain(inside)
            .filter(|(start, index)| {
                self.travellers.get(**index).is_some_and(|t| !t.done && **start + t.size > extent.start.0)
            })
            .map(|(_, index)| *index)
            .collect()
    }

    /// Moves whole units whose targets are available, until nobody is ready. A full epoch ends with a barrier. Units whose
    /// region has no room wait for others to leave it.
    fn move_ready(&mut self) {
        const TURNS: u32 = 32;
        for _ in 0..TURNS {
            let moved = self.moved;
            let crowded = self.move_all_ready();
            let none = crowded.is_empty();
            self.ready.extend(crowded);
            if none || self.moved == moved {
                break;
            }
        }
    }

    /// Whether there is room for all pieces of a traveller in the regions that they go to.
    fn has_room(&self, t: &Traveller) -> bool {
        if self.regions.is_empty() {
            return true;
        }
        let mut after = self.regions.clone();
        t.pieces.iter().filter(|(offset, piece)| piece.at != t.target + offset).all(|(offset, piece)| {
            let allowed = after.allow(piece.at, t.target + offset, piece.length);
            after.moved(piece.at, t.target + offset, piece.length);
            allowed
        })
    }

    /// Moves those that are ready; returns those that found no room.
    fn move_all_ready(&mut self) -> Vec<(u64, u64, usize)> {
        let mut crowded = Vec::new();
        while let Some(next) = self.ready.pop_first() {
            let index = next.2;
            let Some(t) = self.travellers.get(index) else { continue };
            if t.done || t.waiting > 0 {
                continue;
            }
            if !self.has_room(t) {
                crowded.push(next);
                continue;
            }
            let Some(t) = self.travellers.get_mut(index) else { continue };
            let blocks: u64 = t.pieces.iter().filter(|(o, p)| p.at != t.target + o).map(|(_, p)| p.length).sum();
            if self.moved + blocks > self.limits.budget {
                continue;
            }
            t.done = true;
            for piece in 0..t.pieces.len() {
                self.move_piece(index, piece);
            }
            if self.in_epoch >= self.limits.epoch {
                self.barrier();
            }
        }
        crowded
    }

    /// Moves one piece of a traveller to its place; all of its target must be available.
    fn move_piece(&mut self, index: usize, piece: usize) {
        let Some(t) = self.travellers.get(index) else { return };
        let Some(&(offset, p)) = t.pieces.get(piece) else { return };
        let place = t.target + offset;
        if p.at != place {
            self.send(index, piece, place, t.why);
        }
    }

    /// Sends one piece to a place and keeps the books of its unit.
    fn send(&mut self, index: usize, piece: usize, place: u64, why: Why) {
        let Some(t) = self.travellers.get_mut(index) else { return };
        let delta = t.delta(piece, &[(0, piece_length(&t.pieces, piece), place)]);
        let Some((_, p)) = t.pieces.get_mut(piece) else { return };
        let moving = *p;
        p.at = place;
        self.excess += delta;
        let unit = t.unit;
        self.emit(unit, moving, place, why);
    }

    /// Puts a move into the plan and keeps the books.
    fn emit(&mut self, unit: UnitIndex, piece: Piece, place: u64, why: Why) {
        let Some(file) = self.units.get(unit).map(|u| u.file) else { return };
        self.steps.push(Step::Move(PlannedMove {
            step: FileMove {
                file,
                logical: LogicalBlock(piece.logical),
                source: PhysicalBlock(piece.at),
                target: PhysicalBlock(place),
                length: Blocks(piece.length),
            },
            why,
        }));
        self.regions.moved(piece.at, place, piece.length);
        self.available.remove(Extent::new(place, piece.length));
        self.pending.insert(Extent::new(piece.at, piece.length));
        self.in_epoch += piece.length;
        self.moved += piece.length;
    }

    /// Moves parts of units whose place is available, when each adds at most `most` fragments and the volume does not get
    /// more fragmented than it was at the start. Without this, plans get stuck on full volumes.
    fn move_parts(&mut self, most: i64) {
        for index in 0..self.travellers.len() {
            let mut at = 0;
            let moved = self.moved;
            while let Some(t) = self.travellers.get(index)
                && !t.done
                && let Some(&(offset, piece)) = t.pieces.get(at)
            {
                if self.in_epoch >= self.limits.epoch || self.moved >= self.limits.budget {
                    return self.finish_if_home(index);
                }
                if piece.at != t.target + offset
                    && let Some(part) = self.movable_part(t.target + offset, piece)
                    && let Some(at_part) = self.split_off(index, at, part, t.target + offset + part.0, most)
                {
                    self.move_piece(index, at_part);
                }
                at += 1;
            }
            if self.moved > moved {
                self.finish_if_home(index);
            }
        }
    }

    fn finish_if_home(&mut self, index: usize) {
        if let Some(t) = self.travellers.get_mut(index)
            && t.pieces.iter().all(|(offset, piece)| piece.at == t.target + offset)
        {
            t.done = true;
        }
        self.recount(index);
    }

    /// The part of a piece whose place is available: (offset in the piece, length). All of it, or its longest part, within
    /// what the budget leaves.
    fn movable_part(&self, place: u64, piece: Piece) -> Option<(u64, u64)> {
        let wanted = Extent::new(place, piece.length);
        let part = self.available.overlapping(wanted).max_by_key(|e| e.length)?;
        let length = part.length.0.min(self.limits.budget - self.moved);
        let from = piece.at + (part.start.0 - place);
        let allowed =
            if self.regions.allow(from, part.start.0, length) { length } else { self.regions.room(part.start.0) };
        (allowed > 0).then(|| (part.start.0 - place, length.min(allowed)))
    }

    /// Cuts the part off its piece when moving it keeps the excess within what it was at the start; returns its index.
    /// The part is going to `place`.
    fn split_off(&mut self, index: usize, at: usize, part: (u64, u64), place: u64, most: i64) -> Option<usize> {
        let t = self.travellers.get_mut(index)?;
        let &(offset, piece) = t.pieces.get(at)?;
        let (skip, length) = part;
        let mut parts = Vec::with_capacity(3);
        let mut places = Vec::with_capacity(3);
        let mut cut = |from: u64, length: u64, at: u64| {
            if length > 0 {
                parts.push((offset + from, Piece { logical: piece.logical + from, at: piece.at + from, length }));
                places.push((from, length, at));
            }
        };
        cut(0, skip, piece.at);
        cut(skip, length, place);
        cut(skip + length, piece.length - skip - length, piece.at + skip + length);
        let delta = t.delta(at, &places);
        if delta > most || self.excess + delta > 0 {
            return None;
        }
        let t = self.travellers.get_mut(index)?;
        t.pieces.splice(at..=at, parts);
        Some(at + usize::from(skip > 0))
    }

    /// Breaks cycles and widens the front: what blocks the travellers with the least in their way steps aside into free
    /// space that nobody has as a target.
    fn step_aside(&mut self) {
        let blocked = self.travellers.iter().enumerate().filter(|(_, t)| !t.done && t.waiting > 0);
        let mut by_wait: Vec<(u64, usize)> = blocked.map(|(i, t)| (t.waiting, i)).collect();
        by_wait.sort_unstable();
        let owners = self.owner_map();
        let mut renumbered = BTreeSet::new();
        let mut spare = self.spare();
        let mut failures = 0;
        for (_, index) in by_wait {
            if self.in_epoch >= self.limits.slow() || failures > 64 {
                break;
            }
            let Some(t) = self.travellers.get(index) else { continue };
            let place = Extent::new(t.target, t.size);
            let first = owners.range(..place.start.0).next_back();
            let blockers: Vec<(u64, usize, usize)> = first
                .into_iter()
                .chain(owners.range(place.start.0..place.end().0))
                .filter(|(start, (length, ..))| **start + length > place.start.0)
                .map(|(start, (_, owner, piece))| (*start, *owner, *piece))
                .collect();
            // Moving a part renumbers the pieces behind it: last ones first, and each unit once an epoch.
            for (_, owner, piece) in blockers.iter().rev().filter(|(_, owner, _)| !renumbered.contains(owner)) {
                failures += u32::from(self.move_aside(*owner, *piece, place, &mut spare));
            }
            renumbered.extend(blockers.iter().map(|(_, owner, _)| *owner));
        }
    }

    /// Where the pieces of unfinished travellers are that are not in place: start → (length, traveller, piece).
    fn owner_map(&self) -> BTreeMap<u64, (u64, usize, usize)> {
        let mut owners = BTreeMap::new();
        for (index, t) in self.travellers.iter().enumerate().filter(|(_, t)| !t.done) {
            for (at, (offset, piece)) in t.pieces.iter().enumerate() {
                if piece.at != t.target + offset {
                    owners.insert(piece.at, (piece.length, index, at));
                }
            }
        }
        owners
    }

    /// Moves a piece, or the part of it that lies in `place`, into spare space. True when it had to stay.
    fn move_aside(&mut self, index: usize, at: usize, place: Extent, spare: &mut ExtentSet) -> bool {
        let Some(&(_, piece)) = self.travellers.get(index).and_then(|t| t.pieces.get(at)) else { return true };
        let whole = Extent::new(piece.at, piece.length);
        let Some(inside) = whole.intersection(&place) else { return true };
        // The largest stretch of spare space: what steps aside together stays together.
        let Some(room) = spare.largest() else { return true };
        let part = if piece.length <= room.length.0 && piece.length <= 16 * inside.length.0 { whole } else { inside };
        let length = part.length.0.min(room.length.0);
        if !self.affords_aside(length) || !self.regions.allow(piece.at, room.start.0, length) {
            return true;
        }
        let Some(part) = self.split_off(index, at, (part.start.0 - piece.at, length), room.start.0, 2) else {
            return self.park(index, room, spare);
        };
        self.send(index, part, room.start.0, Why::StepAside);
        spare.remove(Extent::new(room.start.0, length));
        self.aside += length;
        false
    }

    fn affords_aside(&self, length: u64) -> bool {
        self.aside + length <= self.limits.aside && self.moved + 2 * length <= self.limits.budget
    }

    /// Moves a whole unit into spare space: its fragments become one, which makes room for the splits of others. True
    /// when it had to stay.
    fn park(&mut self, index: usize, room: Extent, spare: &mut ExtentSet) -> bool {
        let Some(t) = self.travellers.get(index) else { return true };
        let fragmented = t.pieces.windows(2).any(|w| matches!(w, [(_, a), (_, b)] if a.end() != b.at));
        let crowded = self.regions.room(room.start.0) < t.size;
        if !fragmented || crowded || t.size > room.length.0 || !self.affords_aside(t.size) {
            return true;
        }
        let (size, pieces) = (t.size, t.pieces.len());
        let mut place = room.start.0;
        for piece in 0..pieces {
            let length = self.travellers.get(index).map_or(0, |t| piece_length(&t.pieces, piece));
            self.send(index, piece, place, Why::StepAside);
            place += length;
        }
        spare.remove(Extent::new(room.start.0, size));
        self.aside += size;
        false
    }

    /// Available space that is no unfinished traveller's target.
    fn spare(&self) -> ExtentSet {
        let mut spare = self.available.clone();
        for t in self.travellers.iter().filter(|t| !t.done) {
            spare.remove(Extent::new(t.target, t.size));
        }
        self.regions.open(spare)
    }
}
