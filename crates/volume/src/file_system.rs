//! What Longrun can do on a file system: the trait that each folder of one implements.

use crate::Target;
use crate::mend::{Limits, MendError, Mended, Place};
use crate::mounted::io;
use crate::offline::{GivenBack, Kind};
use crate::reclaim::{FreePieces, Trimming};
use crate::survey::{Names, Source, Survey};
use longrun_engine::{Observer, Opened, Progress, VolumeError};
use longrun_layout::{Bytes, ExtentSet};
use longrun_sys::FileHandle;
use std::fs::File;
use std::path::Path;

/// What can be done on a file system. What one does not provide is refused in its name.
pub(crate) trait FileSystem: Sync {
    /// The kernel's names of it.
    fn names(&self) -> &'static [&'static str];

    /// By what [`crate::probe`] knows a volume of it that is not mounted, when such a one can be read, or refused with a reason.
    fn signatures(&self) -> &'static [&'static str] {
        &[]
    }

    /// What tells its unmounted volumes apart; `None` when it works on mounted volumes only.
    fn offline(&self) -> Option<&'static Kind> {
        None
    }

    /// Gives the free space of a volume that is not mounted back to what lies below it: pieces of at least `least` bytes.
    fn give_back(&self, target: &Target, _least: Bytes, _progress: &dyn Progress) -> Result<GivenBack, VolumeError> {
        let state = "not mounted".to_owned();
        Err(VolumeError::NotWritable { path: target.given.clone(), state })
    }

    /// Whether a volume of it must be asked file by file, for how it is made.
    fn is_unreadable_as_a_whole(&self, _target: &Target) -> bool {
        false
    }

    /// Reads a volume as a whole.
    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError>;

    /// Finds the paths of its files without reading the volume as a whole. What it is asked about tells the directory of each
    /// file, where the layout of the survey did.
    fn namer(&self, source: Source<'_>) -> Result<Box<dyn Names>, VolumeError> {
        let what = "finding the paths of files".to_owned();
        Err(VolumeError::Unsupported { path: source.path.to_owned(), what })
    }

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

    /// How FITRIM goes over the volume of `root`.
    fn trimming(&self, _root: &File, target: &Target) -> Result<Trimming, VolumeError> {
        let name = target.mount.as_ref().map_or("", |mount| mount.filesystem.as_str());
        let what = format!("giving back the free space of {name}");
        Err(VolumeError::Unsupported { path: target.given.clone(), what })
    }

    /// What of the free space FITRIM skips, where the file system remembers what it has trimmed; in words.
    fn skips_when_trimming(&self) -> Option<&'static str> {
        None
    }

    /// The free space of the mounted volume of `root`, which errors call `path`, by its places on the device; none where it
    /// lies on several.
    fn free_pieces(
        &self,
        root: &File,
        path: &Path,
        _progress: &dyn Progress,
    ) -> Result<Option<FreePieces>, VolumeError> {
        let block_size = longrun_sys::capacity(root).map_err(io(path, "reading how full it is"))?.block_size;
        let pieces = longrun_sys::all_free_extents(root, block_size).map_err(io(path, "reading its free space"))?;
        let pieces: ExtentSet = pieces.into_iter().collect();
        Ok(Some(FreePieces { block_size, pieces: pieces.iter().collect() }))
    }
}
