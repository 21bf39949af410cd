//! A pass: rounds of scan, plan and moves, and the way out.

use super::PlanSource;
use super::batch::BatchRun;
use super::ledger::Ledger;
use super::observer::{Observer, Permission, Phase, ScanProgress, Status};
use super::pacer::{Halt, Pacer};
use super::report::{PassError, Report, Stop, Tally};
use super::settings::{Rule, Settings};
use crate::{SkipReason, Volume, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, ExtentSet, FileId, Fragmentation, VolumeLayout};
use longrun_planner::{Goal, Mode, Policy};
use std::collections::BTreeSet;

/// Everything that a pass knows.
pub(super) struct Pass<'a> {
    pub(super) volume: &'a mut dyn Volume,
    pub(super) settings: &'a Settings,
    pub(super) pacer: Pacer<'a>,
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    pub(super) block_size: BlockSize,
    pub(super) policy: Policy,
    /// What rounds after the first may add up to, the first included: of all used bytes a little less than each once, or a
    /// fifth more than the first round took; when its plan came to little, a quarter more than all used bytes.
    most_bytes: Bytes,
    /// What the first round set out for, told to the later ones.
    goal: Option<Goal>,
    /// Files that cannot be exchanged at all: no use to try them again in a later round.
    pub(super) hopeless: BTreeSet<FileId>,
    /// Free blocks that could not be captured: the next plan does without them.
    pub(super) out_of_reach: ExtentSet,
    /// How often everything was given back under pressure.
    pub(super) crises: u32,
    pub(super) since_barrier: Blocks,
    round: u32,
    moved_before_round: Bytes,
    planned_in_round: Bytes,
    /// Excess fragments that the plans so far were to save.
    saves: u64,
}

/// Rounds in a row without gain that only showed which blocks cannot be had.
const MOST_FRUITLESS: u32 = 4;

/// Less is better: excess fragments first, then free pieces. Rounds must lower it below what it ever was, so that they
/// end.
fn potential(figures: &Fragmentation) -> (u64, u64) {
    (figures.excess_fragments, figures.free_space.pieces)
}

/// Reads the volume, and carries out plans on it until there is no more gain.
pub(super) fn run(
    volume: &mut dyn Volume,
    settings: &Settings,
    observer: &mut dyn Observer,
    plans: &dyn PlanSource,
) -> Result<Report, PassError> {
    let pacer = Pacer::new(settings, observer);
    let layout = match volume.scan(&ScanProgress::new(pacer.observer, 1)) {
        Ok(layout) => layout,
        Err(cause) => return Err(PassError { cause, not_given_back: None, bytes_moved: Bytes(0) }),
    };
    let mut pass = Pass {
        volume,
        settings,
        pacer,
        ledger: Ledger::default(),
        tally: Tally::default(),
        block_size: layout.block_size(),
        policy: settings.policy(&layout, Bytes(0)),
        most_bytes: Bytes(layout.fragmentation().used_bytes.0 / 100 * 95),
        goal: None,
        hopeless: BTreeSet::new(),
        out_of_reach: ExtentSet::new(),
        crises: 0,
        since_barrier: Blocks(0),
        round: 1,
        moved_before_round: Bytes(0),
        planned_in_round: Bytes(0),
        saves: 0,
    };
    let outcome = pass.rounds(layout, plans);
    let given_back = pass.give_back();
    match (outcome, given_back) {
        (Ok(report), Ok(())) => Ok(report),
        (Ok(_), Err(cause)) => Err(pass.failed(cause, None)),
        (Err(cause), given_back) => Err(pass.failed(cause, given_back.err())),
    }
}

impl Pass<'_> {
    fn failed(&self, cause: VolumeError, not_given_back: Option<VolumeError>) -> PassError {
        PassError { cause, not_given_back, bytes_moved: self.pacer.written }
    }

    fn rounds(&mut self, mut layout: VolumeLayout, plans: &dyn PlanSource) -> Result<Report, VolumeError> {
        let before = layout.fragmentation();
        let mut goal = None;
        let mut after = before.clone();
        let mut stop = None;
        let (mut best, mut fruitless) = (potential(&before), 0);
        loop {
            let (moved_before, known) = (self.pacer.written, self.out_of_reach.total());
            layout.withhold(&self.out_of_reach);
            layout.withhold(&self.volume.unavailable()?);
            match self.round(&layout, plans) {
                Ok(()) => {}
                Err(Halt::Stop(reason)) => stop = Some(reason),
                Err(Halt::Fatal(error)) => return Err(error),
            }
            goal = goal.or_else(|| Some(Goal::efficient(&layout, self.saves)));
            // A scan takes what we hold for obstacles.
            self.give_back()?;
            let learned = self.out_of_reach.total() > known;
            if self.pacer.written == moved_before && !learned {
                break;
            }
            if self.round == 1 {
                let fifth = Bytes(before.used_bytes.0 / 5);
                self.most_bytes = self.most_bytes.max(self.pacer.written + fifth);
                // A plan that was given up half-way is made anew, not cut off where the first one would have ended.
                let given_up = self.pacer.written.0 < self.planned_in_round.0 / 10 * 9;
                if given_up && self.settings.mode == Mode::Full {
                    self.most_bytes = self.most_bytes.max(Bytes(before.used_bytes.0 / 4 * 5));
                }
            }
            drop(layout);
            layout = self.pacer.scan_again(self.round + 1, &mut stop, |progress| self.volume.scan(progress))?;
            after = layout.fragmentation();
            let gained = potential(&after) < best;
            if gained {
                // The volume looks different now: what was out of reach may be had.
                (best, fruitless) = (potential(&after), 0);
                self.out_of_reach = ExtentSet::new();
            } else {
                fruitless += 1;
            }
            let hopeless = !gained && (!learned || fruitless > MOST_FRUITLESS);
            if stop.is_some() || hopeless || self.round >= self.settings.rounds {
                break;
            }
            self.round += 1;
            self.goal = goal;
        }
        self.settle_skips(&layout);
        Ok(Report {
            before,
            after,
            moves: self.tally.moves,
            bytes_moved: self.pacer.written,
            skipped: self.tally.skipped(),
            barriers: self.tally.barriers,
            rounds: self.round,
            seconds: self.pacer.seconds(),
            interrupted: stop.is_some_and(|s| s != Stop::Budget),
            stop,
        })
    }

    fn round(&mut self, layout: &VolumeLayout, plans: &dyn PlanSource) -> Result<(), Halt> {
        let mut policy = Policy { goal: self.goal, ..self.settings.policy(layout, self.pacer.written) };
        if self.round > 1 {
            // Later rounds finish what the first one began, within what one pass may cost at most.
            let left = self.most_bytes.saturating_sub(self.pacer.written);
            let left = Blocks(left.0 / u64::from(self.block_size.bytes()));
            policy.budget = Some(policy.budget.map_or(left, |budget| budget.min(left)));
        }
        self.policy = policy;
        if self.settings.reserve.is_none() {
            // Not all that is free is for everybody: what is kept for root is no part of the bargain.
            self.policy.reserve = self.policy.reserve.min(Blocks(self.volume.unclaimed()?.0 / 2));
        }
        self.moved_before_round = self.pacer.written;
        self.planned_in_round = Bytes(0);
        let mut batches = plans.plan(layout, self.policy);
        loop {
            self.show(Phase::Plan);
            let Some(batch) = batches.next() else { return Ok(()) };
            self.refuse_if_too_full()?;
            self.saves += batch.saves;
            self.planned_in_round += self.bytes(batch.moves().map(|m| m.step.length).sum());
            BatchRun::new(layout, &batch).carry_out(self)?;
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
            if file.record.is_directory || file.fragments() < 2 {
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

    pub(super) fn bytes(&self, blocks: Blocks) -> Bytes {
        self.block_size.to_bytes(blocks)
    }

    pub(super) fn show(&mut self, phase: Phase) {
        let done = self.pacer.written.saturating_sub(self.moved_before_round).0;
        self.pacer.observer.status(Status { phase, round: self.round, done, total: self.planned_in_round.0.max(done) });
    }

    /// A file is left alone, for this round at least.
    pub(super) fn skip(&mut self, file: FileId, reason: SkipReason) {
        self.tally.skip(file, reason, self.round);
        self.pacer.observer.skipped(file, reason);
        if matches!(reason, SkipReason::NotExchangeable | SkipReason::Unreadable | SkipReason::Pinned(_)) {
            self.hopeless.insert(file);
        }
    }

    /// Whether `next` blocks may be moved now: asked before each chunk. The permission can be long in coming: meanwhile
    /// nobody who wants the pass to stop is made to wait, and nobody who needs the space that is held.
    pub(super) fn checkpoint(&mut self, next: Blocks) -> Result<(), Halt> {
        loop {
            self.pacer.wanted_still()?;
            self.watch_space()?;
            match self.pacer.observer.permission(self.bytes(next)) {
                Permission::Go => return Ok(()),
                Permission::Wait(time) => self.pacer.observer.wait(time),
            }
        }
    }

    /// Whether the budget covers a unit of this size.
    pub(super) fn affordable(&self, blocks: Blocks) -> Result<(), Stop> {
        self.pacer.afford(self.bytes(blocks))
    }

    /// Makes everything durable: PENDING becomes AVAILABLE, and what nobody needs is given back.
    pub(super) fn commit(&mut self) -> Result<(), VolumeError> {
        self.volume.barrier()?;
        self.tally.barriers += 1;
        self.since_barrier = Blocks(0);
        let surplus = self.ledger.committed();
        if !surplus.is_empty() {
            self.volume.release(&surplus)?;
            self.ledger.released(&surplus);
        }
        Ok(())
    }

    /// Gives everything back, the file system's own word being the truth about what that is. A failed barrier does not
    /// keep us from it: the file system itself reuses nothing before a commit.
    pub(super) fn give_back(&mut self) -> Result<(), VolumeError> {
        if !self.settings.obeys(Rule::GiveBack) {
            return Ok(());
        }
        let committed = if self.ledger.awaits_barrier() { self.commit() } else { Ok(()) };
        let released = self.release_all().or_else(|_| self.release_all());
        let ledger = std::mem::take(&mut self.ledger);
        committed?;
        if released? || ledger.has_released() {
            // What was freed since the last commit is nobody's before the next one.
            self.volume.barrier()?;
            self.tally.barriers += 1;
        }
        Ok(())
    }

    /// Whether there was anything to release. Where the file system cannot say what we own, our own books must do.
    fn release_all(&mut self) -> Result<bool, VolumeError> {
        let owned = match self.volume.owned() {
            Ok(owned) => owned,
            Err(error) => {
                self.volume.release(&self.ledger.held())?;
                return Err(error);
            }
        };
        if owned.is_empty() {
            return Ok(false);
        }
        self.volume.release(&owned)?;
        Ok(true)
    }
}
