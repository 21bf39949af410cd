//! The simulated volume as an implementation of the trait of primitives.

use super::check::{self, Violation};
use super::content::Content;
use super::faults::{Failure, Fate, Faults, io_error};
use super::foreign::{Crowd, Foreigners};
use super::state::{PendingWrite, State};
use super::user::User;
use crate::{Exchanged, MoveError, Part, Placed, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use fastrand::Rng;
use longrun_layout::{Blocks, Extent, ExtentSet, FileId, LogicalBlock, PhysicalBlock, Run, VolumeLayout};
use std::path::PathBuf;
use std::sync::Arc;

/// A volume in memory: a live image, a durable image, and the writes between them.
///
/// It gives the same guarantees as ext4, and no others. A change of a map is atomic, and durable with the next commit.
/// Data written to a block reaches the disk at the commit or at any moment before. A freed block is not allocated
/// before the commit. Vacated blocks that we own are not protected: an engine that writes there before a commit loses
/// data, as on a disk.
#[derive(Clone, Debug)]
pub struct SimVolume {
    state: State,
    fate: Fate,
    crowd: Crowd,
    seed: u64,
    least_unclaimed: Blocks,
    barriers: u64,
    /// A change or a commit has failed.
    has_failed: bool,
    commits_after_failure: u64,
    /// What is owned is granted again.
    claims: bool,
}

impl SimVolume {
    /// A volume that looks like `layout`, without faults and foreigners. `seed` decides everything that is random.
    #[must_use]
    pub fn new(layout: VolumeLayout, seed: u64) -> Self {
        Self {
            state: State::new(Arc::new(layout)),
            fate: Fate::new(Faults::default(), seed),
            crowd: Crowd::new(Foreigners::default(), seed),
            seed,
            least_unclaimed: Blocks(u64::MAX),
            barriers: 0,
            has_failed: false,
            commits_after_failure: 0,
            claims: false,
        }
    }

    /// The same volume, on which blocks are claimed instead of held, as on XFS: a claim is granted for whatever no file has,
    /// for blocks that the pass has only just vacated, too.
    #[must_use]
    pub fn with_claims(mut self) -> Self {
        self.claims = true;
        self
    }

    /// The same volume with things going wrong.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.fate = Fate::new(faults, self.seed);
        self
    }

    /// The same volume with other users.
    #[must_use]
    pub fn with_foreigners(mut self, habits: Foreigners) -> Self {
        self.crowd = Crowd::new(habits, self.seed ^ 0x5eed);
        self
    }

    /// Whether the fault that was asked for has happened.
    #[must_use]
    pub fn fault_happened(&self) -> bool {
        self.fate.hit()
    }

    /// The volume after the power came back: each write that was not durable has landed, vanished or been torn, the
    /// journal has been replayed, and nothing is owned. Without faults and foreigners.
    #[must_use]
    pub fn after_crash(&self) -> Self {
        let mut rng = Rng::with_seed(self.seed ^ 0xc4a5);
        let mut after = self.clone();
        after.state = self.state.clone().recover(|write| survivors(&mut rng, write));
        after.fate = Fate::new(Faults::default(), self.seed);
        after.crowd = Crowd::new(Foreigners::default(), self.seed);
        after
    }

    /// Checks every block of every file, and that no space is lost or claimed twice.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check(&self) -> Result<(), Violation> {
        check::contents(&self.state)?;
        check::space(&self.state)
    }

    /// Checks the contents only; [`Self::check`] also walks the whole space.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check_contents(&self) -> Result<(), Violation> {
        check::contents(&self.state)
    }

    /// The layout at this moment, without disturbing anything.
    #[must_use]
    pub fn layout(&self) -> VolumeLayout {
        let layout = self.state.layout();
        layout.unwrap_or_else(|error| unreachable!("the simulated volume is always consistent: {error}"))
    }

    /// What the optimizer owns.
    #[must_use]
    pub fn held(&self) -> &ExtentSet {
        &self.state.owned
    }

    /// The least space that was ever left to others by a capture.
    #[must_use]
    pub fn least_unclaimed(&self) -> Blocks {
        self.least_unclaimed
    }

    /// The blocks that the other user who fills the volume has taken.
    #[must_use]
    pub fn hoarded(&self) -> Blocks {
        self.crowd.hoarded(&self.state)
    }

    /// How many files foreigners have touched or made.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.crowd.touched.len()
    }

    /// How many barriers succeeded.
    #[must_use]
    pub fn barriers(&self) -> u64 {
        self.barriers
    }

    /// How many commits were asked for after a change or a commit had failed.
    #[must_use]
    pub fn commits_after_failure(&self) -> u64 {
        self.commits_after_failure
    }

    /// Another user, who acts right now.
    pub fn user(&mut self) -> User<'_> {
        User { state: &mut self.state }
    }

    /// Time passes without a primitive: commits, foreigners.
    pub fn idle(&mut self) {
        if self.fate.crashed() {
            return;
        }
        let commits = self.fate.faults.commits;
        if self.fate.chance(commits) {
            self.state.commit();
        }
        self.crowd.act(&mut self.state);
    }

    /// The beginning of a primitive.
    fn begin(&mut self, act: &'static str) -> Result<(), VolumeError> {
        self.fate.point()?;
        self.idle();
        match self.fate.primitive() {
            Some(Failure::Io) => Err(io_error(act, "injected failure")),
            Some(Failure::Skip(_)) | None => Ok(()),
        }
    }

    /// The beginning of a primitive that changes the volume.
    fn begin_change(&mut self, act: &'static str) -> Result<(), VolumeError> {
        self.begin(act).inspect_err(|_| self.has_failed = true)
    }

    /// The beginning of a primitive on a file: its number.
    fn begin_file(&mut self, act: &'static str, file: FileId) -> Result<u32, MoveError> {
        self.fate.point()?;
        self.idle();
        match self.fate.primitive() {
            Some(Failure::Io) => return Err(io_error(act, "injected failure").into()),
            Some(Failure::Skip(reason)) => return Err(MoveError::Skip(reason)),
            None => {}
        }
        let number = self.state.number(file).ok_or(MoveError::Skip(SkipReason::Vanished))?;
        if let Some(pin) = self.state.pin(number) {
            return Err(MoveError::Skip(pin.into()));
        }
        if self.state.is_directory(number) {
            return Err(MoveError::Skip(SkipReason::NotExchangeable));
        }
        match self.crowd.busy(number) {
            Some(true) => Err(MoveError::Skip(SkipReason::Executing)),
            Some(false) => Err(MoveError::Skip(SkipReason::Busy)),
            None => Ok(number),
        }
    }

    /// The next part of an exchange that is contiguous on both sides and wholly owned.
    fn next_part(&mut self, number: u32, logical: LogicalBlock, target: PhysicalBlock, left: Blocks) -> Option<Extent> {
        let source = self.state.view(number)?.at(logical)?;
        let owned = self.state.owned.extent_at(target)?;
        let most = left.min(source.length).min(owned.end() - target);
        // The kernel goes page by page, and a transaction may end after any of them.
        let length = if self.fate.rng.bool() { most } else { Blocks(self.fate.rng.u64(1..=most.0)) };
        Some(Extent { start: source.start, length })
    }
}

impl Volume for SimVolume {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        VolumeInfo { target: PathBuf::from("sim"), device: PathBuf::from("sim"), filesystem: "sim".to_owned() }
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        self.begin("scan")?;
        if progress.cancelled() {
            return Err(VolumeError::Interrupted);
        }
        let layout = self.state.layout();
        let VolumeInfo { target: path, filesystem, .. } = self.info();
        layout.map_err(|error| VolumeError::Damaged { path, filesystem, detail: error.to_string() })
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.begin("ask for the free space")?;
        Ok(self.state.free.total() + self.state.freed.total())
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        let failed = |source| VolumeError::Barrier { path: PathBuf::from("sim"), source };
        self.commits_after_failure += u64::from(self.has_failed);
        match self.begin_change("commit") {
            Err(VolumeError::Io { source, .. }) => return Err(failed(source)),
            other => other?,
        }
        self.state.commit();
        self.barriers += 1;
        self.fate.point()
    }
}

impl Placed for SimVolume {
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        self.crowd.coveted = wanted.clone();
        self.crowd.yielded = false;
        self.begin_change("capture free space")?;
        let partial = self.fate.faults.partial_captures;
        let partial = self.fate.chance(partial);
        let mut got = ExtentSet::new();
        for extent in wanted.iter() {
            for part in self.state.free.overlapping(extent) {
                let length = if partial { Blocks(self.fate.rng.u64(..=part.length.0)) } else { part.length };
                got.insert(Extent { start: part.start, length });
            }
            if self.claims {
                got.extend(self.state.owned.overlapping(extent));
            }
        }
        for extent in got.iter() {
            self.state.free.remove(extent);
            self.state.owned.insert(extent);
        }
        self.least_unclaimed = self.least_unclaimed.min(self.state.free.total() + self.state.freed.total());
        self.fate.point()?;
        Ok(got)
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.begin_change("release free space")?;
        for extent in extents.iter() {
            let held: Vec<Extent> = self.state.owned.overlapping(extent).collect();
            self.state.owned.remove(extent);
            self.state.freed.extend(held);
        }
        self.fate.point()
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        self.begin("ask for the owned space")?;
        Ok(self.state.owned.clone())
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        let number = self.begin_file("map a file", file)?;
        Ok(self.state.view(number).map(|f| f.runs).unwrap_or_default())
    }

    fn bring_in(&mut self, part: Part, _: &[Run]) -> Result<(), MoveError> {
        self.begin_file("read a file", part.file).map(drop)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let number = self.begin_file("exchange blocks", file).inspect_err(|error| {
            self.has_failed |= matches!(error, MoveError::Fatal(_));
        })?;
        if self.crowd.yielded && self.state.owned.extent_at(target).is_none() {
            return Err(MoveError::Skip(SkipReason::SpaceNeeded));
        }
        let short = self.fate.faults.short_exchanges;
        let wanted = if self.fate.chance(short) { Blocks(self.fate.rng.u64(..=length.0)) } else { length };
        let mut done = Exchanged::default();
        while done.blocks < wanted {
            let left = wanted - done.blocks;
            let Some(part) = self.next_part(number, logical + done.blocks, target + done.blocks, left) else { break };
            self.state.exchange(number, logical + done.blocks, part, target + done.blocks);
            done.vacated.push(part);
            done.blocks += part.length;
            self.fate.point()?;
            let commits = self.fate.faults.commits;
            if self.fate.chance(commits) {
                self.state.commit();
            }
        }
        Ok(done)
    }
}

/// What is left of a write that was under way when the power went.
fn survivors(rng: &mut Rng, write: PendingWrite) -> Vec<PendingWrite> {
    use crate::range_map::Slide;
    let mut left = Vec::new();
    let mut at = 0;
    while at < write.place.length.0 {
        let length = rng.u64(1..=write.place.length.0 - at);
        let place = Extent::new(write.place.start.0 + at, length);
        match rng.u8(..4) {
            0 | 1 => left.push(PendingWrite { place, content: write.content.slide(at) }),
            2 => left.push(PendingWrite { place, content: Content::Garbage }),
            _ => {}
        }
        at += length;
    }
    left
}
