//! The state of a pass, and the operations that all its parts use: reporting, skipping, committing, giving back.

use super::holdings::Holdings;
use crate::observer::{Phase, Status};
use crate::pacer::Pacer;
use crate::report::{Stop, Tally};
use crate::settings::{Rule, Settings};
use crate::{Placed, SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, ExtentSet, FileId};
use longrun_planner::{Goal, Policy};
use std::collections::BTreeSet;

/// Everything that a pass knows.
pub(super) struct Pass<'a> {
    pub(super) volume: &'a mut dyn Placed,
    pub(super) settings: &'a Settings,
    pub(super) pacer: Pacer<'a>,
    pub(super) holdings: Holdings,
    pub(super) tally: Tally,
    pub(super) block_size: BlockSize,
    pub(super) policy: Policy,
    /// What rounds after the first may add up to, the first included: of all used bytes a little less than each once, or a
    /// fifth more than the first round took; when its plan came to little, a quarter more than all used bytes. Beyond it, rounds are
    /// small.
    pub(super) most_bytes: Bytes,
    /// What the first round set out for, told to the later ones.
    pub(super) goal: Option<Goal>,
    /// Files that cannot be exchanged at all: no use to try them again in a later round.
    pub(super) hopeless: BTreeSet<FileId>,
    /// Free blocks that could not be captured: the next plan does without them.
    pub(super) out_of_reach: ExtentSet,
    /// Captures of this round, one after the other, that brought next to nothing.
    pub(super) barren: u32,
    /// How often everything was given back under pressure.
    pub(super) crises: u32,
    pub(super) since_barrier: Blocks,
    pub(super) round: u32,
    pub(super) moved_before_round: Bytes,
    pub(super) planned_in_round: Bytes,
    /// Excess fragments that the plans so far were to save.
    pub(super) saves: u64,
}

impl Pass<'_> {
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

    /// Whether the budget covers a unit of this size.
    pub(super) fn affordable(&self, blocks: Blocks) -> Result<(), Stop> {
        self.pacer.afford(self.bytes(blocks))
    }

    /// Makes everything durable: PENDING becomes AVAILABLE, and what no one needs is given back.
    pub(super) fn commit(&mut self) -> Result<(), VolumeError> {
        self.volume.commit()?;
        self.tally.barriers += 1;
        self.since_barrier = Blocks(0);
        let surplus = self.holdings.committed();
        if !surplus.is_empty() {
            self.volume.release(&surplus)?;
            self.holdings.released(&surplus);
        }
        Ok(())
    }

    /// Gives everything back, durably; what that is, the file system itself says. After an error, the caller calls
    /// [`Self::let_go`].
    pub(super) fn give_back(&mut self) -> Result<(), VolumeError> {
        if !self.settings.obeys(Rule::GiveBack) {
            return Ok(());
        }
        if self.holdings.awaits_barrier() {
            self.commit()?;
        }
        let has_released = self.release_all()?;
        let holdings = std::mem::take(&mut self.holdings);
        if has_released || holdings.has_released() {
            // What was freed since the last commit cannot be allocated before the next one.
            self.volume.commit()?;
            self.tally.barriers += 1;
        }
        Ok(())
    }

    /// Gives everything back after an error, and commits nothing: a commit that succeeds after one that failed proves nothing.
    /// Blocks that files have left are safe without a commit. The file system itself reuses nothing before it has committed, and the
    /// end of the process would give them back, too.
    pub(super) fn let_go(&mut self) -> Result<(), VolumeError> {
        if self.settings.obeys(Rule::GiveBack) { self.release_all().map(drop) } else { Ok(()) }
    }

    /// Whether there was anything to release. Where the file system cannot say what we own, our own books must do.
    fn release_all(&mut self) -> Result<bool, VolumeError> {
        let owned = match self.volume.owned() {
            Ok(owned) => owned,
            Err(error) => {
                self.volume.release(&self.holdings.held())?;
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
