//! The rounds of a pass: scan, plan and move until nothing more can be gained; then the cleanup.

use super::batch::{BatchRun, Fit};
use super::holdings::Holdings;
use super::pass::Pass;
use super::{PlanSource, scoped};
use crate::observer::{Phase, computed};
use crate::pacer::{Halt, Pacer};
use crate::report::{PassError, Report, Stop, Tally};
use crate::settings::{Settings, most_held};
use crate::{PassEnd, Placed, Round, RoundEnd, Scoped, SkipReason, VolumeError};
use longrun_layout::{Blocks, Bytes, ExtentSet, FileIndex, FileView, Fragmentation, VolumeLayout, WithheldFiles};
use longrun_planner::{Goal, Mode, Policy};
use std::collections::BTreeSet;

/// Rounds whose gain is a smaller part than this of the excess fragments and free pieces that there are count as fruitless, too: on 2 GiB
/// with 133,000 files one round after another joined three of 500 pieces, each after planning for four seconds.
const LITTLE_GAIN: u64 = 50;

/// Rounds in a row with so little gain, or with none because they only showed which blocks cannot be obtained, or left units behind others
/// that went elsewhere.
const MOST_FRUITLESS: u32 = 4;

/// This part of the used bytes a round may move although a pass has moved all that it may; twice that in all.
const LITTLE: u64 = 4;

/// Plans for a round after the first, at most. What can be captured shows when it is tried; as long as nothing has moved, another
/// plan that does without the rest saves a round. The first plan was shown to the user; besides, it is large, and another one would
/// have much else captured: a fifth more time on a server's volume, for 12 files that a round of 50 ms moves.
const PLANS: u32 = 3;

/// What a pass had done when a round began.
struct Begun {
    seconds: f64,
    commits: u64,
    written: Bytes,
    out_of_reach: Blocks,
}

/// Less is better: excess fragments first, then free pieces. Rounds must lower it below what it ever was, so that they
/// end.
fn potential(figures: &Fragmentation) -> (u64, u64) {
    (figures.excess_fragments, figures.free_space.pieces)
}

/// Carries out plans on a volume, `layout` being its last scan, until there is no more gain. Answers with the last layout
/// too.
pub(super) fn run<'a>(
    volume: &'a mut (dyn Placed + 'a),
    layout: Scoped,
    pacer: Pacer<'a>,
    settings: &'a Settings,
    plans: &dyn PlanSource,
) -> Result<(Report, VolumeLayout), PassError> {
    let planned = layout.planned();
    let mut pass = Pass {
        volume,
        settings,
        pacer,
        holdings: Holdings::default(),
        tally: Tally::default(),
        block_size: planned.block_size(),
        policy: settings.policy(planned, Bytes(0)),
        most_bytes: Bytes(planned.fragmentation().used_bytes.0 / 100 * 95),
        goal: None,
        hopeless: BTreeSet::new(),
        out_of_reach: ExtentSet::new(),
        barren: 0,
        crises: 0,
        since_barrier: Blocks(0),
        round: 1,
        moved_before_round: Bytes(0),
        planned_in_round: Bytes(0),
        saves: 0,
    };
    let outcome = pass.rounds(layout, plans).and_then(|done| pass.give_back().map(|()| done));
    outcome.map_err(|cause| {
        let not_given_back = pass.let_go().err().map(Box::new);
        PassError { cause, not_given_back, bytes_moved: pass.pacer.written }
    })
}

impl Pass<'_> {
    fn rounds(&mut self, mut layout: Scoped, plans: &dyn PlanSource) -> Result<(Report, VolumeLayout), VolumeError> {
        let before = layout.planned().fragmentation();
        let mut goal = None;
        let mut after = before.clone();
        let (mut stop, mut by_round) = (None, Vec::new());
        let (mut best, mut fruitless) = (potential(&before), 0);
        let end = loop {
            let begun = Begun {
                seconds: self.pacer.seconds(),
                commits: self.tally.barriers,
                written: self.pacer.written,
                out_of_reach: self.out_of_reach.total(),
            };
            let in_the_way = self.withhold_hopeless(layout.planned_mut());
            let mut withheld = self.volume.unavailable()?;
            withheld.extend(self.out_of_reach.iter());
            let mut withheld = layout.planned_mut().withhold(&withheld);
            let mut plans_left = if self.round > 1 { PLANS } else { 1 };
            loop {
                plans_left -= 1;
                match self.round(layout.planned(), plans, plans_left > 0) {
                    Ok(Fit::NotYet) => {
                        let lost = layout.planned_mut().withhold(&self.out_of_reach);
                        withheld.extend(lost.iter());
                        continue;
                    }
                    Ok(Fit::AsFarAsPossible) => {}
                    Err(Halt::Stop(reason)) => {
                        stop = Some(reason);
                        self.tally.round.end = RoundEnd::Stopped;
                    }
                    Err(Halt::Fatal(error)) => return Err(error),
                }
                break;
            }
            let told = std::mem::take(&mut self.tally.round).told();
            let learned = self.out_of_reach.total() > begun.out_of_reach;
            let is_idle = self.pacer.written == begun.written && !learned;
            // What waited for a place may have one on the volume as it is now.
            let waits = told.left.iter().any(|left| left.reason == SkipReason::Blocked) && told.done > 0;
            let end = match stop {
                Some(_) => PassEnd::Stopped,
                // There was a plan, and all of it was left alone.
                None if told.units > 0 => PassEnd::NoGain,
                None if is_idle && self.costs_too_much(layout.planned(), plans) => PassEnd::Cost,
                None => PassEnd::Done,
            };
            goal = goal.or_else(|| Some(Goal::efficient(layout.planned(), self.saves)));
            layout.planned_mut().readmit(&withheld);
            in_the_way.into_iter().for_each(|files| layout.planned_mut().readmit_files(files));
            // A scan takes what we hold for obstacles.
            self.give_back()?;
            if is_idle {
                by_round.extend((told.units > 0).then(|| self.finished(told, &begun, &after)));
                break end;
            }
            if self.round == 1 {
                let fifth = Bytes(before.used_bytes.0 / 5);
                self.most_bytes = self.most_bytes.max(self.pacer.written + fifth);
                // A plan that was given up half-way is replaced by a new one, which may write more than the rest of
                // the first one would have.
                let given_up = self.pacer.written.0 < self.planned_in_round.0 / 10 * 9;
                if given_up && self.settings.mode == Mode::Full {
                    self.most_bytes = self.most_bytes.max(Bytes(before.used_bytes.0 / 4 * 5));
                }
            }
            drop(layout);
            layout = self.pacer.scan_again(self.round + 1, &mut stop, |progress| {
                let layout = self.volume.scan(progress)?;
                scoped(self.volume, layout, self.settings)
            })?;
            after = layout.planned().fragmentation();
            by_round.push(self.finished(told, &begun, &after));
            let gained = potential(&after) < best;
            let left = |(excess, pieces): (u64, u64)| excess + pieces;
            let is_much = left(best).saturating_sub(left(potential(&after))) * LITTLE_GAIN >= left(best);
            fruitless = if gained && is_much { 0 } else { fruitless + 1 };
            if gained {
                // The volume looks different now: what was out of reach may be had.
                best = potential(&after);
                self.out_of_reach = ExtentSet::new();
            }
            // What a round has gained, a later one does not spend: plans that fail in part would eat it up.
            self.tally.fragments = after.excess_fragments.cast_signed() - best.0.cast_signed();
            let hopeless = !(gained || learned || waits) || fruitless > MOST_FRUITLESS;
            if stop.is_some() {
                break PassEnd::Stopped;
            }
            if hopeless {
                break PassEnd::NoGain;
            }
            if self.round >= self.settings.rounds {
                break PassEnd::Rounds;
            }
            self.round += 1;
            self.goal = goal;
        };
        self.settle_skips(layout.planned());
        let report = Report {
            before,
            after,
            moves: self.tally.moves,
            bytes_moved: self.pacer.written,
            skipped: self.tally.skipped(),
            barriers: self.tally.barriers,
            rounds: self.round,
            capture_calls: self.volume.capture_calls(),
            given_up: self.tally.given_up,
            seconds: self.pacer.seconds(),
            interrupted: stop.is_some_and(|s| s != Stop::Budget),
            stop,
            end,
            by_round,
        };
        Ok((report, layout.into_whole()))
    }

    /// Files that cannot be moved keep their places, and so does who moves with them: a plan that counts on these ends with those who
    /// wait for them.
    fn withhold_hopeless(&self, layout: &mut VolumeLayout) -> Option<WithheldFiles> {
        let hopeless = layout.files().filter(|file| self.hopeless.contains(&file.id()));
        let hopeless = hopeless.flat_map(|file| [&[file.index], layout.followers(file.index)].concat());
        let hopeless: Vec<FileIndex> = hopeless.collect();
        (!hopeless.is_empty()).then(|| layout.withhold_files(&hopeless))
    }

    /// The record of a round that left the volume like this.
    fn finished(&self, counted: Round, begun: &Begun, after: &Fragmentation) -> Round {
        Round {
            planned: self.planned_in_round,
            moved: self.pacer.written.saturating_sub(begun.written),
            not_captured: self.bytes(self.out_of_reach.total().saturating_sub(begun.out_of_reach)),
            commits: self.tally.barriers - begun.commits,
            excess_fragments: after.excess_fragments,
            free_pieces: after.free_space.pieces,
            seconds: self.pacer.seconds() - begun.seconds,
            ..counted
        }
    }

    /// What the user asked for, with the goal of the first round.
    fn asked_for(&self, layout: &VolumeLayout) -> Policy {
        Policy { goal: self.goal, ..self.settings.policy(layout, self.pacer.written) }
    }

    /// Whether there would be a plan if a pass could move as much as it liked. Asked only when there is none.
    fn costs_too_much(&self, layout: &VolumeLayout, plans: &dyn PlanSource) -> bool {
        let in_pieces = |file: FileView<'_>| file.is_movable() && file.fragments() > 1;
        self.round > 1
            && layout.files().any(in_pieces)
            && plans.plan(layout, self.asked_for(layout)).any(|batch| batch.moves().next().is_some())
    }

    /// Plans and carries out the plan. `may_plan_again` as for [`BatchRun::carry_out`]; what was captured for a plan that does
    /// not fit is kept for the next.
    fn round(&mut self, layout: &VolumeLayout, plans: &dyn PlanSource, may_plan_again: bool) -> Result<Fit, Halt> {
        let mut policy = self.asked_for(layout);
        if self.round > 1 {
            // Later rounds finish what the first one began, within what one pass may cost. As long as each is a gain, the end
            // may take a little more: a run that stopped there left 1,439 of 8,000 excess fragments, and the next one removed them.
            let little = Bytes(layout.fragmentation().used_bytes.0 / LITTLE);
            let extra = (self.most_bytes + little + little).saturating_sub(self.pacer.written).min(little);
            let left = self.most_bytes.saturating_sub(self.pacer.written).max(extra);
            let left = Blocks(left.0 / u64::from(self.block_size.bytes()));
            policy.budget = Some(policy.budget.map_or(left, |budget| budget.min(left)));
        }
        // Not all that is free is for everybody: what is kept for root is no part of the bargain.
        let unclaimed = self.volume.unclaimed()?;
        if self.settings.reserve.is_none() {
            policy.reserve = policy.reserve.min(Blocks(unclaimed.0 / 2));
        }
        policy.most_held = most_held(unclaimed + self.holdings.held().total(), policy.reserve);
        self.policy = policy;
        self.moved_before_round = self.pacer.written;
        self.planned_in_round = Bytes(0);
        self.barren = 0;
        let mut batches = plans.plan(layout, self.policy);
        let mut assigned = ExtentSet::new();
        loop {
            self.show(Phase::Plan);
            if self.is_barren() {
                self.tally.round.end = RoundEnd::NotCaptured;
                return Ok(Fit::AsFarAsPossible);
            }
            // Behind others it can take long, and nobody must wait that long for what is held.
            let next = if self.holdings.held().is_empty() {
                computed(|work| self.pacer.observer.compute(work), || batches.next())
            } else {
                batches.next()
            };
            let Some(batch) = next else { return Ok(Fit::AsFarAsPossible) };
            self.refuse_if_too_full()?;
            self.saves += batch.saves;
            self.planned_in_round += self.bytes(batch.moves().map(|m| m.step.length).sum());
            let untouched = self.pacer.written == self.moved_before_round;
            let fit = BatchRun::new(layout, &batch, &assigned).carry_out(self, may_plan_again && untouched)?;
            if fit == Fit::NotYet {
                self.saves -= batch.saves;
                return Ok(fit);
            }
            assigned.extend(batch.moves().map(|planned| planned.step.occupies()));
        }
    }

    /// Without any space above the reserve nothing can be moved, however long we wait.
    fn refuse_if_too_full(&mut self) -> Result<(), VolumeError> {
        let free = self.volume.unclaimed()?;
        if self.pacer.written.0 > 0 || free > self.policy.reserve {
            return Ok(());
        }
        Err(VolumeError::TooFull {
            path: self.volume.info().target,
            free: self.bytes(free).0,
            needed: self.bytes(self.policy.reserve + Blocks(1)).0,
        })
    }

    /// What was not done, by the state that the volume was left in: files skipped in the last round, those skipped in an
    /// earlier one that are still in pieces, and those in pieces that must not move at all.
    fn settle_skips(&mut self, layout: &VolumeLayout) {
        let mut in_pieces = BTreeSet::new();
        for file in layout.files() {
            if file.is_fixed_directory() || file.fragments() < 2 {
                continue;
            }
            if layout.leader_of(file.index).is_some() {
                // Told of once, by the file that it moves with.
            } else if let Some(pin) = file.record.pin {
                self.tally.skip(file.id(), pin.into(), self.round);
            } else if self.tally.reason(file.id()).is_some() {
                in_pieces.insert(file.id());
            }
        }
        self.tally.keep_skips(self.round, &in_pieces);
    }
}
