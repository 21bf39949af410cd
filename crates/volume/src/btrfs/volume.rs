//! A mounted btrfs as an implementation of the trait for volumes with chunks.

use super::admission::{Admitted, admit};
use super::balance::evacuate;
use super::gather::gather;
use super::units::{Remainder, taken_apart, unfit};
use crate::Target;
use crate::mounted::Named;
use crate::mounted::lock_place::VolumeLock;
use longrun_engine::relocated::{ChunkKey, Evacuated, Meter, Picture, Relocated, Task};
use longrun_engine::{Halt, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{BlockSize, Blocks, FileId, VolumeLayout};
use longrun_sys::Errno;
use longrun_sys::Mount;
use std::fs::File;
use std::path::PathBuf;

/// A mounted btrfs volume that may be optimized. Nothing of it is held between two operations.
pub struct BtrfsVolume {
    info: VolumeInfo,
    name: Named,
    root: File,
    mount: Mount,
    last: Option<(Remainder, BlockSize)>,
    // Last: who has it next must find nothing of ours.
    _lock: VolumeLock,
}

impl BtrfsVolume {
    /// Opens the volume of `target` for optimizing, and locks it against other optimizers.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why this volume cannot be optimized (now); nothing was changed.
    pub fn open(target: &Target) -> Result<Self, VolumeError> {
        let Admitted { root, lock, mount } = admit(target)?;
        Ok(Self {
            info: VolumeInfo {
                target: mount.point.clone(),
                device: target.device.clone(),
                filesystem: mount.filesystem.clone(),
            },
            name: Named(mount.point.clone()),
            root,
            mount,
            _lock: lock,
            last: None,
        })
    }
}

impl Volume for BtrfsVolume {
    type Scan = Picture;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<Picture, VolumeError> {
        self.last = None;
        let scan = super::scan::scan(&self.root, &self.name.0, progress)?;
        if let Some(what) = unfit(&scan) {
            return Err(VolumeError::Unsupported { path: self.name.0.clone(), what });
        }
        let block_size = scan.geometry.block_size;
        let (picture, remainder) = taken_apart(scan);
        self.last = Some((remainder, block_size));
        Ok(picture)
    }

    fn names(
        &mut self,
        _layout: &VolumeLayout,
        files: &[FileId],
        _progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        let subvolumes = self.last.as_ref().map(|(scan, _)| scan.subvolumes.as_slice()).unwrap_or_default();
        super::names(&self.root, &self.name.0, subvolumes, Some(&self.mount), files)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        // Nothing at all where there is no room left for metadata.
        let capacity = longrun_sys::capacity(&self.root).map_err(self.name.failed("reading the free space"))?;
        Ok(capacity.available)
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        let failed = |errno: Errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() };
        longrun_sys::sync_volume(&self.root).map_err(failed)?;
        // Where an error, of whomever, has ended all writing, syncing does nothing and succeeds.
        if longrun_sys::is_read_only(&self.root).map_err(failed)? { Err(failed(Errno::ROFS)) } else { Ok(()) }
    }
}

impl Relocated for BtrfsVolume {
    fn gather(&mut self, task: &Task, meter: &mut dyn Meter) -> Result<Option<SkipReason>, Halt> {
        match &self.last {
            Some((scan, block_size)) => gather(&self.name, &self.root, *block_size, scan, task, meter),
            None => Ok(Some(SkipReason::Changed)),
        }
    }

    fn evacuate(&mut self, chunk: ChunkKey, meter: &mut dyn Meter) -> Result<Evacuated, Halt> {
        let chunks = self.last.as_ref().map(|(scan, _)| scan.chunks.as_slice()).unwrap_or_default();
        let Some(found) = chunks.iter().find(|known| known.start.0 == chunk.0) else { return Ok(Evacuated::Gone) };
        evacuate(&self.name, &self.root, found, meter)
    }
}
