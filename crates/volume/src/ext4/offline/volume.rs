//! A volume that is not mounted, as an implementation of the engine's trait.

use super::admission::{KIND, check_claims, refusal};
use super::compaction::compact;
use super::state::{Moving, State};
use super::tree::Piece;
use crate::Target;
use crate::ext4::scan::fault::Fault;
use crate::ext4::scan::group::push_fixed_areas;
use crate::ext4::scan::{Access, Areas, Ext4Reader, FreeSpace, OnDisk, ScanOptions, Source};
use crate::offline::{JournalPlace, Ranges, begin, opened, recover};
use crate::probe::EXT4;
use longrun_engine::{
    CompactedDirectories, Exchanged, MoveError, NoProgress, Placed, Progress, SkipReason, Volume, VolumeError,
    VolumeInfo,
};
use longrun_image::{Disk, FailStop};
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileId, LogicalBlock, LogicalRange, PhysicalBlock, Pin, Run, VolumeLayout,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a scan of a volume that is not mounted reads.
pub(in crate::ext4) const OPTIONS: ScanOptions<'static> =
    ScanOptions { free_space: FreeSpace::Bitmaps, directories: true, offline: true };

/// An ext4 volume that is not mounted, and may be optimized.
pub struct OfflineExt4 {
    /// `None` when it is closed.
    state: Option<State>,
    /// What opening it has read: the first scan need not read all inodes again.
    opened: Option<VolumeLayout>,
    info: VolumeInfo,
    disk: Arc<FailStop>,
    buffer: Vec<u8>,
    was_interrupted: bool,
}

impl OfflineExt4 {
    /// Opens the volume of `target`, alone.
    ///
    /// # Errors
    /// As [`Self::open`], and when somebody else uses the device or image.
    pub fn of(target: &Target) -> Result<Self, VolumeError> {
        let (disk, journal) = opened(&KIND, &target.device, target.inside.as_ref(), longrun_image::Access::Write)?;
        Self::open(&target.given, disk, journal)
    }

    /// Opens the volume on `disk`, which is ours alone, and completes what an interrupted run has left in `journal`.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why this volume must not be changed (now); nothing was changed but by the completion.
    pub fn open(path: &Path, disk: Arc<dyn Disk>, journal: impl Into<JournalPlace>) -> Result<Self, VolumeError> {
        let place = journal.into();
        let on = |fault: Fault| fault.on(path);
        let disk = FailStop::over(disk);
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let found = recover(&KIND, path, &place, &shared)?;
        let was_interrupted = found.is_some();
        let is_marked = found.as_ref().is_some_and(|found| found.is_marked);
        let source: Box<dyn Source> = Box::new(OnDisk(shared));
        let mut reader = Ext4Reader::from_source(path, source, Access::Still)?;
        let device = &reader.device;
        if let Some(what) = refusal(device.source.as_ref(), &device.sb, is_marked).map_err(on)? {
            return Err(VolumeError::Unsupported { path: path.to_owned(), what });
        }
        let mut fixed = Vec::new();
        push_fixed_areas(&device.sb, &device.groups, &mut fixed);
        let scan = reader.scan(OPTIONS, &NoProgress)?;
        check_claims(&scan).map_err(on)?;
        let serial = (KIND.serial)(&*disk).unwrap_or_default();
        let journal = match found {
            Some(found) => found.journal,
            None => begin(path, &place, (serial, disk.length()))?,
        };
        let free = scan.layout.free().iter().copied().collect();
        let info = VolumeInfo { target: path.to_owned(), device: disk.path().to_owned(), filesystem: EXT4.into() };
        let state = State::new(reader, Arc::clone(&disk), (free, Areas::new(fixed)), journal, is_marked);
        let opened = Some(scan.layout);
        Ok(Self { state: Some(state), opened, info, disk, buffer: Vec::new(), was_interrupted })
    }

    /// Closes it. The disk, and the ranges of it that are free.
    pub(in crate::ext4) fn into_free_ranges(mut self) -> Result<(Arc<dyn Disk>, Ranges), VolumeError> {
        let state = self.state()?;
        let unit = state.block_bytes();
        let ranges = state.free().iter().map(|piece| (Bytes(piece.start.0 * unit), Bytes(piece.length.0 * unit)));
        let ranges = ranges.collect();
        self.close()?;
        Ok((Arc::clone(&self.disk) as _, ranges))
    }

    fn state(&mut self) -> Result<&mut State, VolumeError> {
        self.state.as_mut().ok_or(VolumeError::Interrupted)
    }

    /// An error of something that changes the volume.
    fn on(&self, fault: Fault) -> VolumeError {
        match fault {
            Fault::Io(source) if self.disk.has_failed() => {
                VolumeError::WriteFailed { path: self.info.target.clone(), source }
            }
            other => other.on(&self.info.target),
        }
    }

    /// The file, provided that it is still the same.
    fn file(&mut self, id: FileId) -> Result<&Moving, MoveError> {
        let number = u32::try_from(id.inode.0).map_err(|_| MoveError::Skip(SkipReason::Vanished))?;
        let state = self.state.as_mut().ok_or(VolumeError::Interrupted)?;
        match state.file(number) {
            Ok(Some(file)) if file.inode.generation == id.generation => Ok(file),
            Ok(_) => Err(MoveError::Skip(SkipReason::Vanished)),
            Err(Fault::Io(source)) => {
                Err(VolumeError::Io { path: self.info.target.clone(), act: "reading a file's map", source }.into())
            }
            Err(_) => Err(MoveError::Skip(Pin::DamagedMap.into())),
        }
    }
}

impl Volume for OfflineExt4 {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        self.commit()?;
        let mut layout = match self.opened.take() {
            Some(opened) => opened,
            None => self.state()?.reader.scan(OPTIONS, progress)?.layout,
        };
        layout.withhold(self.state()?.held.owned());
        Ok(layout)
    }

    fn compact_directories(
        &mut self,
        scan: &VolumeLayout,
        progress: &dyn Progress,
    ) -> Result<CompactedDirectories, VolumeError> {
        self.commit()?;
        self.opened = None;
        compact(self.state()?, scan, progress).map_err(|fault| self.on(fault))
    }

    fn names(
        &mut self,
        layout: &VolumeLayout,
        files: &[FileId],
        _: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        self.state()?.reader.names(layout, Path::new("/"), files)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        let state = self.state()?;
        Ok(state.held.unclaimed(state.free().total()))
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.state()?.commit().map_err(|fault| self.on(fault))
    }

    fn close(&mut self) -> Result<(), VolumeError> {
        self.state.take().map_or(Ok(()), State::close).map_err(|fault| self.on(fault))
    }
}

impl Placed for OfflineExt4 {
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        Ok(self.state()?.capture(wanted))
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.state()?.held.release(extents);
        Ok(())
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        Ok(self.state()?.held.owned().clone())
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        self.map_around(file, LogicalRange::ALL)
    }

    fn map_around(&mut self, file: FileId, range: LogicalRange) -> Result<Vec<Run>, MoveError> {
        Ok(self.file(file)?.tree.runs_around(range))
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let place = Extent { start: target, length };
        if !self.state()?.held.may_be_written(place) {
            return Err(MoveError::Skip(SkipReason::TargetTaken));
        }
        self.opened = None;
        let moving = self.file(file)?;
        let number = moving.inode.number;
        let Some(pieces) = moving.tree.within(logical.0, length.0) else {
            return Err(MoveError::Skip(SkipReason::Changed));
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let state = self.state()?;
        let written = pieces.iter().filter(|piece| !piece.is_unwritten);
        let to = |logical_start: u64| target.0 + (logical_start - logical.0);
        let written: Vec<_> =
            written.map(|piece| (piece.extent(), Extent::new(to(piece.logical), piece.length))).collect();
        let copied = state.copy(&written, &mut buffer);
        self.buffer = buffer;
        let copied = copied.map_err(|error| error.on(&self.info.target))?;
        let noted = self.state()?.note((number, logical), place, copied, &pieces);
        let is_noted = noted.map_err(|fault| self.on(fault))?;
        if !is_noted {
            return Err(MoveError::Skip(SkipReason::SpaceNeeded));
        }
        Ok(Exchanged { blocks: length, vacated: pieces.iter().map(Piece::extent).collect() })
    }
}

impl Drop for OfflineExt4 {
    /// A run that failed does not close the volume itself. Its own error is the one that is reported.
    fn drop(&mut self) {
        _ = self.close();
    }
}
