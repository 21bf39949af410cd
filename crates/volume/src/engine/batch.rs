//! Carrying out one batch: units in order, with their space captured ahead, and a second chance for files in use.

use super::ledger::Ledger;
use super::moving::End;
use super::pacer::Halt;
use super::pass::Pass;
use super::report::Stop;
use super::space::Window;
use crate::SkipReason;
use crate::range_map::{RangeMap, Slide};
use longrun_layout::{Blocks, Extent, ExtentSet, FileId, FileIndex, FileMove, VolumeLayout};
use longrun_planner::{Batch, Mode, PlannedMove};
use std::collections::BTreeSet;
use std::ops::Range;

/// Units that may find their place taken before a batch is called stale; of large batches one in a hundred.
const LEAST_STUCK: usize = 24;

/// Places that a unit is offered to step aside to.
const MOST_REFUGES: u32 = 3;

/// The position of a move in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MoveIndex(usize);

impl Slide for MoveIndex {
    fn slide(self, _by: u64) -> Self {
        self
    }
}

/// Consecutive moves of one file: what is carried out or taken back together. Barriers of the plan do not divide units,
/// since the engine places its own by need.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub file: FileIndex,
    pub id: FileId,
    /// How many files move with it, itself included.
    pub owners: i64,
    pub moves: Range<usize>,
}

/// A batch under way.
pub(super) struct BatchRun<'b> {
    moves: Vec<&'b PlannedMove>,
    units: Vec<Unit>,
    /// Free when the batch begins, by the plan.
    needs: ExtentSet,
    /// The last move of the batch that has a block as its target.
    last_use: RangeMap<MoveIndex>,
    /// The first unit whose space has not been captured.
    pub window_end: usize,
    /// The unit that needs more space than may be held.
    pub too_large: Option<usize>,
    /// Units that stay in the way of others because their place was taken, and units that were changed.
    stuck: u32,
    /// Free space that no further move of the batch has as its target.
    refuges: ExtentSet,
    /// The largest free piece when the batch begins.
    largest_free: Option<Extent>,
    /// The pass's crises when the window was opened: after one, the window must be opened again.
    pub crises: u32,
}

impl<'b> BatchRun<'b> {
    pub(super) fn new(layout: &VolumeLayout, batch: &'b Batch) -> Self {
        let moves: Vec<&PlannedMove> = batch.moves().collect();
        let mut units: Vec<Unit> = Vec::new();
        let mut last_use = RangeMap::default();
        for (at, planned) in moves.iter().enumerate() {
            let index = planned.step.file;
            last_use.assign(planned.step.occupies(), MoveIndex(at));
            match units.last_mut() {
                Some(unit) if unit.file == index && unit.moves.end == at => unit.moves.end = at + 1,
                _ => {
                    // A plan for files that the layout does not have is carried out as one for no file.
                    let Some(file) = layout.file(index) else { continue };
                    let owners = layout.owners(index) as i64;
                    units.push(Unit { file: index, id: file.id(), owners, moves: at..at + 1 });
                }
            }
        }
        let needs = batch.needs_free();
        let unused = |(part, last): (Extent, Option<MoveIndex>)| last.is_none().then_some(part);
        let refuges = layout.free().iter().flat_map(|piece| last_use.parts(*piece)).filter_map(unused).collect();
        let largest_free = layout.free().iter().copied().max_by_key(|piece| piece.length);
        let (window_end, too_large, stuck, crises) = (0, None, 0, 0);
        Self { moves, units, needs, last_use, window_end, too_large, stuck, refuges, largest_free, crises }
    }

    pub(super) fn carry_out(mut self, pass: &mut Pass<'_>) -> Result<(), Halt> {
        if pass.settings.mode != Mode::Full {
            // What the plan set out to protect is no refuge.
            self.largest_free.iter().for_each(|piece| {
                self.refuges.remove(*piece);
            });
        }
        pass.ledger.begin_batch(&self.needs);
        self.crises = pass.crises;
        let mut deferred: Vec<usize> = Vec::new();
        let mut waiting: BTreeSet<FileIndex> = BTreeSet::new();
        for at in 0..self.units.len() {
            let Some(unit) = self.units.get(at).cloned() else { break };
            if self.is_stale() {
                break;
            }
            if at >= self.window_end {
                self.open(pass, at)?;
            }
            if waiting.contains(&unit.file) {
                deferred.push(at);
                continue;
            }
            match self.attempt(pass, at, &unit)? {
                End::Skipped(SkipReason::Busy | SkipReason::Executing) => {
                    waiting.insert(unit.file);
                    deferred.push(at);
                }
                // What it waits for may still come free: the files in use get a second chance, and it with them.
                End::Skipped(SkipReason::Blocked) if !deferred.is_empty() => {
                    waiting.insert(unit.file);
                    deferred.push(at);
                }
                end => {
                    let in_the_way = match end {
                        End::Skipped(SkipReason::TargetTaken | SkipReason::Blocked | SkipReason::SpaceNeeded) => {
                            self.is_wanted(&unit) && !self.evade(pass, at, &unit)?
                        }
                        End::Skipped(SkipReason::Changed) => true,
                        _ => false,
                    };
                    self.stuck += u32::from(in_the_way);
                    self.finish(pass, &unit, end);
                }
            }
        }
        for at in deferred {
            let Some(unit) = self.units.get(at).cloned() else { break };
            let end = self.attempt(pass, at, &unit)?;
            self.finish(pass, &unit, end);
        }
        Ok(())
    }

    /// Whether units behind this one are to have its present place.
    fn is_wanted(&self, unit: &Unit) -> bool {
        let behind = MoveIndex(unit.moves.end);
        let wanted = |step: &FileMove| self.last_use.overlapping(step.vacates()).any(|(_, last)| last >= behind);
        self.steps_of(unit).iter().any(wanted)
    }

    /// Lets a unit whose place was taken step out of the way of others; true when it did.
    fn evade(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<bool, Halt> {
        let size: Blocks = self.steps_of(unit).iter().map(|step| step.length).sum();
        for _ in 0..MOST_REFUGES {
            let largest = self.refuges.largest().filter(|piece| piece.length >= size);
            let Some(piece) = largest.filter(|_| self.crises == pass.crises) else { break };
            let refuge = Extent { start: piece.start, length: size };
            // Whatever comes of it: what could not be had once is not tried again.
            self.refuges.remove(refuge);
            if pass.evade(self, at, unit, refuge)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One block that the file system took for itself blocks a unit, that unit blocks those that wait for its place, and
    /// soon most of a plan for a full volume comes to nothing. A new plan costs a second and knows better.
    fn is_stale(&self) -> bool {
        self.stuck as usize > LEAST_STUCK.max(self.units.len() / 100)
    }

    fn open(&mut self, pass: &mut Pass<'_>, at: usize) -> Result<(), Halt> {
        let opened = pass.open_window(self, at);
        self.explain(pass, at, opened)
    }

    fn attempt(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<End, Halt> {
        let end = pass.move_unit(self, at, unit);
        self.explain(pass, at, end)
    }

    /// When others need the space, that is why the rest of the batch was left alone.
    fn explain<T>(&self, pass: &mut Pass<'_>, at: usize, result: Result<T, Halt>) -> Result<T, Halt> {
        if let Err(Halt::Stop(Stop::SpaceNeeded)) = result {
            for unit in self.units.iter().skip(at) {
                pass.skip(unit.id, SkipReason::SpaceNeeded);
            }
        }
        result
    }

    /// A unit is over, one way or the other: what it vacated, or was to use, may be given back unless a later move needs
    /// it.
    fn finish(&mut self, pass: &mut Pass<'_>, unit: &Unit, end: End) {
        match end {
            End::Done => pass.tally.done(unit.id),
            End::Skipped(reason) => pass.skip(unit.id, reason),
        }
        for (at, planned) in self.moves_of(unit) {
            for place in [planned.step.vacates(), planned.step.occupies()] {
                self.part_with(&mut pass.ledger, place, at + 1);
            }
            if end == End::Done {
                let left = self.last_use.parts(planned.step.vacates()).into_iter();
                let free = left.filter(|(_, last)| last.is_none_or(|last| last <= MoveIndex(at))).map(|(part, _)| part);
                self.refuges.extend(free);
            }
        }
    }

    /// Marks the held parts of `place` that no move from `from` on has as its target.
    fn part_with(&self, ledger: &mut Ledger, place: Extent, from: usize) {
        for (part, last) in self.last_use.parts(place) {
            if last.is_none_or(|last| last < MoveIndex(from)) {
                ledger.not_needed(part);
            }
        }
    }

    /// The targets of the units from `from` on: of that one, and of those behind it as long as they are at most `most`.
    pub(super) fn targets_ahead(&self, from: usize, most: Blocks) -> ExtentSet {
        let mut targets = ExtentSet::new();
        for unit in self.units.iter().skip(from) {
            let of_unit = self.moves_of(unit).into_iter().map(|(_, planned)| planned.step.occupies());
            if !targets.is_empty() && targets.total() + of_unit.clone().map(|t| t.length).sum() > most {
                break;
            }
            targets.extend(of_unit);
        }
        targets
    }

    /// The steps of a unit.
    pub(super) fn steps_of(&self, unit: &Unit) -> Vec<FileMove> {
        self.moves_of(unit).into_iter().map(|(_, planned)| planned.step).collect()
    }

    /// The moves of a unit with their positions.
    pub(super) fn moves_of(&self, unit: &Unit) -> Vec<(usize, &'b PlannedMove)> {
        let moves = self.moves.get(unit.moves.clone()).unwrap_or_default();
        (unit.moves.start..).zip(moves.iter().copied()).collect()
    }

    /// What the units from `from` on want captured: at most `window` blocks or what the first of them wants, and never
    /// more than `allowance`.
    pub(super) fn window(&self, ledger: &Ledger, from: usize, window: Blocks, allowance: Blocks) -> Window {
        let mut next = Window { wanted: ExtentSet::new(), end: from };
        let mut vacated = ExtentSet::new();
        for unit in self.units.iter().skip(from) {
            let mut wanted = Vec::new();
            for (_, planned) in self.moves_of(unit) {
                for missing in ledger.missing(planned.step.occupies()) {
                    for part in vacated.gaps(missing) {
                        wanted.extend(self.needs.overlapping(part));
                        wanted.extend(ledger.lost().overlapping(part));
                    }
                }
                vacated.insert(planned.step.vacates());
            }
            let more: Blocks = wanted.iter().map(|e: &Extent| e.length).sum();
            let total = next.wanted.total() + more;
            if total > allowance || (total > window && !next.wanted.is_empty()) {
                break;
            }
            next.wanted.extend(wanted);
            next.end += 1;
        }
        next
    }

    /// Why a target is not ours.
    pub(super) fn why_not_ours(&self, ledger: &Ledger, target: Extent, unit: usize) -> SkipReason {
        let missing = ledger.missing(target);
        if self.too_large == Some(unit) || missing.iter().any(|part| ledger.is_lost(*part)) {
            SkipReason::SpaceNeeded
        } else if missing.iter().any(|part| self.needs.overlapping(*part).next().is_some()) {
            SkipReason::TargetTaken
        } else {
            SkipReason::Blocked
        }
    }
}
