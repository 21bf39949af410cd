//! A volume that is not mounted, as an implementation of the engine's trait.
//!
//! Owns which clusters are held. Nobody else has the volume meanwhile, so that holding one is only a note in memory.

use super::admission::{check_mirror, refusals};
use super::boot::Geometry;
use super::fault::{Fault, NTFS};
use super::file::{MFT, NtfsFile};
use super::file_system::KIND;
use super::names::Paths;
use super::reader::Reader;
use super::scan::{number_of, scan, stream_of};
use super::state::State;
use crate::offline::{JournalPlace, Ranges, begin, recover};
use longrun_engine::{
    Exchanged, Leaked, MoveError, NoProgress, Placed, Progress, SkipReason, Volume, VolumeError, VolumeInfo,
};
use longrun_image::{Disk, FailStop};
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileId, LogicalBlock, LogicalRange, PhysicalBlock, Pin, Run, VolumeLayout,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An NTFS volume that is not mounted, and may be optimized.
pub struct NtfsVolume {
    /// `None` when it is closed.
    state: Option<State>,
    disk: Arc<FailStop>,
    /// What opening it has read: the first scan need not read all records again.
    opened: Option<VolumeLayout>,
    info: VolumeInfo,
    buffer: Vec<u8>,
    was_interrupted: bool,
    leaked: Leaked,
}

impl NtfsVolume {
    /// Opens the volume on `disk`, which is ours alone, and completes what an interrupted run has left in `journal`.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why this volume must not be changed (now); nothing was changed but by the completion.
    pub fn open(path: &Path, disk: Arc<dyn Disk>, journal: impl Into<JournalPlace>) -> Result<Self, VolumeError> {
        Self::open_with(path, disk, &journal.into(), false)
    }

    /// As [`Self::open`]; with `spoils_shadow_copies` a volume with shadow copies is not refused: they become wrong.
    pub(super) fn open_with(
        path: &Path,
        disk: Arc<dyn Disk>,
        place: &JournalPlace,
        spoils_shadow_copies: bool,
    ) -> Result<Self, VolumeError> {
        let on = |fault: Fault| fault.on(path);
        let geometry = Geometry::read(&*disk).map_err(on)?;
        let disk = FailStop::over(disk);
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let found = recover(&KIND, path, place, &shared)?;
        let was_interrupted = found.is_some();
        let is_marked = found.as_ref().is_some_and(|found| found.is_marked);
        let reader = Reader::open(shared).map_err(on)?;
        let mut scan = scan(&reader, &NoProgress).map_err(on)?;
        check_mirror(&reader, &scan.records).map_err(on)?;
        if let Some(what) = refusals(&reader, &scan, is_marked, spoils_shadow_copies).map_err(on)?.into_iter().next() {
            return Err(VolumeError::Unsupported { path: path.to_owned(), what });
        }
        let journal = match found {
            Some(found) => found.journal,
            None => begin(path, place, (geometry.serial, reader.disk.length()))?,
        };
        let device = reader.disk.path().to_owned();
        let mut state =
            State::new(reader, Arc::clone(&disk), scan.clusters, scan.records, journal, is_marked).map_err(on)?;
        let bytes = Bytes(geometry.bytes(scan.leaks.clusters().total().0));
        let mut leaked = Leaked { kept: bytes, why_kept: scan.leaks.why_kept(), ..Leaked::default() };
        if let Some((clusters, records)) = scan.leaks.to_free() {
            state.free_leaks(clusters, records);
            scan.layout.readmit(clusters);
            leaked = Leaked { freed: bytes, records: records.len() as u64, ..Leaked::default() };
        }
        let info = VolumeInfo { target: path.to_owned(), device, filesystem: NTFS.into() };
        let opened = Some(scan.layout);
        Ok(Self { state: Some(state), disk, opened, info, buffer: Vec::new(), was_interrupted, leaked })
    }

    /// Closes it. The disk, and the ranges of it that are free.
    pub(super) fn into_free_ranges(mut self) -> Result<(Arc<dyn Disk>, Ranges), VolumeError> {
        let state = self.state()?;
        let bytes = |clusters| Bytes(state.reader.geometry.bytes(clusters));
        let ranges = state.free().iter().map(|piece| (bytes(piece.start.0), bytes(piece.length.0))).collect();
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
}

impl Volume for NtfsVolume {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    fn leaked(&self) -> Leaked {
        self.leaked
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        self.commit()?;
        let mut layout = match self.opened.take() {
            Some(opened) => opened,
            None => scan(&self.state()?.reader, progress).map_err(|fault| self.on(fault))?.layout,
        };
        layout.withhold(self.state()?.held.owned());
        Ok(layout)
    }

    fn names(&mut self, _: &VolumeLayout, files: &[FileId], _: &dyn Progress) -> Result<Vec<PathBuf>, VolumeError> {
        let mut paths = Paths::new(&self.state()?.reader, Path::new("/"));
        Ok(files.iter().map(|id| paths.of(*id)).collect())
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

impl Placed for NtfsVolume {
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
        let found = self.file(file)?;
        let map = found.map(stream_of(file.inode)).ok_or(MoveError::Skip(SkipReason::Changed))?;
        Ok(map.runs_around(range))
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
        let is_mft = file.inode.0 == MFT;
        self.opened = None;
        if is_mft {
            // Where records lie must not change under those that wait to be written, and none may change after it was copied.
            self.commit()?;
            self.state()?.mark().map_err(|fault| self.on(fault))?;
        }
        let stream = stream_of(file.inode);
        let sources = self.file(file)?.map(stream).and_then(|map| map.within(logical, length));
        let Some(sources) = sources else { return Err(MoveError::Skip(SkipReason::Changed)) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let to = |run: &Run| Extent { start: target + (run.logical - logical), length: run.length };
        let pieces: Vec<_> = sources.iter().map(|run| (run.extent(), to(run))).collect();
        let copied = self.state()?.copy(&pieces, &mut buffer);
        self.buffer = buffer;
        let copied = copied.map_err(|error| error.on(&self.info.target))?;
        let stream = (number_of(file.inode), stream);
        let noted = self.state()?.note(stream, logical, place, copied, &sources);
        let fits = noted.map_err(|fault| self.on(fault))?;
        if !fits {
            return Err(MoveError::Skip(SkipReason::NoRoomInRecord));
        }
        if is_mft {
            self.commit()?;
        }
        Ok(Exchanged { blocks: length, vacated: sources.iter().map(Run::extent).collect() })
    }
}

impl NtfsVolume {
    /// The file of a stream of the model, provided that it is still the same.
    fn file(&mut self, id: FileId) -> Result<&NtfsFile, MoveError> {
        let state = self.state.as_mut().ok_or(VolumeError::Interrupted)?;
        match state.file(number_of(id.inode)) {
            Ok(file) if u32::from(file.reference().sequence) == id.generation => Ok(file),
            Ok(_) => Err(MoveError::Skip(SkipReason::Vanished)),
            Err(Fault::Io(source)) => {
                Err(VolumeError::Io { path: self.info.target.clone(), act: "reading file records", source }.into())
            }
            Err(_) => Err(MoveError::Skip(Pin::DamagedMap.into())),
        }
    }
}

impl Drop for NtfsVolume {
    /// A run that failed does not close the volume itself. Its own error is the one that is reported.
    fn drop(&mut self) {
        _ = self.close();
    }
}
