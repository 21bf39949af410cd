//! A mounted ext4 volume, behind the trait.

use super::Named;
use super::admission::{Admitted, Purpose, admit};
use super::balloon::{Capturer, Guard, Shared, Tripwire};
use super::exchange::Mover;
use super::files::{Customs, Files};
use super::pipeline::Pipeline;
use super::scan::{Ext4Reader, FreeSpace, Geometry, ScanOptions};
use super::tuning::Tuning;
use crate::live::reading::{Reading, await_read, ranges_of};
use crate::{Exchanged, MoveError, Part, Progress, SkipReason, Target, Volume, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, ExtentSet, FileId, LogicalBlock, PhysicalBlock, Pin, Run, VolumeLayout};
use longrun_sys::{Errno, InodeAttributes};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

const CUSTOMS: Customs = Customs { open: |root, id, flags| longrun_sys::open_by_id(root, id, flags), reason_to_skip };

fn reason_to_skip(attributes: InodeAttributes) -> Option<SkipReason> {
    let pins = [
        (attributes.is_immutable() || attributes.is_append_only(), Pin::Immutable),
        (attributes.is_encrypted(), Pin::Encrypted),
        (attributes.has_verity(), Pin::Verity),
        (attributes.journals_data(), Pin::JournalData),
    ];
    let pin = pins.into_iter().find_map(|(applies, pin)| applies.then_some(SkipReason::Pinned(pin)));
    let unfit = attributes.is_inline() || attributes.is_dax();
    let other = unfit.then_some(SkipReason::NotExchangeable);
    // Inline data excludes extents: ask for it first.
    pin.or(other).or_else(|| (!attributes.has_extents()).then_some(SkipReason::Pinned(Pin::Indirect)))
}

/// A mounted ext4 volume that we may optimize. Everything owned is given back when it is dropped, and by the kernel when
/// the process dies.
pub struct Ext4Volume {
    // First, so that it ends before what it watches.
    pub(super) guard: Guard,
    pub(super) pipeline: Pipeline,
    reading: Reading,
    pub(super) files: Files,
    pub(super) shared: Arc<Shared>,
    tuning: Tuning,
    reader: Ext4Reader,
    pub(super) geometry: Geometry,
    info: VolumeInfo,
    pub(super) name: Named,
    /// Holds the lock.
    pub(super) root: File,
}

impl Ext4Volume {
    /// Opens the volume of `target` for optimizing, and locks it against other optimizers.
    ///
    /// # Errors
    /// [`VolumeError`] with the reason why this volume cannot be optimized (now); nothing was changed.
    pub fn open(target: &Target) -> Result<Self, VolumeError> {
        Self::admitted(admit(target, Purpose::Optimizing)?, target)
    }

    /// As [`Self::open`], for mending one file and no longer.
    pub(super) fn open_for_one_file(target: &Target) -> Result<Self, VolumeError> {
        Self::admitted(admit(target, Purpose::Mending)?, target)
    }

    fn admitted(admitted: Admitted, target: &Target) -> Result<Self, VolumeError> {
        let Admitted { root, reader, mount, kernel_name, withheld } = admitted;
        let name = Named(mount.point.clone());
        let tuning = Tuning::open(&kernel_name)?;
        // Donors are many; where the limit cannot be raised fewer of them will do.
        let _ = longrun_sys::raise_open_file_limit();
        let another = || root.try_clone().map_err(name.failed("opening the root directory"));
        // Not a duplicate: what the guard's sync answers must not be kept from the barrier.
        let of_guard = longrun_sys::reopen_directory(&root).map_err(name.failed("opening the root directory"))?;
        let shared = Shared::new(of_guard.into(), withheld);
        let geometry = reader.geometry();
        let tripwire = Tripwire::new(geometry.block_size, &kernel_name);
        Ok(Self {
            guard: Guard::start(&shared, tripwire).map_err(name.failed("starting the guard"))?,
            pipeline: Pipeline::default(),
            reading: Reading::default(),
            files: Files::new(name.clone(), another()?, CUSTOMS),
            shared,
            tuning,
            geometry,
            reader,
            info: VolumeInfo {
                target: mount.point.clone(),
                device: target.device.clone(),
                filesystem: mount.filesystem.clone(),
            },
            name,
            root,
        })
    }
}

impl Ext4Volume {
    fn mover(&mut self) -> Mover<'_> {
        Mover {
            name: &self.name,
            block_size: self.geometry.block_size,
            shared: &self.shared,
            files: &mut self.files,
            pipeline: &mut self.pipeline,
            reading: &mut self.reading,
        }
    }
}

impl Volume for Ext4Volume {
    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        // Freed space and delayed allocations show only after a commit.
        longrun_sys::sync_volume(&self.root).map_err(self.name.failed("committing the journal"))?;
        let options = ScanOptions { free_space: FreeSpace::Kernel(self.root.as_fd()), directories: true };
        Ok(self.reader.scan(options, progress)?.layout)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.shared.unclaimed().map_err(self.name.failed("asking for the free space"))
    }

    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let capturer = Capturer {
            name: &self.name,
            root: &self.root,
            shared: &self.shared,
            tuning: &self.tuning,
            geometry: self.geometry,
        };
        self.guard.watching(|| capturer.capture(wanted))
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.shared.release(extents, self.geometry.block_size).map_err(self.name.failed("giving back free space"))?;
        self.shared.balloon().close_empty();
        Ok(())
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        let mut balloon = self.shared.balloon();
        balloon.verify(self.geometry.block_size).map_err(self.name.failed("mapping owned space"))?;
        Ok(balloon.owned().clone())
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        let open = self.files.open(file)?;
        self.files.map(&open, self.geometry.block_size)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.mover().ask_for(part, pieces)
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let file = self.files.open(part.file)?;
        await_read(file.file(), &ranges_of(self.geometry.block_size, pieces));
        Ok(())
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        self.mover().exchange(file, logical, target, length)
    }

    fn barrier(&mut self) -> Result<(), VolumeError> {
        let failed = |errno: Errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() };
        self.files.close();
        self.pipeline.drain().map_err(failed)?;
        longrun_sys::sync_volume(&self.root).map_err(failed)?;
        // Some kernels answer syncfs with success on a file system that was shut down or whose journal was aborted; fsync
        // of a directory tells.
        longrun_sys::sync_file(&self.root).map_err(failed)?;
        self.shared.balloon().verify(self.geometry.block_size).map_err(failed)?;
        self.shared.failure().map_or(Ok(()), |errno| Err(failed(errno)))
    }
}
