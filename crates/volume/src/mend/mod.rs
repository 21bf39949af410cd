//! Mending: defragments one file of a mounted volume without a scan of the volume.
//!
//! Owns the choice of the method and of the parts to move ([`worth`], [`joins`]). On ext4 it uses the engine that optimizes
//! volumes, with a plan for one file ([`crate::ext4`]). On XFS and btrfs it makes a copy, which the kernel compares
//! with the file and then shares in place of its blocks ([`sharing`]). Never changes a byte or a time stamp, never
//! insists on a file that changes meanwhile, and never leaves a file in more fragments.

mod joins;
pub(crate) mod sharing;
mod worth;

pub use crate::remap::Place;
pub use longrun_engine::share::NotMended;
pub(crate) use worth::worth_moving;

pub(crate) use sharing::Steering;

use crate::mounted::admission;
use crate::mounted::lock_place::VolumeLock;
use longrun_engine::{Observer, VolumeError, until_permitted};
use longrun_layout::Bytes;
use longrun_sys::{DeviceNumber, FileHandle, Mount};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The limits of one mending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes to move. A file that would take more is left alone.
    pub budget: Bytes,
    /// The most bytes to move for each fragment that the file is fewer: longer ones stay where they are.
    pub worth: Bytes,
    /// The same for the time being. What costs more is left for later ([`NotMended::Dear`]), because it may cost less when
    /// other files have made room. On XFS and btrfs.
    pub price: Bytes,
    /// Free space that stays with others at any moment, twice of it to begin with; by default a fiftieth of the
    /// volume, at least 32 MiB, at most 1 GiB, and on ext4 what the guard of every optimizer keeps.
    pub floor: Option<Bytes>,
}

impl Limits {
    /// As many bytes as it takes.
    pub const NONE: Self =
        Self { budget: Bytes(u64::MAX), worth: Bytes(u64::MAX), price: Bytes(u64::MAX), floor: None };
}

/// A file that was mended, or that did not need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// Excess fragments as it was found.
    pub before: u64,
    /// Excess fragments as it was left: never more, unless another process wrote to it meanwhile.
    pub after: u64,
    /// Bytes that were written for it.
    pub moved: Bytes,
}

/// Why a file was not mended.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// It was left as it is; another may well be mended.
    #[error("the file was not mended: {}", reason.phrase())]
    Left {
        /// Why.
        reason: NotMended,
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
            VolumeError::InUse { .. } => Self::left(NotMended::OtherOptimizer),
            other => other.into(),
        }
    }

    /// Left before anything was written for it.
    pub(crate) fn left(reason: NotMended) -> Self {
        Self::Left { reason, written: Bytes(0) }
    }
}

/// The way where the kernel shares blocks after comparing them.
pub(crate) fn by_sharing(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    steering: Steering,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    refuse_growing(place)?;
    let alone = VolumeLock::for_one_file(place.root, place.point);
    let _alone = alone.map_err(MendError::unless_in_use)?;
    sharing::mend(place, handle, limits, steering, observer)
}

/// Refuses volumes on which each rewritten block takes space of a pool or a snapshot below, as whole-volume runs do.
fn refuse_growing(place: Place<'_>) -> Result<(), VolumeError> {
    let mount = Mount::of(place.root).ok().flatten();
    let device = mount.and_then(|mount| std::fs::metadata(mount.source).ok()).map(|meta| meta.rdev());
    device.map_or(Ok(()), |number| admission::refuse_growing(place.point, DeviceNumber::from_stat(number)))
}

/// Returns when the observer permits to move the first of `needed` bytes.
pub(crate) fn await_permission(observer: &mut dyn Observer, needed: Bytes) -> Result<(), MendError> {
    until_permitted(observer, needed, Duration::MAX, |observer| {
        if observer.cancelled() { Err(MendError::left(NotMended::Cancelled)) } else { Ok(()) }
    })
}
