//! A mounted XFS volume on which no place can be chosen for a file.

use super::admission::Admitted;
use super::log::Log;
use super::scan::scan;
use crate::Target;
use crate::file_by_file::OneByOne;
use crate::mend::{Limits, MendError, Mended, NotMended, Place, Steering, sharing};
use crate::mounted::Named;
use crate::mounted::lock_place::VolumeLock;
use longrun_engine::{Observer, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, FileId, VolumeLayout};
use longrun_sys::FileHandle;
use std::fs::File;
use std::path::PathBuf;

/// Nothing of it is held between two files.
pub(super) struct XfsFiles {
    info: VolumeInfo,
    name: Named,
    root: File,
    log: Log,
    reason: &'static str,
    // Last: who has it next must find nothing of ours.
    _lock: VolumeLock,
}

impl XfsFiles {
    pub(super) fn admitted(admitted: Admitted, target: &Target, reason: &'static str) -> Result<Self, VolumeError> {
        let Admitted { root, lock, mount, .. } = admitted;
        let name = Named(mount.point.clone());
        let log = Log::open(&root).map_err(name.failed("creating a temporary file"))?;
        let info = VolumeInfo { target: mount.point, device: target.device.clone(), filesystem: mount.filesystem };
        Ok(Self { info, name, root, log, reason, _lock: lock })
    }
}

impl Volume for XfsFiles {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        Ok(scan(&self.root, &self.name.0, progress)?.layout)
    }

    fn names(
        &mut self,
        _layout: &VolumeLayout,
        files: &[FileId],
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        super::names(&self.name.0, files, progress)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        let capacity = longrun_sys::capacity(&self.root).map_err(self.name.failed("reading the free space"))?;
        Ok(capacity.available)
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.log.write().map_err(|errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() })
    }
}

impl OneByOne for XfsFiles {
    fn reason(&self) -> &'static str {
        self.reason
    }

    fn mend(&mut self, file: FileId, limits: Limits, observer: &mut dyn Observer) -> Result<Mended, MendError> {
        let place = Place { root: &self.root, point: &self.name.0 };
        let vanished = || MendError::left(NotMended::Skipped(SkipReason::Vanished));
        let handle = FileHandle::on_xfs(file).ok_or_else(vanished)?;
        sharing::mend(place, &handle, limits, Steering::None, observer)
    }
}
