//! The free space that others may need: how much a pass may hold, what it does when others need space, and how it
//! captures the next targets.

use super::batch_plan::{Cursor, Window};
use super::pass::Pass;
use crate::observer::{Permission, Phase};
use crate::pacer::Halt;
use crate::report::Stop;
use crate::settings::{Rule, most_held};
use longrun_layout::{Blocks, ExtentSet};
use std::time::Duration;

/// How often a pass gives everything back and starts again before it ends in favour of other processes.
const MOST_CRISES: u32 = 16;

/// Consecutive captures that may yield almost nothing (see `LEAST_YIELD`) before the round ends: each can cost
/// hundreds of system calls.
const MOST_BARREN: u32 = 6;
const LEAST_YIELD: u64 = 8;

/// The time between two checks whether space is free again.
const PAUSE: Duration = Duration::from_millis(250);

impl Pass<'_> {
    /// What may be captured now without touching the reserve.
    pub(super) fn allowance(&mut self) -> Result<Blocks, Halt> {
        let reserve = if self.settings.obeys(Rule::Reserve) { self.policy.reserve } else { Blocks(0) };
        Ok(most_held(self.volume.unclaimed()?, reserve))
    }

    /// Captures what the units from `from` on need free, as far as the window goes.
    pub(super) fn open_window(&mut self, batch: &mut Cursor, from: usize) -> Result<(), Halt> {
        self.show(Phase::Capture);
        if batch.crises != self.crises {
            // Everything was given back, the refuges too.
            batch.give_up_refuges();
        }
        batch.crises = self.crises;
        let window = self.window();
        let allowance = self.allowance()?;
        let mut next = batch.plan.window(&self.holdings, from, window, allowance);
        if next.end == from {
            next = self.keep_the_near(batch, from, window)?;
        }
        if next.end == from && !batch.refuges.is_empty() {
            batch.give_up_refuges();
            next = self.keep_the_near(batch, from, window)?;
        }
        batch.too_large = (next.end == from).then_some(from);
        batch.window_end = next.end.max(from + 1);
        if next.end == from || next.wanted.is_empty() {
            return Ok(());
        }
        self.capture(&next.wanted).map(drop)
    }

    /// The most that is captured in advance.
    pub(super) fn window(&self) -> Blocks {
        Blocks(self.settings.window.0 / u64::from(self.block_size.bytes()))
    }

    /// Nothing fits because what is held has its use far ahead: keeps the near half of it, and the refuges. The rest is captured
    /// again when its time comes. Answers with the window that fits then.
    fn keep_the_near(&mut self, batch: &Cursor, from: usize, window: Blocks) -> Result<Window, Halt> {
        let half = Blocks((self.holdings.held().total() + self.allowance()?).0 / 2);
        let mut near = batch.plan.targets_ahead(from, half);
        near.extend(batch.refuges.iter());
        self.holdings.keep_only(&near);
        if self.holdings.awaits_barrier() {
            self.commit()?;
        }
        let allowance = self.allowance()?;
        Ok(batch.plan.window(&self.holdings, from, window, allowance))
    }

    /// Gets hold of free space, after a commit if it was given back since the last one. Answers with what was obtained, and takes
    /// note of the rest: the next plan does without it.
    pub(super) fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, Halt> {
        if self.holdings.awaits_commit(wanted) {
            self.commit()?;
        }
        let got = self.volume.capture(wanted)?;
        for missed in wanted.iter().flat_map(|wanted| got.gaps(wanted)) {
            self.out_of_reach.insert(missed);
        }
        let barren = got.total().0 < wanted.total().0.div_ceil(LEAST_YIELD);
        self.barren = if barren { self.barren + 1 } else { 0 };
        self.holdings.captured(&got);
        Ok(got)
    }

    /// Whether captures repeatedly yield nothing. The plan then no longer fits the volume.
    pub(super) fn is_barren(&self) -> bool {
        self.barren > MOST_BARREN
    }

    /// Whether `next` blocks may be moved now; called before each chunk. The permission can take a long time. Meanwhile
    /// a request to stop is noticed, and so is the need of others for the held space.
    pub(super) fn checkpoint(&mut self, next: Blocks) -> Result<(), Halt> {
        loop {
            self.pacer.wanted_still()?;
            self.watch_space()?;
            match self.pacer.observer.permission(self.bytes(next)) {
                Permission::Go => return Ok(()),
                Permission::Wait(time) => {
                    self.volume.pause()?;
                    self.pacer.observer.wait(time);
                }
            }
        }
    }

    /// Looks whether others run short, and gives them everything if so.
    pub(super) fn watch_space(&mut self) -> Result<(), Halt> {
        // Capturing goes down to the reserve; only well below it is a sign of others' need.
        let least = Blocks(self.policy.reserve.0 / 2);
        if !self.settings.obeys(Rule::Pressure) || self.volume.unclaimed()? >= least {
            return Ok(());
        }
        self.make_way()
    }

    /// Others run short: everything is given back at once, and the pass goes on when there is space again.
    pub(super) fn make_way(&mut self) -> Result<(), Halt> {
        self.crises += 1;
        self.show(Phase::Wait);
        let available = self.holdings.all_lost();
        self.volume.release(&available)?;
        self.commit()?;
        let rest = self.volume.owned()?;
        if !rest.is_empty() {
            self.volume.release(&rest)?;
            self.commit()?;
        }
        if self.crises > MOST_CRISES {
            return Err(Halt::Stop(Stop::SpaceNeeded));
        }
        let mut waited = Duration::ZERO;
        while self.volume.unclaimed()? < self.policy.reserve {
            if waited >= self.settings.patience {
                return Err(Halt::Stop(Stop::SpaceNeeded));
            }
            self.pacer.observer.wait(PAUSE);
            waited += PAUSE;
            self.pacer.wanted_still()?;
        }
        Ok(())
    }
}
