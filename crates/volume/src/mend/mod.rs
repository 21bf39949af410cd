//! Mending: one fragmented file of a mounted volume becomes whole, without a scan of the volume.
//!
//! Owns the choice of the way: on ext4 the engine that optimizes volumes, on a plan for one file ([`crate::ext4`]); on XFS
//! and btrfs a copy that the kernel compares with the file and then gives it in place of its blocks ([`sharing`]); and of what
//! is moved for that ([`worth`]). Never
//! changes a byte or a time, never forces a file that changes meanwhile, and never leaves it in more fragments.

mod sharing;
mod worth;

pub use crate::rewrite::{LeftReason, Place};
pub(crate) use worth::worth_moving;

use crate::VolumeError;
use crate::engine::{Observer, Permission};
use crate::live::admission;
use crate::live::lock::lock_for_one_file;
use crate::target::Mount;
use crate::{btrfs, ext4};
use longrun_layout::Bytes;
use longrun_sys::{DeviceNumber, FileHandle, FileSystemMagic};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// What one mending may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes to move. A file that would take more is left alone.
    pub budget: Bytes,
    /// The most bytes to move for each fragment that the file is fewer: longer ones stay where they are.
    pub worth: Bytes,
    /// Free space that stays with others at any moment, twice of it to begin with; by default a fiftieth of the volume, at
    /// least 32 MiB, at most 1 GiB, and on ext4 what the guard of every optimizer keeps.
    pub floor: Option<Bytes>,
}

impl Limits {
    /// As many bytes as it takes.
    pub const NONE: Self = Self { budget: Bytes(u64::MAX), worth: Bytes(u64::MAX), floor: None };
}

/// A file that was mended, or found not to need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// Excess fragments as it was found.
    pub before: u64,
    /// Excess fragments as it was left: never more, unless somebody wrote to it meanwhile.
    pub after: u64,
    /// Bytes that were written for it.
    pub moved: Bytes,
}

/// Why a file was not mended.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// It was left as it is; another may well be mended.
    #[error("left as it is: {reason:?}")]
    Left {
        /// Why.
        reason: LeftReason,
        /// What had been written for it by then.
        written: Bytes,
    },
    /// No file of the volume can be mended (now).
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl MendError {
    /// An error of opening the volume. That another optimizer works on it passes.
    pub(crate) fn unless_in_use(error: VolumeError) -> Self {
        match error {
            VolumeError::InUse { .. } => Self::left(LeftReason::OtherOptimizer),
            other => other.into(),
        }
    }

    fn left(reason: LeftReason) -> Self {
        Self::Left { reason, written: Bytes(0) }
    }
}

/// Makes the file `handle` lie in one piece, or in as few as are worth it and the free space allows if that is a gain. `observer` is asked
/// before each chunk whether it may be moved, and whether to stop.
///
/// # Errors
/// [`MendError`], with the reason. Whatever it is, content, times and attributes of the file are as before.
pub fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let magic = longrun_sys::file_system_magic(place.root).map_err(place.failed("asking for the file system"))?;
    match magic {
        FileSystemMagic::EXT4 => ext4::mend(place, handle, limits, observer),
        FileSystemMagic::XFS | FileSystemMagic::BTRFS => {
            refuse_growing(place)?;
            let _alone = lock(place)?;
            sharing::mend(place, handle, limits, observer)
        }
        FileSystemMagic(other) => {
            let what = format!("mending on the file system with the number {other:#x}");
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what }.into())
        }
    }
}

/// Refuses where each block that is written anew takes space of a pool or of a snapshot below, as whole-volume runs do.
fn refuse_growing(place: Place<'_>) -> Result<(), VolumeError> {
    let mount = Mount::of(place.root).ok().flatten();
    let device = mount.and_then(|mount| std::fs::metadata(mount.source).ok()).map(|meta| meta.rdev());
    device.map_or(Ok(()), |number| admission::refuse_growing(place.point, DeviceNumber::from_stat(number)))
}

/// Excludes other optimizers until the answer is dropped, as whole-volume runs do: by a lock on the root directory.
fn lock(place: Place<'_>) -> Result<File, MendError> {
    let own = match btrfs::lock_file(place.root) {
        Some(directory) => directory,
        None => File::from(longrun_sys::reopen_directory(place.root).map_err(place.failed("locking the volume"))?),
    };
    lock_for_one_file(&own, place.point).map_err(MendError::unless_in_use)?;
    Ok(own)
}

/// Asked before each chunk: may it be moved, does anybody still want it?
pub(crate) fn checkpoint(observer: &mut dyn Observer, next: Bytes) -> Result<(), LeftReason> {
    loop {
        if observer.cancelled() {
            return Err(LeftReason::Cancelled);
        }
        match observer.permission(next) {
            Permission::Go => return Ok(()),
            Permission::Wait(time) => observer.wait(time),
        }
    }
}
