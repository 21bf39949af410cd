//! A volume on an image that allocates space when it is written: what files leave is given back as soon as it is free.
//!
//! Owns what has to be given back. So a run grows the image by little more than is moved between two commits, and leaves it about as
//! large as it was. Asks the volume what is free, and never decides that itself.

use longrun_engine::{
    CompactedDirectories, Exchanged, Leaked, MoveError, Part, Placed, Progress, Volume, VolumeError, VolumeInfo,
};
use longrun_image::{Disk, Format};
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileId, LogicalBlock, LogicalRange, PhysicalBlock, Run, VolumeLayout,
};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image takes back only whole blocks of its own, which are no larger than that. What a file has left may be a part of one, and
/// the rest of it may have been free before.
const LARGEST_BLOCK: Bytes = Bytes(2 << 20);

/// As long as less than this waits to be given back, it is not: much of it is written again by the next moves, and giving a block
/// back and allocating it again costs more than the move.
const PATIENCE: Bytes = Bytes(64 << 20);

/// Whether an image of this format at `path`, with a disk of this size in it, grows by what is written to free space. One that has
/// all its space keeps it.
pub(crate) fn is_thin(path: &Path, format: Format, size: Bytes) -> bool {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.is_file());
    format.frees() && meta.is_some_and(|meta| meta.blocks().saturating_mul(512) < size.0)
}

/// A volume whose disk is told what files have left.
pub struct Thinned {
    volume: Box<dyn Placed>,
    /// The volume as a disk; `None` as soon as it has turned out to take nothing back.
    disk: Option<Arc<dyn Disk>>,
    /// Bytes of a block: known since the first scan.
    block: Bytes,
    /// What files have left since the last commit.
    left: ExtentSet,
    /// What they had left by the last commit, and what has not been given back. Some of it may be used again.
    vacated: ExtentSet,
}

impl Thinned {
    /// `disk` begins where `volume` begins, and nobody else changes either. `volume` must not commit after a change of `disk` has failed:
    /// the law of [`longrun_image::FailStop`] holds for both.
    #[must_use]
    pub fn new(volume: Box<dyn Placed>, disk: Arc<dyn Disk>) -> Self {
        Self { volume, disk: Some(disk), block: Bytes(0), left: ExtentSet::new(), vacated: ExtentSet::new() }
    }

    /// A commit has succeeded: nothing needs any more what files have left.
    fn committed(&mut self) {
        self.vacated.extend(std::mem::take(&mut self.left).iter());
    }

    /// Gives back what is free of what files have left, and around it. What the disk does not take back stays as it is.
    fn give_back(&mut self) -> Result<(), VolumeError> {
        let left = std::mem::take(&mut self.vacated);
        let Some(disk) = self.disk.clone().filter(|_| self.block.0 > 0 && !left.is_empty()) else { return Ok(()) };
        let margin = LARGEST_BLOCK.0.div_ceil(self.block.0);
        let mut around = ExtentSet::new();
        for extent in left.iter() {
            let start = PhysicalBlock(extent.start.0.saturating_sub(margin));
            around.insert(Extent::between(start, extent.end() + Blocks(margin)));
        }
        // Free is what the volume lets us own, and what we own already.
        let owned = self.volume.owned()?;
        let mut free: ExtentSet =
            around.iter().flat_map(|extent| owned.overlapping(extent).collect::<Vec<_>>()).collect();
        let captured = self.volume.capture(&around)?;
        self.volume.release(&captured)?;
        free.extend(captured.iter());
        // Where nothing was left, nothing is new.
        for extent in free.iter().filter(|extent| left.overlapping(*extent).next().is_some()) {
            let bytes = |blocks: u64| Bytes(blocks.saturating_mul(self.block.0));
            match disk.discard(bytes(extent.start.0), bytes(extent.length.0)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.disk = None;
                    break;
                }
                Err(source) => return Err(VolumeError::WriteFailed { path: self.volume.info().target, source }),
            }
        }
        Ok(())
    }
}

impl Volume for Thinned {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.volume.info()
    }

    fn was_interrupted(&self) -> bool {
        self.volume.was_interrupted()
    }

    fn leaked(&self) -> Leaked {
        self.volume.leaked()
    }

    fn compact_directories(
        &mut self,
        scan: &VolumeLayout,
        progress: &dyn Progress,
    ) -> Result<CompactedDirectories, VolumeError> {
        let done = self.volume.compact_directories(scan, progress)?;
        self.left.extend(done.vacated.iter().copied());
        self.give_back()?;
        Ok(done)
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        let layout = self.volume.scan(progress)?;
        self.block = layout.block_size().to_bytes(Blocks(1));
        // It has committed, and the moves that would write there again are over.
        self.committed();
        self.give_back()?;
        Ok(layout)
    }

    fn names(
        &mut self,
        layout: &VolumeLayout,
        files: &[FileId],
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        self.volume.names(layout, files, progress)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.volume.unclaimed()
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.volume.commit()?;
        self.committed();
        if self.vacated.total().0.saturating_mul(self.block.0) < PATIENCE.0 { Ok(()) } else { self.give_back() }
    }

    /// A run that was stopped has not scanned again.
    fn close(&mut self) -> Result<(), VolumeError> {
        if !(self.left.is_empty() && self.vacated.is_empty()) {
            self.volume.commit()?;
            self.committed();
            self.give_back()?;
        }
        self.volume.close()
    }
}

impl Placed for Thinned {
    fn unavailable(&mut self) -> Result<ExtentSet, VolumeError> {
        self.volume.unavailable()
    }

    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        self.volume.capture(wanted)
    }

    fn capture_calls(&self) -> u64 {
        self.volume.capture_calls()
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.volume.release(extents)
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        self.volume.owned()
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        self.volume.map(file)
    }

    fn map_around(&mut self, file: FileId, range: LogicalRange) -> Result<Vec<Run>, MoveError> {
        self.volume.map_around(file, range)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.volume.bring_in(part, pieces)
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.volume.await_pieces(part, pieces)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let done = self.volume.exchange(file, logical, target, length)?;
        self.left.extend(done.vacated.iter().copied());
        Ok(done)
    }

    fn pause(&mut self) -> Result<(), VolumeError> {
        self.volume.pause()
    }
}

impl Drop for Thinned {
    /// A run that failed does not close the volume itself. Its own error is the one that is reported.
    fn drop(&mut self) {
        _ = self.close();
    }
}
