//! The operations that are supported on NTFS.

use super::NtfsVolume;
use super::admission::{is_interrupted, refusals};
use super::boot::Geometry;
use super::fault::Fault;
use super::names::Paths;
use super::reader::Reader;
use super::scan::{NtfsScan, scan};
use crate::file_system::FileSystem;
use crate::survey::{Names, Owner, Source, Survey, file_with, free_piece};
use crate::target::Inside;
use crate::{Target, probe};
use longrun_engine::{Opened, Progress, Scan, VolumeError};
use longrun_image::{Access, Disk, FileDisk};
use longrun_layout::{ExtentSet, FileId, PhysicalBlock, VolumeLayout};
use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the journals of block devices are kept.
const STATE_DIRECTORY: &str = "/var/lib/longrun";

/// NTFS, not mounted.
pub(crate) struct Ntfs;

impl FileSystem for Ntfs {
    fn names(&self) -> &'static [&'static str] {
        &["ntfs"]
    }

    fn signatures(&self) -> &'static [&'static str] {
        &[probe::NTFS, probe::BITLOCKER]
    }

    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        let path = source.path;
        let on = |fault: Fault| fault.on(path);
        let (disk, journal) = opened(source.device, source.inside, Access::Read)?;
        let reader = Reader::open(disk).map_err(on)?;
        if is_interrupted(&journal, &*reader.disk, &reader.geometry) {
            return Err(VolumeError::Unfinished { path: path.to_owned() });
        }
        let found = scan(&reader, progress).map_err(on)?;
        let refusal = refusals(&reader, &found, false).map_err(on)?.into_iter().next();
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
        let (disk, journal) = opened(&target.device, target.inside.as_ref(), Access::Write)?;
        Self::open(&target.given, disk, &journal)
    }
}

/// What has the volume, and where its journal is.
fn opened(device: &Path, inside: Option<&Inside>, access: Access) -> Result<(Arc<dyn Disk>, PathBuf), VolumeError> {
    if let Some(inside) = inside {
        return Ok((Arc::clone(&inside.disk), inside.journal.clone()));
    }
    let disk = FileDisk::open(device, access).map_err(|error| VolumeError::Image(Box::new(error)))?;
    let journal = journal_of(device, None, &disk);
    Ok((Arc::new(disk), journal))
}

/// The journal of the volume on `disk`, which is a device or image, or that of one of its partitions. It lies beside an image, so
/// that it goes where the image goes; that of a device, whose name can be another one tomorrow, in the state directory by the serial number
/// of the volume.
pub(crate) fn journal_of(device: &Path, partition: Option<u32>, disk: &dyn Disk) -> PathBuf {
    let is_device = std::fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device());
    if is_device && let Ok(geometry) = Geometry::read(disk) {
        return Path::new(STATE_DIRECTORY).join(format!("ntfs-{:016x}.longrun-journal", geometry.serial));
    }
    let mut name = OsString::from(".");
    name.push(device.file_name().unwrap_or_default());
    name.push(partition.map(|number| format!("#{number}")).unwrap_or_default());
    name.push(".longrun-journal");
    device.with_file_name(name)
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
        let scan = Scan::Placed { layout: self.scan.layout, unavailable: ExtentSet::new() };
        (scan, Box::new(self.names))
    }
}
