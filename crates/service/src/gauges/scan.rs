//! Scans a whole volume for its figures.
//!
//! Owns the choice of the method. Never changes anything, and stops at once when requested.

use crate::volumes::Found;
use longrun_engine::{Progress, VolumeError};
use longrun_layout::Bytes;
use longrun_ledger::Gauge;
use longrun_sys::{DeviceCounters, DeviceCounts, DeviceNumber, FileSystem, Mount};
use longrun_volume::survey::{Source, Survey};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether volumes of this file system are scanned by themselves. On XFS a scan opens each file: it is made only on request.
#[must_use]
pub fn is_scanned_daily(filesystem: FileSystem) -> bool {
    matches!(filesystem, FileSystem::Ext4 | FileSystem::Btrfs)
}

/// The counters of the device of a volume. Asks the kernel only, so that a sleeping disk is not woken; `None` if the kernel does
/// not report them.
#[must_use]
pub fn counts(found: &Found) -> Option<DeviceCounts> {
    let device = fs::metadata(&found.source).ok()?;
    DeviceCounters::open(DeviceNumber::from_stat(device.rdev())).ok()?.read().ok()
}

/// The bytes that the device of a volume has written so far for all processes. While they are unchanged, so is its
/// content.
#[must_use]
pub fn written(found: &Found) -> Option<Bytes> {
    counts(found).map(|counts| counts.written)
}

/// The result of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    /// The figures.
    pub gauge: Gauge,
    /// Whether a pass pays.
    pub pays: bool,
    /// What the device had written before.
    pub written: Option<Bytes>,
}

/// Reads the volume, and shows `keep` what was found. Files and free space of what is in use change meanwhile: the figures are those of some moment.
///
/// # Errors
/// [`VolumeError`].
pub fn scan(found: &Found, progress: &dyn Progress, keep: impl FnOnce(&dyn Survey)) -> Result<Scanned, VolumeError> {
    let point = &found.watched.point;
    let failed = |act| move |source| VolumeError::Io { path: point.clone(), act, source };
    let root = found.watched.open_root().map_err(failed("opening it"))?;
    let mount = Mount::of(&root).map_err(failed("reading the mount table"))?;
    let Some(mount) = mount else {
        return Err(VolumeError::NotWritable { path: point.clone(), state: "no longer mounted".to_owned() });
    };
    // Before the device is read: what is written meanwhile counts as written since.
    longrun_sys::sync_volume(&root).map_err(|errno| failed("syncing the volume")(errno.into()))?;
    let written = written(found);
    let source = Source {
        path: point,
        device: &found.source,
        mounted: Some((&mount, root)),
        inside: None,
        spoils_shadow_copies: false,
    };
    let survey = longrun_volume::survey_mounted(source, progress)?;
    let figures = survey.layout().fragmentation();
    let (gauge, pays) = (Gauge::from(&figures), longrun_planner::worthwhile_mode(&figures).is_some());
    keep(survey.as_ref());
    Ok(Scanned { gauge, pays, written })
}
