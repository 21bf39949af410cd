//! The schedule: the order in which units reach their places. It observes two rules: vacated blocks are usable only
//! after a barrier, and the volume never has more excess fragments than at the start.

use crate::plan::{PlannedMove, Step, Why};
use crate::regions::Regions;
use crate::target::Target;
use crate::traveller::{Traveller, join, piece_length, rank};
use crate::unit::{Piece, Unit, UnitIndex};
use crate::window::Window;
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, FileMove, LogicalBlock, PhysicalBlock};
use spare::Spare;
use std::collections::{BTreeMap, BTreeSet};

mod area;
mod aside;
mod parts;
mod spare;

/// The excess fragments that must be saved for each free piece more where no plan without one is found.
const EXCESS_FOR_A_PIECE: u64 = 32;

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
    /// Below this many blocks an epoch is not worth its barrier, and units step aside to widen the front. An eighth of an epoch took
    /// up to twice as many barriers; a half moves 4 % more.
    fn slow(&self) -> u64 {
        self.epoch / 4
    }

    /// Below this many blocks parts of units move ahead whose place is available, as long as that splits nothing: no block moves
    /// once more for it.
    fn early(&self) -> u64 {
        self.epoch / 2
    }
}

/// A piece that is not in place.
#[derive(Clone, Copy, Debug)]
struct Owner {
    length: u64,
    traveller: usize,
    /// Of the piece in the target.
    offset: u64,
}

/// Units may settle elsewhere than at their target.
struct Anywhere {
    /// What they must avoid.
    protected: Vec<Extent>,
    /// The free space once all have arrived.
    outcome: ExtentSet,
    /// The pieces that it may have. Each unit that settles leaves the place empty that it would have filled: without this, plans for
    /// nearly full volumes ended with a third more pieces than before, and came to nothing.
    most: usize,
}

/// Moves units to their targets.
pub(crate) struct Scheduler<'a> {
    units: &'a [Unit],
    limits: Limits,
    available: ExtentSet,
    /// Vacated since the last barrier; in no order.
    pending: Vec<Extent>,
    travellers: Vec<Traveller>,
    /// Target start → traveller; targets do not overlap.
    targets: BTreeMap<u64, usize>,
    /// Where the pieces are that are not in place: start → whose.
    owners: BTreeMap<u64, Owner>,
    /// Where a part may be able to move that could not before, by traveller: of its target what became available, and the places of pieces
    /// whose neighbours moved.
    fresh: BTreeMap<usize, Vec<Extent>>,
    /// Travellers whose target is wholly available, best first.
    ready: BTreeSet<(u64, u64, usize)>,
    steps: Vec<Step>,
    in_epoch: u64,
    moved: u64,
    aside: u64,
    /// Excess fragments now, relative to the start (never above zero).
    excess: i64,
    regions: Regions,
    /// Where units may settle that do not reach their place; `None` if each has a fixed one.
    anywhere: Option<Anywhere>,
    /// What shall be free in the end, and is no one's place.
    zone: ExtentSet,
    /// Room that no step aside may use.
    pocket: ExtentSet,
    /// What is available and no unfinished traveller's target, nor in the pocket, nor what must be avoided.
    spare: Spare,
}

/// The result of a schedule.
pub(crate) struct Scheduled {
    pub(crate) steps: Vec<Step>,
    /// The files of the units that moved, with their directory and the unit's pieces afterwards.
    pub(crate) moved_files: Vec<(FileIndex, u32, Vec<Piece>)>,
    pub(crate) moved: u64,
    /// The window's free space afterwards.
    pub(crate) free: ExtentSet,
    /// Excess fragments compared with before, never above zero.
    pub(crate) excess: i64,
    /// Whether every unit reached its place.
    pub(crate) complete: bool,
}

impl Scheduled {
    /// How many excess fragments there are less.
    pub(crate) fn saves(&self) -> u64 {
        u64::try_from(-self.excess).unwrap_or(0)
    }

    /// How many excess fragments and free pieces there are less.
    pub(crate) fn gain(&self, window: &Window) -> u64 {
        window.free.pieces().saturating_sub(self.free.pieces()) as u64 + self.saves()
    }

    /// Whether there are fewer excess fragments and free pieces together, and no more excess.
    pub(crate) fn gains(&self, window: &Window) -> bool {
        let more = self.free.pieces().saturating_sub(window.free.pieces());
        let less = window.free.pieces().saturating_sub(self.free.pieces());
        self.excess <= 0 && self.excess.unsigned_abs() + less as u64 > more as u64
    }

    /// Whether so much excess is saved that a few free pieces more, and a largest one that is a little smaller, do not matter.
    pub(crate) fn pays_in_pieces(&self, window: &Window) -> bool {
        let largest = |free: &ExtentSet| free.largest().map_or(0, |piece| piece.length.0);
        let more = self.free.pieces().saturating_sub(window.free.pieces()) as u64;
        let saved = self.saves();
        let pieces = saved / EXCESS_FOR_A_PIECE;
        // That the largest one shrinks costs as much as a piece more.
        let sixteenths = if pieces == 0 { 16 } else { 15 };
        saved > 0 && pieces >= more && largest(&self.free) * 16 >= largest(&window.free) * sixteenths
    }

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
            pending: Vec::new(),
            travellers: Vec::with_capacity(target.starts.len()),
            targets: BTreeMap::new(),
            owners: BTreeMap::new(),
            fresh: BTreeMap::new(),
            ready: BTreeSet::new(),
            steps: Vec::new(),
            in_epoch: 0,
            moved: 0,
            aside: 0,
            excess: 0,
            regions: regions.clone(),
            anywhere: None,
            zone: ExtentSet::new(),
            pocket: ExtentSet::new(),
            spare: Spare::new(&ExtentSet::new(), Vec::new()),
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
                away: 0,
                size: u.size,
                owners: u.owners,
                gain: (u.fragments() - 1) * u.owners,
                why: why(unit),
                done: false,
                pieces,
            });
            scheduler.recount(index);
        }
        scheduler.fresh = scheduler.places();
        scheduler.owners = scheduler.strays();
        let mut spare = free.clone();
        scheduler.travellers.iter().for_each(|t| _ = spare.remove(t.place()));
        scheduler.spare = Spare::new(&spare, regions.starts().collect());
        scheduler
    }

    /// The pieces that are not in place.
    fn strays(&self) -> BTreeMap<u64, Owner> {
        let pieces = self.travellers.iter().enumerate().flat_map(|(traveller, t)| {
            t.pieces.iter().map(move |(offset, piece)| (t.target + offset, piece, traveller, *offset))
        });
        let strays = pieces.filter(|(home, piece, ..)| piece.at != *home);
        strays
            .map(|(_, piece, traveller, offset)| (piece.at, Owner { length: piece.length, traveller, offset }))
            .collect()
    }

    /// Units may end up anywhere but in `protected`, as long as no more than `most` free pieces come of it.
    pub(crate) fn anywhere_but(mut self, protected: Vec<Extent>, most: usize) -> Self {
        protected.iter().for_each(|extent| self.spare.remove(*extent));
        let mut outcome = self.available.clone();
        let pieces = self.travellers.iter().flat_map(|t| t.pieces.iter());
        pieces.for_each(|(_, piece)| outcome.insert(Extent::new(piece.at, piece.length)));
        self.travellers.iter().for_each(|t| _ = outcome.remove(t.place()));
        self.anywhere = Some(Anywhere { protected, outcome, most });
        self
    }

    /// Adds the parts of an extent that is available now which are nobody's place; `travellers` are those whose targets overlap it.
    fn set_free(&mut self, extent: Extent, travellers: &[usize]) {
        let mut parts: ExtentSet = [extent].into_iter().collect();
        for t in travellers.iter().filter_map(|index| self.travellers.get(*index)) {
            parts.remove(t.place());
        }
        self.pocket.overlapping(extent).for_each(|kept| _ = parts.remove(kept));
        self.anywhere.iter().flat_map(|a| &a.protected).for_each(|kept| _ = parts.remove(*kept));
        parts.iter().for_each(|part| self.spare.insert(part));
    }

    /// The largest room for steps aside.
    fn largest_spare(&self) -> Option<Extent> {
        self.spare.largest(|block| self.regions.is_open(block))
    }

    /// Computes what a traveller waits for. As pieces move and space becomes available, the figure is kept.
    fn recount(&mut self, index: usize) {
        let Some(t) = self.travellers.get_mut(index) else { return };
        (t.waiting, t.away) = (0, 0);
        for (offset, piece) in t.pieces.iter().filter(|(offset, piece)| piece.at != t.target + offset) {
            let extent = Extent::new(t.target + offset, piece.length);
            let there: u64 = self.available.overlapping(extent).map(|e| e.length.0).sum();
            t.waiting += piece.length - there;
            t.away += piece.length;
        }
        self.note_ready(index);
    }

    /// A traveller that waits for nothing can move.
    fn note_ready(&mut self, index: usize) {
        if let Some(t) = self.travellers.get(index)
            && t.waiting == 0
            && !t.done
        {
            self.ready.insert((rank(t.gain, t.size), t.target, index));
        }
    }

    /// Runs to the end: every unit in place, or no more progress within the limits.
    pub(crate) fn run(mut self) -> Scheduled {
        self.begin_with_room();
        loop {
            self.move_ready();
            // Little to do before the next barrier: chains and cycles. Parts that split nothing first, they reach their
            // place at once; parts that split a unit last: they use up the excess that was saved so far.
            if self.in_epoch < self.limits.early() {
                self.move_parts(0);
            }
            if self.in_epoch < self.limits.slow() && self.settle_elsewhere() {
                self.move_ready();
            }
            if self.in_epoch < self.limits.slow() && !self.open_area() {
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
        let complete = self.travellers.iter().all(|t| t.done);
        let units = self.units;
        let moved_files = self
            .travellers
            .into_iter()
            .filter_map(|t| {
                let unit = units.get(t.unit)?;
                Some((unit.file, unit.directory, join(t.pieces.into_iter().map(|(_, p)| p))))
            })
            .collect();
        Scheduled { steps: self.steps, moved_files, moved: self.moved, free, excess, complete }
    }

    /// Makes what was vacated available, and finds out who can move now. False when nothing was pending.
    fn barrier(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.steps.push(Step::Barrier);
        self.in_epoch = 0;
        let vacated: ExtentSet = std::mem::take(&mut self.pending).into_iter().collect();
        for extent in vacated.iter() {
            self.available.insert(extent);
            let waiting = self.travellers_at(extent);
            self.set_free(extent, &waiting);
            for index in waiting {
                self.fresh.entry(index).or_default().push(extent);
                if let Some(t) = self.travellers.get_mut(index) {
                    debug_assert!(t.waiting >= t.share_of(extent), "what becomes available was waited for");
                    t.waiting = t.waiting.saturating_sub(t.share_of(extent));
                }
                self.note_ready(index);
            }
        }
        true
    }

    /// The unfinished travellers whose targets overlap an extent.
    fn travellers_at(&self, extent: Extent) -> Vec<usize> {
        let before = self.targets.range(..extent.start.0).next_back();
        let inside = self.targets.range(extent.start.0..extent.end().0);
        let overlaps = |index: &usize| self.travellers.get(*index).is_some_and(|t| !t.done && t.share_of(extent) > 0);
        before.into_iter().chain(inside).map(|(_, index)| *index).filter(overlaps).collect()
    }

    /// What of an extent pieces have that are not in place, ascending, and whose it is.
    fn owners_at(&self, extent: Extent) -> impl Iterator<Item = (Extent, Owner)> {
        let before = self.owners.range(..extent.start.0).next_back();
        let inside = self.owners.range(extent.start.0..extent.end().0);
        let part = move |(start, owner): (&u64, &Owner)| {
            Some((Extent::new(*start, owner.length).intersection(&extent)?, *owner))
        };
        before.into_iter().chain(inside).filter_map(part)
    }

    /// Moves whole units whose targets are available, until none is ready. A full epoch ends with a barrier. Units whose
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
        self.move_ready_while(|_, _| true)
    }

    /// The same as long as `wanted` says so of the scheduler and the next one's rank.
    fn move_ready_while(&mut self, wanted: impl Fn(&Self, u64) -> bool) -> Vec<(u64, u64, usize)> {
        let mut crowded = Vec::new();
        while self.ready.first().is_some_and(|(rank, ..)| wanted(self, *rank))
            && let Some(next) = self.ready.pop_first()
        {
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
        self.fresh.entry(index).or_default().extend(t.place_around(piece));
        let target = t.target;
        let Some((offset, p)) = t.pieces.get_mut(piece) else { return };
        let (offset, home, moving) = (*offset, target + *offset, *p);
        p.at = place;
        if moving.at == home {
            t.waiting += moving.length;
            t.away += moving.length;
        } else {
            self.owners.remove(&moving.at);
        }
        if place == home {
            t.away -= moving.length;
        } else {
            self.owners.insert(place, Owner { length: moving.length, traveller: index, offset });
        }
        self.excess += delta * t.owners as i64;
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
        self.spare.remove(Extent::new(place, piece.length));
        self.pending.push(Extent::new(piece.at, piece.length));
        self.in_epoch += piece.length;
        self.moved += piece.length;
    }
}
