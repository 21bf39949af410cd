//! The preparation of a batch: its units, the last use of each block, and the blocks to capture for each unit.
//!
//! Pure: uses the plan and the holdings, and never touches a volume.

use super::holdings::Holdings;
use crate::SkipReason;
use crate::range_map::{RangeMap, Slide};
use longrun_layout::{Blocks, Extent, ExtentSet, FileId, FileIndex, FileMove, VolumeLayout};
use longrun_planner::{Batch, PlannedMove};
use std::ops::Range;

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

/// What the planner's batch asks for, in units.
pub(super) struct BatchPlan {
    moves: Vec<PlannedMove>,
    units: Vec<Unit>,
    /// Free when the batch begins, by the plan.
    needs: ExtentSet,
    /// The last move of the batch that has a block as its target.
    last_use: RangeMap<MoveIndex>,
}

impl BatchPlan {
    pub(super) fn new(layout: &VolumeLayout, batch: &Batch) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        let moves: Vec<PlannedMove> = batch.moves().copied().collect();
        for (at, planned) in moves.iter().enumerate() {
            let index = planned.step.file;
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
        let last_use = last_use(&moves);
        Self { moves, units, needs: batch.needs_free(), last_use }
    }

    /// The moves of a unit in parts of `most` blocks: what it would be divided into. What is twice as long is not cut: it can be held alone,
    /// and would lie in more fragments meanwhile.
    pub(super) fn parts_of(&self, unit: &Unit, most: Blocks) -> Vec<Vec<PlannedMove>> {
        let (mut parts, mut left) = (Vec::<Vec<PlannedMove>>::new(), Blocks(0));
        for (_, planned) in self.moves_of(unit) {
            let mut rest = planned.step;
            while rest.length.0 > 0 && most.0 > 0 {
                let is_short = rest.length.0 <= most.0 * 2;
                if left.0 == 0 || (is_short && rest.length > left) {
                    parts.push(Vec::new());
                    left = most;
                }
                let step = FileMove { length: if is_short { rest.length } else { left }, ..rest };
                left = left.saturating_sub(step.length);
                parts.last_mut().into_iter().for_each(|part| part.push(PlannedMove { step, ..planned }));
                rest = FileMove {
                    logical: rest.logical + step.length,
                    source: rest.source + step.length,
                    target: rest.target + step.length,
                    length: rest.length - step.length,
                    ..rest
                };
            }
        }
        parts
    }

    /// Puts units for `parts` in the place of the unit at `at`: each leaves its blocks to the next.
    pub(super) fn divide(&mut self, at: usize, parts: Vec<Vec<PlannedMove>>) {
        let Some(unit) = self.units.get(at).cloned() else { return };
        let moves = parts.concat();
        let more = moves.len() - unit.moves.len();
        for behind in self.units.iter_mut().skip(at + 1) {
            behind.moves = behind.moves.start + more..behind.moves.end + more;
        }
        let mut end = unit.moves.start;
        let units = parts.iter().map(|part| {
            end += part.len();
            Unit { moves: end - part.len()..end, ..unit.clone() }
        });
        self.units.splice(at..=at, units.collect::<Vec<_>>());
        self.moves.splice(unit.moves, moves);
        self.last_use = last_use(&self.moves);
    }

    pub(super) fn units(&self) -> &[Unit] {
        &self.units
    }

    pub(super) fn needs(&self) -> &ExtentSet {
        &self.needs
    }

    /// The parts of `free` that no move has as its target.
    pub(super) fn unused(&self, free: &[Extent]) -> ExtentSet {
        let unused = |(part, last): (Extent, Option<MoveIndex>)| last.is_none().then_some(part);
        free.iter().flat_map(|piece| self.last_use.parts(*piece)).filter_map(unused).collect()
    }

    /// Whether units behind this one are to have a place that `steps` leave.
    pub(super) fn is_wanted(&self, unit: &Unit, steps: &[FileMove]) -> bool {
        let behind = MoveIndex(unit.moves.end);
        let wanted = |step: &FileMove| self.last_use.overlapping(step.vacates()).any(|(_, last)| last >= behind);
        steps.iter().any(wanted)
    }

    /// The parts of `place` that no move from `from` on has as its target.
    pub(super) fn unused_from(&self, place: Extent, from: usize) -> impl Iterator<Item = Extent> {
        let parts = self.last_use.parts(place).into_iter();
        parts.filter(move |(_, last)| last.is_none_or(|last| last < MoveIndex(from))).map(|(part, _)| part)
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

    /// The blocks that a unit moves.
    pub(super) fn size_of(&self, unit: &Unit) -> Blocks {
        self.moves_of(unit).into_iter().map(|(_, planned)| planned.step.length).sum()
    }

    /// The moves of a unit with their positions.
    pub(super) fn moves_of(&self, unit: &Unit) -> Vec<(usize, PlannedMove)> {
        let moves = self.moves.get(unit.moves.clone()).unwrap_or_default();
        (unit.moves.start..).zip(moves.iter().copied()).collect()
    }

    /// What the units from `from` on want captured: at most `window` blocks or what the first of them wants, and never
    /// more than `allowance`.
    pub(super) fn window(&self, holdings: &Holdings, from: usize, window: Blocks, allowance: Blocks) -> Window {
        let mut next = Window { wanted: ExtentSet::new(), end: from };
        let mut vacated = ExtentSet::new();
        for unit in self.units.iter().skip(from) {
            let mut wanted = Vec::new();
            for (_, planned) in self.moves_of(unit) {
                for missing in holdings.missing(planned.step.occupies()) {
                    for part in vacated.gaps(missing) {
                        wanted.extend(self.needs.overlapping(part));
                        wanted.extend(holdings.lost().overlapping(part));
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
}

/// The last move that has a block as its target.
fn last_use(moves: &[PlannedMove]) -> RangeMap<MoveIndex> {
    let mut last_use = RangeMap::default();
    for (at, planned) in moves.iter().enumerate() {
        last_use.assign(planned.step.occupies(), MoveIndex(at));
    }
    last_use
}

/// Where the carrying out of a batch is.
pub(super) struct Cursor {
    pub plan: BatchPlan,
    /// The first unit whose space has not been captured.
    pub window_end: usize,
    /// The unit that needs more space than may be held.
    pub too_large: Option<usize>,
    /// The pass's crises when the window was opened: after one, the window must be opened again.
    pub crises: u32,
    /// Held space that no further move has as its target, for units that cannot have their place.
    pub refuges: ExtentSet,
    /// The same, but not held for that: it may still be PENDING, and much of it was never captured.
    pub unused: ExtentSet,
}

impl Cursor {
    /// The refuges are no longer held for that.
    pub(super) fn give_up_refuges(&mut self) {
        self.unused.extend(std::mem::take(&mut self.refuges).iter());
    }

    /// The smallest held refuge for `wanted` blocks, else any for them, else the largest that there is for a part of them.
    pub(super) fn refuge(&self, wanted: Blocks) -> Option<Extent> {
        let fits = |piece: &Extent| piece.length >= wanted;
        let held = || self.refuges.iter().filter(fits).min_by_key(|piece| piece.length);
        let largest = || self.refuges.largest().or_else(|| self.unused.largest());
        let piece = held().or_else(|| self.unused.iter().find(fits)).or_else(largest)?;
        Some(Extent { start: piece.start, length: piece.length.min(wanted) })
    }

    pub(super) fn take(&mut self, refuge: Extent) {
        self.refuges.remove(refuge);
        self.unused.remove(refuge);
    }

    /// A refuge was not used.
    pub(super) fn put_back(&mut self, holdings: &Holdings, refuge: Extent) {
        let is_held = holdings.missing(refuge).is_empty();
        if is_held { &mut self.refuges } else { &mut self.unused }.insert(refuge);
    }

    /// Why a target is not ours.
    pub(super) fn why_not_ours(&self, holdings: &Holdings, target: Extent, unit: usize) -> SkipReason {
        let missing = holdings.missing(target);
        if self.too_large == Some(unit) || missing.iter().any(|part| holdings.is_lost(*part)) {
            SkipReason::SpaceNeeded
        } else if missing.iter().any(|part| self.plan.needs.overlapping(*part).next().is_some()) {
            SkipReason::TargetTaken
        } else {
            SkipReason::Blocked
        }
    }
}

/// What to capture next, and how far that carries.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub wanted: ExtentSet,
    /// The first unit that it does not serve.
    pub end: usize,
}
