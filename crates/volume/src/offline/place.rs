//! Where the volume and its journal are, and the completion of what an interrupted run has left.
//!
//! Owns the name of the journal. Nothing but that journal is ever replayed.

use super::journal::{Journal, JournalError};
use crate::target::Inside;
use longrun_engine::VolumeError;
use longrun_image::{Access, Disk, FailStop, FileDisk};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the journals of block devices are kept.
const STATE_DIRECTORY: &str = "/var/lib/longrun";

/// A file system whose volumes are worked on while they are not mounted.
pub(crate) struct Kind {
    /// What errors and journals call it.
    pub(crate) name: &'static str,
    /// The number that tells its volumes apart, read so that no interrupted write can change it; `None` when it is another file system.
    pub(crate) serial: fn(&dyn Disk) -> Option<u64>,
}

/// What has the volume, and where its journal is. To write, it is ours alone.
pub(crate) fn opened(
    kind: &Kind,
    device: &Path,
    inside: Option<&Inside>,
    access: Access,
) -> Result<(Arc<dyn Disk>, PathBuf), VolumeError> {
    if let Some(inside) = inside {
        return Ok((Arc::clone(&inside.disk), inside.journal.clone()));
    }
    let disk = FileDisk::open(device, access).map_err(|error| VolumeError::Image(Box::new(error)))?;
    let journal = journal_of(kind, device, None, &disk);
    Ok((FailStop::over(Arc::new(disk)), journal))
}

/// The journal of the volume on `disk`, which is a device or image, or that of one of its partitions. It lies beside an image, so
/// that it goes where the image goes; that of a device, whose name can be another one tomorrow, in the state directory by the serial number
/// of the volume.
pub(crate) fn journal_of(kind: &Kind, device: &Path, partition: Option<u32>, disk: &dyn Disk) -> PathBuf {
    let is_device = std::fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device());
    if is_device && let Some(serial) = (kind.serial)(disk) {
        return Path::new(STATE_DIRECTORY).join(format!("{}-{serial:016x}.longrun-journal", kind.name));
    }
    let mut name = OsString::from(".");
    name.push(device.file_name().unwrap_or_default());
    name.push(partition.map(|number| format!("#{number}")).unwrap_or_default());
    name.push(".longrun-journal");
    device.with_file_name(name)
}

/// Finds the journal of a run that was interrupted, and completes what that run has left.
pub(crate) fn recover(
    kind: &Kind,
    path: &Path,
    journal: &Path,
    disk: &dyn Disk,
) -> Result<Option<Journal>, VolumeError> {
    let failed = |error: JournalError| match error {
        JournalError::Io(source) => {
            VolumeError::Io { path: journal.to_owned(), act: "completing an interrupted run by its journal", source }
        }
        error => VolumeError::Damaged {
            path: path.to_owned(),
            filesystem: kind.name.into(),
            detail: format!("{error}; the journal is {}", journal.display()),
        },
    };
    let Some(serial) = (kind.serial)(disk) else { return Ok(None) };
    let Some(mut found) = Journal::find(journal, serial, disk.length()).map_err(failed)? else { return Ok(None) };
    found.complete(disk).map_err(failed)?;
    Ok(Some(found))
}

/// Whether a run was interrupted before it was closed. What cannot be examined counts as such, but for a
/// journal that the user must not open.
pub(crate) fn is_interrupted(kind: &Kind, journal: &Path, disk: &dyn Disk) -> bool {
    let Some(serial) = (kind.serial)(disk) else { return false };
    match Journal::find(journal, serial, disk.length()) {
        Ok(None) => false,
        // Who may not look into the state directory may be allowed to read the device all the same.
        Err(JournalError::Io(error)) => error.kind() != io::ErrorKind::PermissionDenied,
        _ => true,
    }
}
