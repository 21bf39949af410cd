//! A mounted btrfs, behind the trait of volumes whose space comes in chunks.

use super::admission::{Admitted, admit};
use super::balance::evacuate;
use super::gather::gather;
use super::units::{Remainder, taken_apart, unfit};
use crate::chunked::{ChunkKey, ChunkedVolume, Evacuated, Halt, Pace, Picture, Task};
use crate::live::Named;
use crate::{Progress, SkipReason, Target, VolumeError, VolumeInfo};
use longrun_layout::{BlockSize, Bytes};
use longrun_sys::Errno;
use std::fs::File;

/// A mounted btrfs volume that we may optimize. Nothing of it is held between two acts.
pub struct BtrfsVolume {
    info: VolumeInfo,
    name: Named,
    root: File,
    /// Holds the lock.
    _lock: File,
    last: Option<(Remainder, BlockSize)>,
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
            _lock: lock,
            last: None,
        })
    }
}

impl ChunkedVolume for BtrfsVolume {
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

    fn unclaimed(&mut self) -> Result<Bytes, VolumeError> {
        // Nothing at all where there is no room left for metadata.
        let capacity = longrun_sys::capacity(&self.root).map_err(self.name.failed("asking for the free space"))?;
        Ok(capacity.block_size.to_bytes(capacity.available))
    }

    fn gather(&mut self, task: &Task, pace: &mut dyn Pace) -> Result<Option<SkipReason>, Halt> {
        match &self.last {
            Some((scan, block_size)) => gather(&self.name, &self.root, *block_size, scan, task, pace),
            None => Ok(Some(SkipReason::Changed)),
        }
    }

    fn evacuate(&mut self, chunk: ChunkKey, pace: &mut dyn Pace) -> Result<Evacuated, Halt> {
        let chunks = self.last.as_ref().map(|(scan, _)| scan.chunks.as_slice()).unwrap_or_default();
        let Some(found) = chunks.iter().find(|known| known.start.0 == chunk.0) else { return Ok(Evacuated::Gone) };
        evacuate(&self.name, &self.root, found, pace)
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        let failed = |errno: Errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() };
        longrun_sys::sync_volume(&self.root).map_err(failed)?;
        // Where an error, of whomever, has ended all writing, syncing does nothing and succeeds.
        if longrun_sys::is_read_only(&self.root).map_err(failed)? { Err(failed(Errno::ROFS)) } else { Ok(()) }
    }
}
