//! The other users of the volume: they create, write, truncate and delete files and need space while the optimizer
//! works.

use super::state::State;
use fastrand::Rng;
use longrun_layout::{Blocks, Extent, ExtentSet, LogicalBlock, PhysicalBlock};
use std::collections::BTreeMap;

/// The operations of other users, and their frequency.
#[derive(Clone, Debug, Default)]
pub struct Foreigners {
    /// Between so many of 100 points another process does something to a file.
    pub activity: u8,
    /// Between so many of 100 points another process takes free space at a random place, or at one that the optimizer wants.
    pub takers: u8,
    /// Between so many of 100 points another process begins to use a file so that it cannot be moved for a while.
    pub busy: u8,
    /// From this point on another process wants all the space that there is, and asks for more at every point.
    pub hungry_from: Option<u64>,
    /// Whether the optimizer's space is taken from it when a user would run out of space.
    pub guard: bool,
}

/// The users at work.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    pub habits: Foreigners,
    pub rng: Rng,
    /// Files that cannot be moved, until the point with this number; true when they are being executed.
    busy: BTreeMap<u32, (u64, bool)>,
    points: u64,
    /// What the optimizer last asked for.
    pub coveted: ExtentSet,
    /// Files that users changed, and files that they made.
    pub touched: BTreeMap<u32, ()>,
    /// Whether the guard has taken space from the optimizer since its last capture.
    pub yielded: bool,
    /// The file of the hungry one.
    hoard: Option<u32>,
}

impl Crowd {
    pub(super) fn new(habits: Foreigners, seed: u64) -> Self {
        Self {
            habits,
            rng: Rng::with_seed(seed),
            busy: BTreeMap::new(),
            points: 0,
            coveted: ExtentSet::new(),
            touched: BTreeMap::new(),
            yielded: false,
            hoard: None,
        }
    }

    /// `Some(executing)` while the file is in use.
    pub(super) fn busy(&self, number: u32) -> Option<bool> {
        self.busy.get(&number).filter(|(until, _)| *until > self.points).map(|(_, executing)| *executing)
    }

    /// Time passes: another process may act.
    pub(super) fn act(&mut self, state: &mut State) {
        self.points += 1;
        if self.rng.u8(..100) < self.habits.busy {
            let number = self.rng.u32(..state.numbers().end.max(1));
            let until = self.points + self.rng.u64(1..40);
            self.busy.insert(number, (until, self.rng.bool()));
        }
        if self.rng.u8(..100) < self.habits.takers {
            self.take_a_place(state);
        }
        if self.rng.u8(..100) < self.habits.activity {
            self.use_a_file(state);
        }
        if self.habits.hungry_from.is_some_and(|from| self.points >= from) {
            self.hoard(state);
        }
    }

    fn use_a_file(&mut self, state: &mut State) {
        let number = self.rng.u32(..state.numbers().end.max(1));
        // A write to shared blocks would have to go somewhere else, which the simulation does not know.
        let is_left_alone = state.pin(number).is_some() || state.is_directory(number) || state.is_shared(number);
        if is_left_alone || self.hoard == Some(number) {
            return;
        }
        let Some(file) = state.view(number).filter(|f| !f.deleted) else { return };
        self.touched.insert(number, ());
        let size = file.end().0;
        let at = LogicalBlock(self.rng.u64(..size.max(1)));
        let length = Blocks(self.rng.u64(1..=(size / 4).max(1)));
        match self.rng.u8(..7) {
            0 => {
                let goal = file.runs.last().map_or(PhysicalBlock(0), |r| r.extent().end());
                let wanted = Blocks(self.rng.u64(1..8));
                self.append(state, number, goal, wanted);
            }
            1 => state.write(number, at, file.at(at).map_or(Blocks(0), |e| e.length.min(length))),
            2 => state.cut(number, at, Blocks(size.saturating_sub(at.0))),
            3 => state.cut(number, at, length),
            4 => {
                state.cut(number, LogicalBlock(0), Blocks(size));
                if let Some(file) = state.change(number) {
                    file.deleted = true;
                }
            }
            5 => {
                let new = state.create();
                let goal = PhysicalBlock(self.rng.u64(..state.base.total_blocks().0.max(1)));
                let wanted = Blocks(self.rng.u64(1..12));
                self.touched.insert(new, ());
                self.append(state, new, goal, wanted);
            }
            _ => {
                // A file replaced in place: same identity, everything somewhere else.
                state.cut(number, LogicalBlock(0), Blocks(size));
                let goal = PhysicalBlock(self.rng.u64(..state.base.total_blocks().0.max(1)));
                self.append(state, number, goal, Blocks(size));
            }
        }
    }

    fn take_a_place(&mut self, state: &mut State) {
        let from = if self.rng.bool() { &self.coveted } else { &state.free };
        let pieces = from.pieces();
        if pieces == 0 {
            return;
        }
        let Some(piece) = from.iter().nth(self.rng.usize(..pieces)) else { return };
        let within = Extent::new(piece.start.0 + self.rng.u64(..piece.length.0), self.rng.u64(1..6));
        let Some(place) = state.free.overlapping(within).next() else { return };
        let new = state.create();
        self.touched.insert(new, ());
        state.extend(new, LogicalBlock(0), place);
    }

    fn append(&mut self, state: &mut State, number: u32, goal: PhysicalBlock, mut wanted: Blocks) {
        let Some(mut logical) = state.view(number).map(|f| f.end()) else { return };
        while wanted.0 > 0 {
            let behind = Extent::between(goal, state.base.whole().end());
            let Some(piece) = state.free.overlapping(behind).next().or_else(|| state.free.iter().next()) else {
                if self.make_space(state, wanted) { continue } else { return }
            };
            let place = Extent { start: piece.start, length: piece.length.min(wanted) };
            state.extend(number, logical, place);
            logical = logical + place.length;
            wanted -= place.length;
        }
    }

    /// Nothing is free any more: wait for the commit, then have the optimizer's space taken from it.
    fn make_space(&mut self, state: &mut State, wanted: Blocks) -> bool {
        if state.freed.is_empty() && self.habits.guard {
            let mut missing = wanted;
            for held in state.owned.clone().iter() {
                let given = Extent { start: held.start, length: held.length.min(missing) };
                self.yielded = true;
                state.owned.remove(given);
                state.freed.insert(given);
                missing -= given.length;
                if missing.0 == 0 {
                    break;
                }
            }
        }
        let anything = !state.freed.is_empty();
        state.commit();
        anything
    }

    fn hoard(&mut self, state: &mut State) {
        let hoard = match self.hoard {
            Some(number) => number,
            None => *self.hoard.insert(state.create()),
        };
        self.touched.insert(hoard, ());
        if state.free.is_empty() {
            state.commit();
        }
        let Some(mut logical) = state.view(hoard).map(|f| f.end()) else { return };
        for piece in state.free.clone().iter() {
            state.extend(hoard, logical, piece);
            logical = logical + piece.length;
        }
    }

    /// What the hungry one got.
    pub(super) fn hoarded(&self, state: &State) -> Blocks {
        let file = self.hoard.and_then(|number| state.view(number));
        file.map_or(Blocks(0), |f| f.runs.iter().map(|r| r.length).sum())
    }
}
