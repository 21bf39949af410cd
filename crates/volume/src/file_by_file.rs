//! A volume of which the files can be put together one by one, wherever the file system then puts them, and nothing else.
//!
//! Owns the picture that the engine for volumes with their own choice of places works on: one chunk, which is everything,
//! and each file a unit. Never moves a file itself.

use crate::mend::{Limits, MendError, Mended, NotMended};
use longrun_engine::relocated::{ChunkKey, DataChunk, Evacuated, Meter, Picture, Relocated, Task, UnitOfFiles, left};
use longrun_engine::{Halt, Observer, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, Bytes, Extent, FileId, PhysicalBlock, VolumeLayout};
use std::path::PathBuf;

/// Free space below which nothing is begun, whatever the pass says.
const LEAST_FREE: Bytes = Bytes(8 << 20);

/// What such a volume can do.
pub(crate) trait OneByOne: Volume<Scan = VolumeLayout> {
    /// Why no more than this can be done.
    fn reason(&self) -> &'static str;

    /// Puts one file together.
    ///
    /// # Errors
    /// [`MendError`].
    fn mend(&mut self, file: FileId, limits: Limits, observer: &mut dyn Observer) -> Result<Mended, MendError>;
}

/// The adapter.
pub(crate) struct FileByFile<V> {
    volume: V,
    /// The files of the last scan, by their index.
    files: Vec<FileId>,
}

impl<V: OneByOne> FileByFile<V> {
    pub(crate) fn new(volume: V) -> Self {
        Self { volume, files: Vec::new() }
    }
}

/// How the engine sees a volume with `layout`, of which no more can be done for a `reason`.
pub(crate) fn picture(layout: VolumeLayout, reason: &'static str) -> Picture {
    let total = layout.total_blocks();
    let whole = Extent { start: PhysicalBlock(0), length: total };
    let (mut units, mut staying) = (Vec::new(), Vec::new());
    for file in layout.files().filter(|file| !file.record.is_directory && file.fragments() > 1) {
        match file.record.pin {
            None => {
                let members = vec![(file.index, layout.block_size().to_bytes(file.size()))];
                units.push(UnitOfFiles { members, divisible: false });
            }
            Some(pin) => staying.push((file.index, SkipReason::from(pin))),
        }
    }
    let chunks = vec![DataChunk { key: ChunkKey(0), extent: whole, free: layout.free().to_vec() }];
    let only_files = Some(reason);
    Picture { layout, chunks, unallocated: Blocks(0), chunk_length: total, units, staying, only_files }
}

impl<V: OneByOne> Volume for FileByFile<V> {
    type Scan = Picture;

    fn info(&self) -> VolumeInfo {
        self.volume.info()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<Picture, VolumeError> {
        let layout = self.volume.scan(progress)?;
        self.files = layout.files().map(|file| file.id()).collect();
        Ok(picture(layout, self.volume.reason()))
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
        self.volume.commit()
    }
}

impl<V: OneByOne> Relocated for FileByFile<V> {
    fn gather(&mut self, task: &Task, meter: &mut dyn Meter) -> Result<Option<SkipReason>, Halt> {
        let file = task.members.first().and_then(|file| self.files.get(file.0 as usize));
        let Some(file) = file else { return Ok(Some(SkipReason::Changed)) };
        let limits = Limits { floor: Some(LEAST_FREE), ..Limits::NONE };
        let (written, reason) = match self.volume.mend(*file, limits, meter) {
            Ok(Mended { before, after, moved }) => {
                (moved, (after >= before && before > 0).then_some(NotMended::NoGain))
            }
            Err(MendError::Left { reason, written }) => (written, Some(reason)),
            Err(MendError::Volume(error)) => return Err(error.into()),
        };
        meter.wrote(written);
        reason.map_or(Ok(None), |reason| left(reason, meter).map(Some))
    }

    fn evacuate(&mut self, _chunk: ChunkKey, _meter: &mut dyn Meter) -> Result<Evacuated, Halt> {
        Ok(Evacuated::NoSpace)
    }
}
