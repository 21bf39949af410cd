//! Executes one batch: its units in order, with their space captured in advance, and a second attempt for files in use.

use super::batch_plan::{BatchPlan, Cursor, Unit};
use super::moving::End;
use super::pass::Pass;
use crate::pacer::Halt;
use crate::report::Stop;
use crate::{RoundEnd, SkipReason};
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, VolumeLayout};
use longrun_planner::{Batch, Mode};
use std::collections::BTreeSet;

/// Units that may find their place taken before a batch is called stale; of large batches one in a hundred.
const LEAST_STUCK: usize = 24;

/// Of the free space, the part that is kept as refuges at most; and the most on large volumes (64 MiB of 4 KiB blocks).
const KEPT: u64 = 32;
const KEPT_MOST: u64 = 1 << 14;

/// The part of what may be held that is held as refuges at first.
const STOCK: u64 = 4;

/// The most pieces of it: each is a capture or more.
const STOCK_PIECES: usize = 256;

/// Offers that are made to a unit to step aside.
const MOST_OFFERS: u32 = 3;

/// Refuges that one unit may be spread over: each can be a fragment more until the next round.
const MOST_REFUGES: usize = 16;

/// Of a target, the part that may be missing so that the rest of it is used first of all.
const MISSING: u64 = 8;

/// Where a unit may go whose place was taken.
#[derive(Default)]
struct Offer {
    /// In the order of its blocks.
    places: Vec<Extent>,
    /// Those of them that are no part of its target.
    refuges: Vec<Extent>,
}

/// A batch under way.
pub(super) struct BatchRun<'b> {
    cursor: Cursor<'b>,
    /// Units that stay in the way of others because their place was taken, and units that were changed.
    stuck: u32,
    /// Free space that no further move of the batch has as its target, but for what is held ([`Cursor::refuges`]).
    unused: ExtentSet,
    /// The most that is held as refuges.
    most_kept: Blocks,
    /// The largest free piece when the batch begins.
    largest_free: Option<Extent>,
}

impl<'b> BatchRun<'b> {
    pub(super) fn new(layout: &VolumeLayout, batch: &'b Batch) -> Self {
        let plan = BatchPlan::new(layout, batch);
        let unused = plan.unused(layout.free());
        let largest_free = layout.free().iter().copied().max_by_key(|piece| piece.length);
        let cursor = Cursor { plan, window_end: 0, too_large: None, crises: 0, refuges: ExtentSet::new() };
        let most_kept = Blocks((layout.free_blocks().0 / KEPT).min(KEPT_MOST));
        Self { cursor, stuck: 0, unused, most_kept, largest_free }
    }

    pub(super) fn carry_out(mut self, pass: &mut Pass<'_>) -> Result<(), Halt> {
        if pass.settings.mode != Mode::Full {
            // What the plan set out to protect is no refuge.
            self.largest_free.iter().for_each(|piece| {
                self.unused.remove(*piece);
            });
        }
        pass.tally.round.units += self.cursor.plan.units().len() as u64;
        pass.holdings.begin_batch(self.cursor.plan.needs());
        self.cursor.crises = pass.crises;
        let mut deferred: Vec<usize> = Vec::new();
        let mut waiting: BTreeSet<FileIndex> = BTreeSet::new();
        for at in 0..self.cursor.plan.units().len() {
            let Some(unit) = self.cursor.plan.units().get(at).cloned() else { break };
            if self.is_stale(pass) {
                pass.tally.given_up += 1;
                pass.tally.round.end = if pass.is_barren() { RoundEnd::NotCaptured } else { RoundEnd::PlacesTaken };
                break;
            }
            if at >= self.cursor.window_end {
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
                    let (has_no_place, is_changed) = match end {
                        End::Skipped(SkipReason::TargetTaken | SkipReason::Blocked | SkipReason::SpaceNeeded) => {
                            (self.cursor.plan.is_wanted(&unit), false)
                        }
                        End::Skipped(SkipReason::Changed) => (false, true),
                        _ => (false, false),
                    };
                    let evaded = has_no_place && self.evade(pass, at, &unit)?;
                    self.stuck += u32::from(is_changed || (has_no_place && !evaded));
                    if evaded {
                        pass.tally.round.evaded += 1;
                    } else {
                        self.count(pass, &unit, end);
                    }
                    self.finish(pass, &unit, end);
                }
            }
        }
        for at in deferred {
            let Some(unit) = self.cursor.plan.units().get(at).cloned() else { break };
            let end = self.attempt(pass, at, &unit)?;
            self.count(pass, &unit, end);
            self.finish(pass, &unit, end);
        }
        Ok(())
    }

    /// For the record of the round.
    fn count(&self, pass: &mut Pass<'_>, unit: &Unit, end: End) {
        match end {
            End::Done => pass.tally.round.done += 1,
            End::Skipped(reason) => {
                pass.tally.round.leave(reason, pass.bytes(self.cursor.plan.size_of(unit)));
            }
        }
    }

    /// Lets a unit whose place was taken step out of the way of others; true when it did.
    fn evade(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<bool, Halt> {
        for _ in 0..MOST_OFFERS {
            if self.is_stale(pass) || self.cursor.crises != pass.crises {
                break;
            }
            let Some(offer) = self.offer(pass, unit) else { break };
            let evaded = pass.evade(&mut self.cursor, at, unit, &offer.places)?;
            // Unless the unit is there, nobody will be; and what could not be obtained once is not tried again.
            offer.refuges.iter().for_each(|refuge| pass.holdings.not_needed(*refuge));
            if evaded {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where a unit may go whose place was taken. If little of its target is missing, around that; else into one refuge, if there
    /// is one for all of it; else into several.
    fn offer(&mut self, pass: &Pass<'_>, unit: &Unit) -> Option<Offer> {
        let size = self.cursor.plan.size_of(unit);
        let targets = self.cursor.plan.steps_of(unit).into_iter().map(|step| step.occupies());
        let mut missing = ExtentSet::new();
        targets.clone().for_each(|target| missing.extend(pass.holdings.missing(target)));
        if missing.total().0 > size.0 / MISSING {
            let largest = |space: &ExtentSet| space.largest().filter(|piece| piece.length >= size);
            let piece = largest(&self.cursor.refuges).or_else(|| largest(&self.unused));
            if let Some(piece) = piece {
                let refuge = Extent { start: piece.start, length: size };
                self.take(refuge);
                return Some(Offer { places: vec![refuge], refuges: vec![refuge] });
            }
        }
        let mut offer = Offer::default();
        for target in targets {
            let mut from = target.start;
            for gap in missing.overlapping(target) {
                offer.places.extend(Some(Extent::between(from, gap.start)).filter(|part| !part.is_empty()));
                from = gap.end();
                let mut left = gap.length;
                while left.0 > 0 {
                    let refuge = (offer.refuges.len() < MOST_REFUGES).then(|| self.refuge(left)).flatten();
                    let Some(refuge) = refuge else {
                        self.unused.extend(offer.refuges);
                        return None;
                    };
                    self.take(refuge);
                    left -= refuge.length;
                    offer.places.push(refuge);
                    offer.refuges.push(refuge);
                }
            }
            offer.places.extend(Some(Extent::between(from, target.end())).filter(|part| !part.is_empty()));
        }
        Some(offer)
    }

    /// The smallest refuge for `wanted` blocks, or the largest that there is for a part of them; rather one that is held.
    fn refuge(&self, wanted: Blocks) -> Option<Extent> {
        let fitting = |space: &ExtentSet| space.iter().filter(|piece| piece.length >= wanted).min_by_key(|p| p.length);
        let (held, unused) = (&self.cursor.refuges, &self.unused);
        let piece =
            fitting(held).or_else(|| fitting(unused)).or_else(|| held.largest()).or_else(|| unused.largest())?;
        Some(Extent { start: piece.start, length: piece.length.min(wanted) })
    }

    fn take(&mut self, refuge: Extent) {
        self.cursor.refuges.remove(refuge);
        self.unused.remove(refuge);
    }

    /// One block that the file system took for itself blocks a unit, that unit blocks those that wait for its place, and
    /// soon most of a plan for a full volume comes to nothing. A new plan costs a second and knows better.
    fn is_stale(&self, pass: &Pass<'_>) -> bool {
        self.stuck as usize > LEAST_STUCK.max(self.cursor.plan.units().len() / 100) || pass.is_barren()
    }

    fn open(&mut self, pass: &mut Pass<'_>, at: usize) -> Result<(), Halt> {
        let opened = self.stock_up(pass).and_then(|()| pass.open_window(&mut self.cursor, at));
        self.explain(pass, at, opened)
    }

    /// Where little may be held, a window takes all of it, and nothing is left for those who must step aside later. There, refuges
    /// are held from the beginning.
    fn stock_up(&mut self, pass: &mut Pass<'_>) -> Result<(), Halt> {
        if self.cursor.crises != pass.crises {
            // Everything was given back.
            self.cursor.crises = pass.crises;
            self.unused.extend(std::mem::take(&mut self.cursor.refuges).iter());
        }
        let allowance = pass.allowance()?;
        if !self.cursor.refuges.is_empty() || allowance >= pass.window() {
            return Ok(());
        }
        let mut left = self.most_kept.min(Blocks(allowance.0 / STOCK));
        let mut pieces: Vec<Extent> = self.unused.iter().collect();
        pieces.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.length));
        let mut stock = ExtentSet::new();
        for piece in pieces.into_iter().take(STOCK_PIECES) {
            let refuge = Extent { start: piece.start, length: piece.length.min(left) };
            self.unused.remove(refuge);
            stock.extend(Some(refuge).filter(|refuge| !refuge.is_empty()));
            left -= refuge.length;
        }
        if !stock.is_empty() {
            self.cursor.refuges = pass.capture(&stock)?;
        }
        Ok(())
    }

    fn attempt(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<End, Halt> {
        let end = pass.move_unit(&mut self.cursor, at, unit);
        self.explain(pass, at, end)
    }

    /// When others need the space, that is why the rest of the batch was left alone.
    fn explain<T>(&self, pass: &mut Pass<'_>, at: usize, result: Result<T, Halt>) -> Result<T, Halt> {
        if let Err(Halt::Stop(Stop::SpaceNeeded)) = result {
            for unit in self.cursor.plan.units().iter().skip(at) {
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
        for (at, planned) in self.cursor.plan.moves_of(unit) {
            self.cursor
                .plan
                .unused_from(planned.step.occupies(), at + 1)
                .for_each(|part| pass.holdings.not_needed(part));
            for part in self.cursor.plan.unused_from(planned.step.vacates(), at + 1) {
                if end == End::Done && self.cursor.refuges.total() + part.length <= self.most_kept {
                    self.cursor.refuges.insert(part);
                    continue;
                }
                pass.holdings.not_needed(part);
                if end == End::Done {
                    self.unused.insert(part);
                }
            }
        }
    }
}
