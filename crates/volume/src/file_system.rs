//! What Longrun can do on a file system: the trait that each folder of one implements.

use crate::Target;
use crate::mend::{Limits, MendError, Mended, Place};
use crate::survey::{Source, Survey};
use longrun_engine::{Observer, Opened, Progress, VolumeError};
use longrun_sys::FileHandle;

/// What can be done on a file system. What one does not provide is refused in its name.
pub(crate) trait FileSystem: Sync {
    /// The kernel's names of it.
    fn names(&self) -> &'static [&'static str];

    /// By what [`crate::probe`] knows a volume of it that is not mounted, when such a one can be read, or refused with a reason.
    fn signatures(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a volume of it must be asked file by file, for how it is made.
    fn is_unreadable_as_a_whole(&self, _target: &Target) -> bool {
        false
    }

    /// Reads a volume as a whole.
    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError>;

    /// Opens a volume for optimizing.
    fn open(&self, target: &Target) -> Result<Opened, VolumeError> {
        let name = target.mount.as_ref().map_or("a volume that is not mounted", |mount| mount.filesystem.as_str());
        Err(VolumeError::Unsupported { path: target.given.clone(), what: format!("optimizing {name}") })
    }

    /// Makes one file whole.
    fn mend(
        &self,
        place: Place<'_>,
        _handle: &FileHandle,
        _limits: Limits,
        _observer: &mut dyn Observer,
    ) -> Result<Mended, MendError> {
        Err(VolumeError::Unsupported { path: place.point.to_owned(), what: "mending on this file system".into() }
            .into())
    }
}
