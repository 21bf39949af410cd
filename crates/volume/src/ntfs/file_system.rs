//! The operations that are supported on NTFS.

use super::NtfsVolume;
use super::admission::refusals;
use super::boot::Geometry;
use super::fault::Fault;
use super::names::Paths;
use super::reader::{Reader, system};
use super::scan::{NtfsScan, scan};
use crate::file_system::FileSystem;
use crate::offline::{GivenBack, Kind, give_back, is_interrupted, opened};
use crate::survey::{Names, Owner, Source, Survey, file_with, free_piece};
use crate::{Target, probe};
use longrun_engine::{Opened, Progress, Scan, VolumeError};
use longrun_image::Access;
use longrun_layout::{Bytes, ExtentSet, FileId, PhysicalBlock, VolumeLayout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the journal needs to know of it.
pub(super) static KIND: Kind = Kind {
    name: super::fault::NTFS,
    serial: |disk| Geometry::read(disk).ok().map(|geometry| geometry.serial),
    mark: |disk| Reader::open(Arc::clone(disk)).ok()?.raw_record(system::VOLUME).ok(),
};

/// NTFS, not mounted.
pub(crate) struct Ntfs;

impl FileSystem for Ntfs {
    fn names(&self) -> &'static [&'static str] {
        &["ntfs"]
    }

    fn signatures(&self) -> &'static [&'static str] {
        &[probe::NTFS, probe::BITLOCKER]
    }

    fn offline(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn give_back(&self, target: &Target, least: Bytes, progress: &dyn Progress) -> Result<GivenBack, VolumeError> {
        let free = NtfsVolume::of(target)?.into_free_ranges()?;
        give_back(&target.given, free, least, progress)
    }

    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        let path = source.path;
        let on = |fault: Fault| fault.on(path);
        let (disk, journal) = opened(&KIND, source.device, source.inside, Access::Read)?;
        let reader = Reader::open(disk).map_err(on)?;
        if is_interrupted(&KIND, &journal, &reader.disk) {
            return Err(VolumeError::Unfinished { path: path.to_owned() });
        }
        let found = scan(&reader, progress).map_err(on)?;
        let refusal = refusals(&reader, &found, false, source.spoils_shadow_copies).map_err(on)?.into_iter().next();
        Ok(Box::new(Found { scan: found, refusal, names: ByRecords { reader } }))
    }

    fn open(&self, target: &Target) -> Result<Opened, VolumeError> {
        Ok(Opened::Placed(Box::new(NtfsVolume::of(target)?)))
    }
}

impl NtfsVolume {
    /// Opens the volume of `target`, alone.
    ///
    /// # Errors
    /// As [`NtfsVolume::open`], and when somebody else uses the device or image.
    pub fn of(target: &Target) -> Result<Self, VolumeError> {
        let (disk, journal) = opened(&KIND, &target.device, target.inside.as_ref(), Access::Write)?;
        Self::open_with(&target.given, disk, &journal, target.spoils_shadow_copies)
    }
}

struct Found {
    scan: NtfsScan,
    refusal: Option<String>,
    names: ByRecords,
}

struct ByRecords {
    reader: Reader,
}

impl Names for ByRecords {
    fn of(&self, _: &VolumeLayout, files: &[FileId], _: &dyn Progress) -> Result<Vec<PathBuf>, VolumeError> {
        let mut paths = Paths::new(&self.reader, Path::new("/"));
        Ok(files.iter().map(|id| paths.of(*id)).collect())
    }
}

impl Survey for Found {
    fn layout(&self) -> &VolumeLayout {
        &self.scan.layout
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.clone()
    }

    fn owner(&self, block: PhysicalBlock) -> Owner {
        let layout = &self.scan.layout;
        let file = || file_with(layout, block);
        let free = || free_piece(layout, block).map(|piece| Owner::Free { piece, note: None });
        file().or_else(free).unwrap_or(Owner::Unknown { note: Some("marked as in use, and no file has it") })
    }

    fn names(&self) -> &dyn Names {
        &self.names
    }

    fn into_scan(self: Box<Self>) -> (Scan, Box<dyn Names>) {
        // As a run finds it: what is leaked is freed first.
        let NtfsScan { mut layout, leaks, .. } = self.scan;
        if let Some((clusters, _)) = leaks.to_free() {
            layout.readmit(clusters);
        }
        let scan = Scan::Placed { layout, unavailable: ExtentSet::new() };
        (scan, Box::new(self.names))
    }
}
