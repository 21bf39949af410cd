//! Executes one batch: its units in order, with their space captured in advance, and a second attempt for files in use.

use super::batch_plan::{BatchPlan, Cursor, Unit};
use super::evasion::Evaded;
use super::moving::{End, from_where_they_lie, span};
use super::pass::Pass;
use crate::pacer::Halt;
use crate::report::Stop;
use crate::{RoundEnd, SkipReason};
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, FileMove, VolumeLayout};
use longrun_planner::{Batch, Mode};
use std::collections::BTreeSet;

/// Units that may find their place taken before a batch is called stale; of large batches one in a hundred.
const LEAST_STUCK: usize = 24;

/// Of the free space, the part that is kept as refuges at most; and the most on large volumes (64 MiB of 4 KiB blocks).
const KEPT: u64 = 32;
const KEPT_MOST: u64 = 1 << 14;

/// So many times as much is kept when it was held already, for units that did not get it.
const ABANDONED: u64 = 4;

/// The part of what may be held that is held as refuges at first.
const STOCK: u64 = 4;

/// The most pieces of it: each is a capture or more.
const STOCK_PIECES: usize = 256;

/// Refuges that one unit may be spread over: each can be two fragments more until the next round. Of a unit in many pieces, one for
/// each eight of its moves: it is in a quarter of them afterwards.
const MOST_REFUGES: usize = 16;
const MOVES_FOR_A_REFUGE: usize = 8;

/// Of a target, the part that may be missing so that the rest of it is used first of all.
const MISSING: u64 = 8;

/// How a unit whose place was taken may step aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Around the blocks that are missing of its target.
    Around,
    /// Into one piece.
    Whole,
}

/// Where a unit may go whose place was taken.
#[derive(Default)]
struct Offer {
    /// In the order of its blocks.
    places: Vec<Extent>,
    /// Those of them that are no part of its target.
    refuges: Vec<Extent>,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Nothing was moved: the plan needs blocks that cannot be captured, and a better one can be made at once.
    NotYet,
    /// It was carried out, or as much of it as fits the volume.
    AsFarAsPossible,
}

/// A batch under way.
pub(super) struct BatchRun {
    cursor: Cursor,
    /// Units that stay in the way of others because their place was taken, and units that were changed.
    stuck: u32,
    /// Files that stepped aside: they may not lie where their later moves believe.
    displaced: BTreeSet<FileIndex>,
    /// The most that is held as refuges.
    most_kept: Blocks,
    /// The largest free piece when the batch begins.
    largest_free: Option<Extent>,
}

impl BatchRun {
    /// `assigned`: the targets of earlier batches of the round, which are no longer free although the layout says so.
    pub(super) fn new(layout: &VolumeLayout, batch: &Batch, assigned: &ExtentSet) -> Self {
        let plan = BatchPlan::new(layout, batch);
        let mut unused = plan.unused(layout.free());
        for extent in assigned.iter() {
            unused.remove(extent);
        }
        let largest_free = layout.free().iter().copied().max_by_key(|piece| piece.length);
        let cursor = Cursor { plan, window_end: 0, too_large: None, crises: 0, refuges: ExtentSet::new(), unused };
        let most_kept = Blocks((layout.free_blocks().0 / KEPT).min(KEPT_MOST));
        Self { cursor, stuck: 0, displaced: BTreeSet::new(), most_kept, largest_free }
    }

    /// `may_plan_again`: nothing has moved yet, and a plan can still be made that does without what cannot be captured.
    pub(super) fn carry_out(mut self, pass: &mut Pass<'_>, may_plan_again: bool) -> Result<Fit, Halt> {
        if pass.settings.mode != Mode::Full {
            // What the plan set out to protect is no refuge.
            self.largest_free.iter().for_each(|piece| {
                self.cursor.unused.remove(*piece);
            });
        }
        pass.holdings.begin_batch(self.cursor.plan.needs());
        self.cursor.crises = pass.crises;
        if !self.cursor.plan.units().is_empty() {
            self.open(pass, 0)?;
        }
        if may_plan_again && self.lacks_places(pass) {
            return Ok(Fit::NotYet);
        }
        let carried_out = self.units_in_turn(pass);
        pass.tally.round.units += self.cursor.plan.units().len() as u64;
        carried_out.map(|()| Fit::AsFarAsPossible)
    }

    fn units_in_turn(&mut self, pass: &mut Pass<'_>) -> Result<(), Halt> {
        let mut deferred: Vec<usize> = Vec::new();
        let mut waiting: BTreeSet<FileIndex> = BTreeSet::new();
        for at in 0.. {
            // There are more when one was divided.
            if at >= self.cursor.plan.units().len() {
                break;
            }
            if self.is_stale(pass) {
                pass.tally.given_up += 1;
                pass.tally.round.end = if pass.is_barren() { RoundEnd::NotCaptured } else { RoundEnd::PlacesTaken };
                break;
            }
            if at >= self.cursor.window_end {
                self.open(pass, at)?;
            }
            let Some(unit) = self.cursor.plan.units().get(at).cloned() else { break };
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
                            (self.is_in_the_way(pass, &unit)?, false)
                        }
                        End::Skipped(SkipReason::Changed) => (false, true),
                        _ => (false, false),
                    };
                    let evaded = has_no_place && self.evade(pass, at, &unit)?;
                    self.stuck += u32::from(is_changed || (has_no_place && !evaded));
                    if evaded {
                        pass.tally.round.evaded += 1;
                        self.displaced.insert(unit.file);
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

    /// Whether blocks that the plan needs turned out to be out of reach: on ext4 a few are always taken by the extent trees of what
    /// is captured with them.
    fn lacks_places(&self, pass: &Pass<'_>) -> bool {
        if self.cursor.window_end < self.cursor.plan.units().len() {
            // Where little can be held at a time, more would be missed later, and the new plan would have lost its own space to
            // what is held for the old one.
            return false;
        }
        let needs = self.cursor.plan.needs();
        pass.out_of_reach.iter().any(|lost| needs.overlapping(lost).next().is_some())
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

    /// Whether units behind this one wait for where it lies.
    fn is_in_the_way(&self, pass: &mut Pass<'_>, unit: &Unit) -> Result<bool, Halt> {
        let mut steps = self.cursor.plan.steps_of(unit);
        if self.displaced.contains(&unit.file) {
            // Parts of it have stepped aside, and are in nobody's way.
            let map = pass.map_again(unit, span(&steps))?;
            let Some(found) = map.and_then(|map| from_where_they_lie(&steps, map)) else { return Ok(false) };
            steps = found;
        }
        Ok(self.cursor.plan.is_wanted(unit, &steps))
    }

    /// Lets a unit whose place was taken step out of the way of others; true when it did.
    fn evade(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<bool, Halt> {
        let size = self.cursor.plan.size_of(unit);
        let steps = self.cursor.plan.steps_of(unit);
        let targets: Vec<Extent> = steps.iter().map(FileMove::occupies).collect();
        let Some(missing) = pass.out_of_place(unit, &steps)? else { return Ok(false) };
        let most = MOST_REFUGES.max(steps.len() / MOVES_FOR_A_REFUGE);
        let little = missing.total().0 <= size.0 / MISSING;
        let ways = if little {
            [Way::Around, Way::Whole, Way::Whole, Way::Whole]
        } else {
            [Way::Whole, Way::Whole, Way::Whole, Way::Around]
        };
        let mut refused = None;
        for way in ways {
            if self.is_stale(pass) || self.cursor.crises != pass.crises {
                break;
            }
            if refused == Some(way) {
                continue;
            }
            let offer = match way {
                Way::Around => self.around(pass, &targets, &missing, most),
                Way::Whole => self.whole(size),
            };
            let Some(offer) = offer else { continue };
            let evaded = pass.evade(&mut self.cursor, at, unit, &offer.places)?;
            for refuge in offer.refuges {
                match evaded {
                    Evaded::Refused => self.cursor.put_back(&pass.holdings, refuge),
                    // Unless the unit is there, nobody will be; and what could not be obtained once is not tried again.
                    Evaded::Done | Evaded::NotObtained => pass.holdings.not_needed(refuge),
                }
            }
            if evaded == Evaded::Done {
                return Ok(true);
            }
            // The same again would be refused again.
            refused = (evaded == Evaded::Refused).then_some(way);
        }
        Ok(false)
    }

    /// One piece for all of a unit.
    fn whole(&mut self, size: Blocks) -> Option<Offer> {
        let largest = |space: &ExtentSet| space.largest().filter(|piece| piece.length >= size);
        let piece = largest(&self.cursor.refuges).or_else(|| largest(&self.cursor.unused))?;
        let refuge = Extent { start: piece.start, length: size };
        self.cursor.take(refuge);
        Some(Offer { places: vec![refuge], refuges: vec![refuge] })
    }

    /// What is there of a unit's targets, and `most` refuges for the blocks that are missing.
    fn around(&mut self, pass: &Pass<'_>, targets: &[Extent], missing: &ExtentSet, most: usize) -> Option<Offer> {
        let mut offer = Offer::default();
        for target in targets {
            let held = missing.gaps(*target).into_iter().map(|part| (part, true));
            let mut parts: Vec<(Extent, bool)> =
                held.chain(missing.overlapping(*target).map(|part| (part, false))).collect();
            parts.sort_unstable_by_key(|(part, _)| part.start);
            for (part, is_held) in parts {
                if is_held {
                    offer.places.push(part);
                    continue;
                }
                let mut left = part.length;
                while left.0 > 0 {
                    let refuge = (offer.refuges.len() < most).then(|| self.cursor.refuge(left)).flatten();
                    let Some(refuge) = refuge else {
                        offer.refuges.into_iter().for_each(|refuge| self.cursor.put_back(&pass.holdings, refuge));
                        return None;
                    };
                    self.cursor.take(refuge);
                    left -= refuge.length;
                    offer.places.push(refuge);
                    offer.refuges.push(refuge);
                }
            }
        }
        // With nothing missing it is where the unit did not get.
        Some(offer).filter(|offer| !offer.refuges.is_empty())
    }

    /// One block that the file system took for itself blocks a unit, that unit blocks those that wait for its place, and
    /// soon most of a plan for a full volume comes to nothing. A new plan costs a second and knows better.
    fn is_stale(&self, pass: &Pass<'_>) -> bool {
        self.stuck as usize > LEAST_STUCK.max(self.cursor.plan.units().len() / 100) || pass.is_barren()
    }

    fn open(&mut self, pass: &mut Pass<'_>, at: usize) -> Result<(), Halt> {
        let opened = self.stock_up(pass).and_then(|()| pass.open_window(&mut self.cursor, at));
        self.explain(pass, at, opened)?;
        if self.cursor.too_large == Some(at) && self.divide(pass, at)? {
            let opened = pass.open_window(&mut self.cursor, at);
            self.explain(pass, at, opened)?;
        }
        Ok(())
    }

    /// A unit needs more than may be held at once. In parts it gets there as well, each of which gives back what it left; where nothing
    /// has been saved that permits its file to lie in more fragments meanwhile, it stays whole.
    fn divide(&mut self, pass: &mut Pass<'_>, at: usize) -> Result<bool, Halt> {
        let Some(unit) = self.cursor.plan.units().get(at).cloned() else { return Ok(false) };
        let parts = self.cursor.plan.parts_of(&unit, Blocks(pass.allowance()?.0 / 2));
        let Some(first) = parts.first().filter(|_| parts.len() > 1) else { return Ok(false) };
        let steps: Vec<FileMove> = first.iter().map(|planned| planned.step).collect();
        let Some(map) = pass.map_again(&unit, span(&steps))? else { return Ok(false) };
        if pass.would_harm(&unit, &map, &steps, map.fragments()) {
            return Ok(false);
        }
        self.cursor.plan.divide(at, parts);
        Ok(true)
    }

    /// Where little may be held, a window takes all of it, and nothing is left for those who must step aside later. There, refuges
    /// are held from the beginning.
    fn stock_up(&mut self, pass: &mut Pass<'_>) -> Result<(), Halt> {
        let allowance = pass.allowance()?;
        let most = self.most_kept.min(Blocks(allowance.0 / STOCK));
        if !self.cursor.refuges.is_empty() || allowance >= pass.window() || most.0 == 0 {
            return Ok(());
        }
        let mut wanted = ExtentSet::new();
        for refuge in self.cursor.unused.largest_up_to(most).take(STOCK_PIECES) {
            self.cursor.take(refuge);
            // What is held already is no capture: vacated blocks are PENDING.
            pass.holdings.keep(refuge);
            let missing = pass.holdings.missing_of(&[refuge]);
            self.cursor.refuges.extend(missing.gaps(refuge));
            wanted.extend(missing.iter());
        }
        if !wanted.is_empty() {
            self.cursor.refuges.extend(pass.capture(&wanted)?.iter());
        }
        Ok(())
    }

    fn attempt(&mut self, pass: &mut Pass<'_>, at: usize, unit: &Unit) -> Result<End, Halt> {
        let end = pass.move_unit(&mut self.cursor, at, unit, self.displaced.contains(&unit.file));
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

    /// What is held of a place that its unit does not get. It is as good a refuge as the one that the unit took instead:
    /// otherwise each place that is taken costs a refuge, and soon there is none.
    fn keep_or_leave(&mut self, pass: &mut Pass<'_>, place: Extent) {
        let missing = pass.holdings.missing_of(&[place]);
        for held in missing.gaps(place) {
            if self.cursor.refuges.total() + held.length <= Blocks(self.most_kept.0 * ABANDONED) {
                self.cursor.refuges.insert(held);
            } else {
                pass.holdings.not_needed(held);
            }
        }
    }

    /// A unit is over, one way or the other: what it vacated, or was to use, may be given back unless a later move needs
    /// it.
    fn finish(&mut self, pass: &mut Pass<'_>, unit: &Unit, end: End) {
        match end {
            End::Done => pass.tally.done(unit.id),
            End::Skipped(reason) => pass.skip(unit.id, reason),
        }
        // What a displaced file vacated is not what the plan believes.
        let vacated = end == End::Done && !self.displaced.contains(&unit.file);
        for (at, planned) in self.cursor.plan.moves_of(unit) {
            let unused: Vec<Extent> = self.cursor.plan.unused_from(planned.step.occupies(), at + 1).collect();
            for part in unused {
                self.keep_or_leave(pass, part);
            }
            for part in self.cursor.plan.unused_from(planned.step.vacates(), at + 1) {
                if vacated && self.cursor.refuges.total() + part.length <= self.most_kept {
                    self.cursor.refuges.insert(part);
                    continue;
                }
                pass.holdings.not_needed(part);
                if vacated {
                    self.cursor.unused.insert(part);
                }
            }
        }
    }
}
