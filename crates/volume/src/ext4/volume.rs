//! A mounted ext4 volume as an implementation of the trait.

use super::Named;
use super::admission::{Admitted, Purpose, admit};
use super::balloon::{Capturer, Commits, Guard, Shared};
use super::exchange::Mover;
use super::files::{FileCalls, Files};
use super::pipeline::Pipeline;
use super::rescue::Rescue;
use super::scan::{Ext4Reader, FreeSpace, Geometry, ScanOptions};
use super::tuning::Tuning;
use crate::Target;
use crate::mounted::lock_place::VolumeLock;
use crate::mounted::reading::{Reading, await_read, ranges_of};
use longrun_engine::{Exchanged, MoveError, Part, Placed, Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, ExtentSet, FileId, LogicalBlock, PhysicalBlock, Pin, Run, VolumeLayout};
use longrun_sys::{Errno, InodeAttributes};
use std::cell::Cell;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE_CALLS: FileCalls =
    FileCalls { open: |root, id, flags| longrun_sys::open_by_id(root, id, flags), reason_to_skip };

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

/// A mounted ext4 volume that may be optimized. Everything that it owns is given back when it is dropped, or by the
/// kernel when the process dies.
pub struct Ext4Volume {
    // First, so that it ends before what it watches.
    pub(super) guard: Guard,
    pub(super) pipeline: Pipeline,
    reading: Reading,
    pub(super) files: Files,
    pub(super) shared: Arc<Shared>,
    tuning: Tuning,
    stripe: Blocks,
    capture_calls: Cell<u64>,
    reader: Ext4Reader,
    pub(super) geometry: Geometry,
    info: VolumeInfo,
    pub(super) name: Named,
    pub(super) root: File,
    // Last: who has it next must find nothing of ours.
    _lock: VolumeLock,
}

/// The stripe that the allocator aligns to, by the superblock or the mount options; 0 without one.
fn stripe_of(kernel_name: &Path) -> Blocks {
    let options = Path::new("/proc/fs/ext4").join(kernel_name).join("options");
    let options = fs::read_to_string(options).unwrap_or_default();
    let stripe = options.lines().find_map(|line| line.strip_prefix("stripe=")?.parse().ok());
    Blocks(stripe.unwrap_or(0))
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
        let Admitted { root, lock, reader, mount, kernel_name, withheld } = admitted;
        let name = Named(mount.point.clone());
        let tuning = Tuning::open(&kernel_name)?;
        // Donors are many; where the limit cannot be raised fewer of them will do.
        let _ = longrun_sys::raise_open_file_limit();
        let another = || root.try_clone().map_err(name.failed("opening the root directory"));
        // Not a duplicate: what the guard's sync answers must not be kept from the barrier.
        let of_guard = longrun_sys::reopen_directory(&root).map_err(name.failed("opening the root directory"))?;
        let shared = Shared::new(of_guard.into(), withheld).map_err(name.failed("starting the guard"))?;
        let geometry = reader.geometry();
        let device = longrun_sys::device_number_of_file(&root).map_err(name.failed("starting the guard"))?;
        let journal = kernel_name.clone();
        let commits = move || Commits::of(device, &journal);
        Ok(Self {
            guard: Guard::start(&shared, geometry.block_size, commits).map_err(name.failed("starting the guard"))?,
            pipeline: Pipeline::new(geometry.block_size),
            reading: Reading::default(),
            files: Files::new(name.clone(), another()?, FILE_CALLS),
            shared,
            tuning,
            stripe: stripe_of(&kernel_name),
            capture_calls: Cell::new(0),
            geometry,
            reader,
            info: VolumeInfo {
                target: mount.point.clone(),
                device: target.device.clone(),
                filesystem: mount.filesystem.clone(),
            },
            name,
            root,
            _lock: lock,
        })
    }
}

impl Ext4Volume {
    fn mover(&mut self) -> Mover<'_> {
        Mover {
            name: &self.name,
            root: &self.root,
            block_size: self.geometry.block_size,
            shared: &self.shared,
            files: &mut self.files,
            pipeline: &mut self.pipeline,
            reading: &mut self.reading,
        }
    }

    /// Waits until everything that was exchanged is written; what cannot be is put back. Only then may the blocks that it has
    /// left go.
    pub(super) fn finish_moves(&mut self) -> Result<(), VolumeError> {
        let mut result = Ok(());
        while let Err(unwritten) = self.pipeline.drain() {
            let Self { name, root, shared, files, geometry, .. } = self;
            let error = Rescue { name, root, block_size: geometry.block_size, shared, files }.put_back(unwritten);
            result = result.and(Err(error));
        }
        result
    }

    /// Each opening of a file is told an error of writing once, so that any request can be the one that gets it: where moved data
    /// could not be written, that is put back, and its file is named.
    fn blamed<T>(&mut self, result: Result<T, MoveError>) -> Result<T, MoveError> {
        if let Err(MoveError::Fatal(error)) = &result
            && !matches!(error, VolumeError::Unwritten { .. })
        {
            self.finish_moves()?;
        }
        result
    }
}

impl Drop for Ext4Volume {
    fn drop(&mut self) {
        // After an error of something else. Files are put back if need be; there is no one left to tell.
        let _ = self.finish_moves();
    }
}

impl Volume for Ext4Volume {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        // Freed space and delayed allocations show only after a commit.
        longrun_sys::sync_volume(&self.root).map_err(self.name.failed("committing the journal"))?;
        let options =
            ScanOptions { free_space: FreeSpace::Kernel(self.root.as_fd()), directories: true, offline: false };
        Ok(self.reader.scan(options, progress)?.layout)
    }

    fn names(
        &mut self,
        layout: &VolumeLayout,
        files: &[FileId],
        _progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        self.reader.names(layout, &self.name.0, files)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.shared.unclaimed().map_err(self.name.failed("reading the free space"))
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.files.close();
        self.finish_moves()?;
        let failed = |errno: Errno| VolumeError::Barrier { path: self.name.0.clone(), source: errno.into() };
        longrun_sys::sync_volume(&self.root).map_err(failed)?;
        // Some kernels answer syncfs with success on a file system that was shut down or whose journal was aborted; fsync
        // of a directory tells.
        longrun_sys::sync_file(&self.root).map_err(failed)?;
        self.shared.balloon().verify(self.geometry.block_size).map_err(failed)?;
        self.shared.failure().map_or(Ok(()), |errno| Err(failed(errno)))
    }
}

impl Placed for Ext4Volume {
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let capturer = Capturer {
            name: &self.name,
            root: &self.root,
            shared: &self.shared,
            tuning: &self.tuning,
            geometry: self.geometry,
            stripe: self.stripe,
            calls: &self.capture_calls,
        };
        self.guard.watching(|| capturer.capture(wanted))
    }

    fn capture_calls(&self) -> u64 {
        self.capture_calls.get()
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.finish_moves()?;
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
        let map = self.files.map(&open, self.geometry.block_size);
        self.blamed(map)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let asked = self.mover().ask_for(part, pieces);
        self.blamed(asked)
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
        let exchanged = self.mover().exchange(file, logical, target, length);
        self.blamed(exchanged)
    }

    fn pause(&mut self) -> Result<(), VolumeError> {
        self.finish_moves()
    }
}
