//! Space of others: how much may be held, what happens when they need it, and getting hold of the next targets.

use super::batch::BatchRun;
use super::observer::Phase;
use super::pacer::Halt;
use super::pass::Pass;
use super::report::Stop;
use super::settings::Rule;
use longrun_layout::{Blocks, ExtentSet};
use std::time::Duration;

/// How often a pass gives everything back and begins anew before it leaves the field to others.
const MOST_CRISES: u32 = 16;

/// With less than this to capture, half of it is left for the blocks that a capture takes besides the wanted ones: up to
/// a block group's free space.
const LITTLE_ROOM: Blocks = Blocks(8192);

/// Between two looks at whether free space has come back.
const PAUSE: Duration = Duration::from_millis(250);

impl Pass<'_> {
    /// What may be captured now without touching the reserve.
    pub(super) fn allowance(&mut self) -> Result<Blocks, Halt> {
        let reserve = if self.settings.obeys(Rule::Reserve) { self.policy.reserve } else { Blocks(0) };
        let most = self.volume.unclaimed()?.saturating_sub(reserve);
        // On its way to the wanted blocks a capture takes others for a moment: where there is little, it needs room for them.
        Ok(if most < LITTLE_ROOM { Blocks(most.0.div_ceil(2)) } else { most })
    }

    /// Captures what the units from `from` on need free, as far as the window goes.
    pub(super) fn open_window(&mut self, batch: &mut BatchRun<'_>, from: usize) -> Result<(), Halt> {
        self.show(Phase::Capture);
        batch.crises = self.crises;
        let window = Blocks(self.settings.window.0 / u64::from(self.block_size.bytes()));
        let mut allowance = self.allowance()?;
        let mut next = batch.window(&self.ledger, from, window, allowance);
        if next.end == from {
            // Nothing fits because what is held has its use far ahead: keep the near half of it, capture the rest again
            // when its time comes.
            let half = Blocks((self.ledger.held().total() + allowance).0 / 2);
            self.ledger.keep_only(&batch.targets_ahead(from, half));
            if self.ledger.awaits_barrier() {
                self.commit()?;
            }
            allowance = self.allowance()?;
            next = batch.window(&self.ledger, from, window, allowance);
        }
        batch.too_large = (next.end == from).then_some(from);
        batch.window_end = next.end.max(from + 1);
        if next.end == from || next.wanted.is_empty() {
            return Ok(());
        }
        if self.ledger.awaits_commit(&next.wanted) {
            self.commit()?;
        }
        let got = self.volume.capture(&next.wanted)?;
        for missed in next.wanted.iter().flat_map(|wanted| got.gaps(wanted)) {
            self.out_of_reach.insert(missed);
        }
        self.ledger.captured(&got);
        Ok(())
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
        let available = self.ledger.all_lost();
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

/// What to capture next, and how far that carries.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub wanted: ExtentSet,
    /// The first unit that it does not serve.
    pub end: usize,
}
