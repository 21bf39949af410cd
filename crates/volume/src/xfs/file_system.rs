//! The operations that are supported on XFS.

use super::admission::{admit, only_files, unfit};
use super::files::XfsFiles;
use super::scan::{XfsScan, scan};
use super::{XfsVolume, names, trimming, withhold_anchors};
use crate::Target;
use crate::file_by_file::{FileByFile, picture};
use crate::file_system::FileSystem;
use crate::mend::{self, Limits, MendError, Mended, Place, Steering};
use crate::reclaim::Trimming;
use crate::survey::{Names, Owner, Source, Survey, file_with, free_piece};
use longrun_engine::{Observer, Opened, Progress, Scan, VolumeError};
use longrun_layout::{Extent, FileId, PhysicalBlock, VolumeLayout};
use longrun_sys::{FileHandle, SpaceOwner};
use std::fs::File;
use std::path::PathBuf;

/// XFS.
pub(crate) struct Xfs;

impl FileSystem for Xfs {
    fn names(&self) -> &'static [&'static str] {
        &["xfs"]
    }

    /// By the kernel's own calls.
    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        let path = source.path;
        let (mount, root) = source.mount()?;
        Ok(Box::new(Read { scan: scan(&root, path, progress)?, names: ByWalk { top: mount.point.clone() } }))
    }

    fn namer(&self, source: Source<'_>) -> Result<Box<dyn Names>, VolumeError> {
        let (mount, _) = source.mount()?;
        Ok(Box::new(ByWalk { top: mount.point.clone() }))
    }

    fn open(&self, target: &Target) -> Result<Opened, VolumeError> {
        let admitted = admit(target)?;
        Ok(match only_files(&admitted.geometry) {
            None => Opened::Placed(Box::new(XfsVolume::admitted(admitted, target)?)),
            Some(reason) => {
                let volume = XfsFiles::admitted(admitted, target, reason)?;
                Opened::Relocated(Box::new(FileByFile::new(volume)))
            }
        })
    }

    fn mend(
        &self,
        place: Place<'_>,
        handle: &FileHandle,
        limits: Limits,
        observer: &mut dyn Observer,
    ) -> Result<Mended, MendError> {
        mend::by_sharing(place, handle, limits, Steering::Beside, observer)
    }

    fn trimming(&self, root: &File, target: &Target) -> Result<Trimming, VolumeError> {
        trimming::trimming(root, target)
    }
}

struct Read {
    scan: XfsScan,
    names: ByWalk,
}

struct ByWalk {
    top: PathBuf,
}

impl Names for ByWalk {
    fn of(&self, _: &VolumeLayout, files: &[FileId], progress: &dyn Progress) -> Result<Vec<PathBuf>, VolumeError> {
        names(&self.top, files, progress)
    }
}

impl Survey for Read {
    fn layout(&self) -> &VolumeLayout {
        &self.scan.layout
    }

    fn refusal(&self) -> Option<String> {
        unfit(&self.scan.geometry)
    }

    fn owner(&self, block: PhysicalBlock) -> Owner {
        let layout = &self.scan.layout;
        if let Some(file) = file_with(layout, block) {
            return file;
        }
        if let Some(piece) = free_piece(layout, block) {
            return Owner::Free { piece, note: None };
        }
        let Some(area) = self.scan.area_at(block) else { return Owner::Unknown { note: None } };
        let Some(what) = word(area.owner) else { return Owner::Unknown { note: None } };
        Owner::Metadata { what: what.to_owned(), of: None, extent: Some(area.extent) }
    }

    fn areas(&self) -> Box<dyn Iterator<Item = (Extent, &'static str)> + '_> {
        Box::new(self.scan.areas.iter().filter_map(|area| Some((area.extent, word(area.owner)?))))
    }

    fn names(&self) -> &dyn Names {
        &self.names
    }

    fn into_scan(self: Box<Self>) -> (Scan, Box<dyn Names>) {
        let Self { scan: XfsScan { mut layout, geometry, .. }, names } = *self;
        let scan = match only_files(&geometry) {
            None => {
                let unavailable = withhold_anchors(&geometry, &mut layout);
                Scan::Placed { layout, unavailable }
            }
            Some(reason) => Scan::Relocated(picture(layout, reason)),
        };
        (scan, Box::new(names))
    }
}

/// What an area is, if it belongs to the file system.
fn word(owner: SpaceOwner) -> Option<&'static str> {
    match owner {
        SpaceOwner::FixedMetadata => Some("superblock or group headers, or their backup"),
        SpaceOwner::Journal => Some("journal"),
        SpaceOwner::Inodes => Some("inodes"),
        SpaceOwner::Metadata => Some("of the file system itself"),
        _ => None,
    }
}
