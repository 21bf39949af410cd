//! The begin of a run: the journal of an interrupted one is found, and what it has left is completed; or a journal is made.
//!
//! Owns which journal belongs to a volume. Nothing but that journal is ever replayed.

use super::error::JournalError;
use super::journal::Journal;
use super::place::{JournalPlace, Kind};
use longrun_engine::VolumeError;
use longrun_image::{Access, Disk};
use longrun_layout::Bytes;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The journal of an interrupted run, whose last transaction is complete.
pub(crate) struct Recovered {
    pub(crate) journal: Journal,
    /// Whether it was that run that has marked the volume as dirty.
    pub(crate) is_marked: bool,
}

/// Finds the journal of a run that was interrupted, and completes what that run has left.
pub(crate) fn recover(
    kind: &Kind,
    path: &Path,
    place: &JournalPlace,
    disk: &Arc<dyn Disk>,
) -> Result<Option<Recovered>, VolumeError> {
    let complete = || {
        let Some(mut journal) = found(kind, place, disk, Access::Write)? else { return Ok(None) };
        journal.complete(&**disk)?;
        let is_marked = (kind.mark)(disk).is_some_and(|mark| journal.has_marked(&mark));
        Ok(Some(Recovered { journal, is_marked }))
    };
    complete().map_err(|error| match error {
        JournalError::Io(source) => VolumeError::Io {
            path: place.path().to_owned(),
            act: "completing an interrupted run by its journal",
            source,
        },
        error => {
            let journal = match &error {
                JournalError::Elsewhere { found, .. } => found.clone(),
                _ => place.path().to_owned(),
            };
            VolumeError::Journal { path: path.to_owned(), journal, problem: error.to_string() }
        }
    })
}

/// Makes the journal of a run that begins on a volume of this serial number and length.
pub(crate) fn begin(path: &Path, place: &JournalPlace, volume: (u64, Bytes)) -> Result<Journal, VolumeError> {
    if let Some(problem) = place.obstacle() {
        return Err(VolumeError::Journal { path: path.to_owned(), journal: place.path().to_owned(), problem });
    }
    let create = || Journal::create(&place.make_folder()?, place.name(), volume);
    create().map_err(|source| VolumeError::Io { path: place.path().to_owned(), act: "making the journal", source })
}

/// Whether a run was interrupted before it was closed. What cannot be examined counts as such, but for a
/// journal that the user must not open.
pub(crate) fn is_interrupted(kind: &Kind, place: &JournalPlace, disk: &Arc<dyn Disk>) -> bool {
    match found(kind, place, disk, Access::Read) {
        Ok(None) => false,
        // Who may not look into the state directory may be allowed to read the device all the same.
        Err(JournalError::Io(error)) => error.kind() != io::ErrorKind::PermissionDenied,
        _ => true,
    }
}

/// The journal of an interrupted run on the volume on `disk`.
fn found(
    kind: &Kind,
    place: &JournalPlace,
    disk: &Arc<dyn Disk>,
    access: Access,
) -> Result<Option<Journal>, JournalError> {
    let Some(serial) = (kind.serial)(&**disk) else { return Ok(None) };
    let folder = match place.folder() {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let volume = (serial, disk.length());
    let own = Journal::find(&folder, place.name(), access, volume)?;
    if own.is_some() || !place.is_named_after_an_image() {
        return Ok(own);
    }
    for name in folder.journals()? {
        // A file that is not accepted, and a journal of another volume, do not concern this one.
        let other = Journal::find(&folder, &name, Access::Read, volume);
        if let Ok(Some(other)) = other
            && other.belongs_to(&**disk, (kind.mark)(disk))
        {
            let found = place.path().with_file_name(name);
            return Err(JournalError::Elsewhere { found, wanted: place.path().to_owned() });
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
