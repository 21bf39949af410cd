//! A volume with somebody who acts at a chosen moment: before or after the n-th primitive of a kind.

use crate::sim::SimVolume;
use crate::{Exchanged, MoveError, Part, Placed, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, ExtentSet, FileId, LogicalBlock, PhysicalBlock, Run, VolumeLayout};

/// A moment in a pass, with a count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Scanned(u32),
    BeforeCapture(u32),
    BeforeExchange(u32),
    AfterExchange(u32),
}

type Act<'a> = Box<dyn FnMut(Moment, &mut SimVolume) -> Option<SkipReason> + 'a>;

/// The volume, and who meddles with it: an act that returns a reason makes the primitive skip the file.
pub(super) struct Meddled<'a> {
    pub sim: SimVolume,
    act: Act<'a>,
    scans: u32,
    captures: u32,
    exchanges: u32,
    /// What was asked for before it was exchanged: the pieces of each turn, by their places on the device.
    pub read: Vec<Vec<u64>>,
    /// And what was waited for.
    pub awaited: Vec<Vec<u64>>,
}

impl<'a> Meddled<'a> {
    pub(super) fn new(sim: SimVolume, act: impl FnMut(Moment, &mut SimVolume) -> Option<SkipReason> + 'a) -> Self {
        Self { sim, act: Box::new(act), scans: 0, captures: 0, exchanges: 0, read: Vec::new(), awaited: Vec::new() }
    }
}

impl Volume for Meddled<'_> {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.sim.info()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        let layout = self.sim.scan(progress)?;
        self.scans += 1;
        (self.act)(Moment::Scanned(self.scans), &mut self.sim);
        Ok(layout)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.sim.unclaimed()
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.sim.commit()
    }
}

impl Placed for Meddled<'_> {
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        self.captures += 1;
        (self.act)(Moment::BeforeCapture(self.captures), &mut self.sim);
        self.sim.capture(wanted)
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.sim.release(extents)
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        self.sim.owned()
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        self.sim.map(file)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.read.push(pieces.iter().map(|piece| piece.physical.0).collect());
        self.sim.bring_in(part, pieces)
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.awaited.push(pieces.iter().map(|piece| piece.physical.0).collect());
        self.sim.await_pieces(part, pieces)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        self.exchanges += 1;
        if let Some(reason) = (self.act)(Moment::BeforeExchange(self.exchanges), &mut self.sim) {
            return Err(MoveError::Skip(reason));
        }
        let done = self.sim.exchange(file, logical, target, length);
        (self.act)(Moment::AfterExchange(self.exchanges), &mut self.sim);
        done
    }
}
