//! The scan of a whole volume, for its figures.
//!
//! Owns the choice of how that is done. Never changes anything, and ends at once when it is asked to.

use crate::volumes::Found;
use longrun_layout::Bytes;
use longrun_ledger::Gauge;
use longrun_prevention::FileSystem;
use longrun_sys::{DeviceCounters, DeviceNumber};
use longrun_volume::btrfs;
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use longrun_volume::{Progress, VolumeError};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Whether the figures of this file system can be had by reading the volume as a whole.
#[must_use]
pub fn can_scan(filesystem: FileSystem) -> bool {
    matches!(filesystem, FileSystem::Ext4 | FileSystem::Btrfs)
}

/// What the device of a volume has written so far, for anybody: as long as that stays the same, so does what lies on it. Asks the
/// kernel only, which leaves a disk that sleeps asleep; none where it does not tell.
#[must_use]
pub fn written(found: &Found) -> Option<Bytes> {
    let device = fs::metadata(&found.source).ok()?;
    let counters = DeviceCounters::open(DeviceNumber::from_stat(device.rdev())).ok()?;
    counters.read().ok().map(|counts| counts.written)
}

/// What a scan found.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    /// The figures.
    pub gauge: Gauge,
    /// What the device had written before.
    pub written: Option<Bytes>,
}

/// Reads the volume. Files and free space of what is in use change meanwhile: the figures are those of some moment.
///
/// # Errors
/// [`VolumeError`].
pub fn scan(found: &Found, progress: &dyn Progress) -> Result<Scanned, VolumeError> {
    let point = &found.watched.point;
    if !can_scan(found.watched.filesystem) {
        let what = format!("scanning {} as a whole", found.watched.filesystem);
        return Err(VolumeError::Unsupported { path: point.clone(), what });
    }
    let failed = |act| move |source| VolumeError::Io { path: point.clone(), act, source };
    let root = found.watched.open_root().map_err(failed("opening it"))?;
    if found.watched.filesystem == FileSystem::Btrfs {
        let written = written(found);
        let gauge = Gauge::from(&btrfs::scan::scan(&root, point, progress)?.layout.fragmentation());
        return Ok(Scanned { gauge, written });
    }
    // What has no blocks yet would be missing, and what was freed since the last commit would not be free.
    longrun_sys::sync_volume(&root).map_err(|errno| failed("syncing the volume")(errno.into()))?;
    let written = written(found);
    let mut reader = Ext4Reader::open(&found.source, Access::Live)?;
    let options = ScanOptions { free_space: FreeSpace::Kernel(root.as_fd()), directories: true };
    let gauge = Gauge::from(&reader.scan(options, progress)?.layout.fragmentation());
    Ok(Scanned { gauge, written })
}
