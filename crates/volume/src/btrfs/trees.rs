//! The trees of one volume, and what the kernel's refusals mean.
//!
//! Owns the buffer and the name of the volume in errors. Never interprets an item.

use crate::{Progress, VolumeError};
use longrun_sys::{Errno, TreeId, TreeItem, TreeKey, TreeReader, Visit};
use std::fs::File;
use std::path::Path;

/// Between two looks at whether to go on.
const ITEMS_BETWEEN_LOOKS: u32 = 4096;

/// The trees of a volume.
pub(super) struct Trees<'a> {
    pub(super) volume: &'a File,
    pub(super) path: &'a Path,
    pub(super) progress: &'a dyn Progress,
    reader: TreeReader,
}

impl<'a> Trees<'a> {
    pub(super) fn new(volume: &'a File, path: &'a Path, progress: &'a dyn Progress) -> Self {
        Self { volume, path, progress, reader: TreeReader::default() }
    }

    /// Visits a part of a tree; false when there is no such tree (any more).
    pub(super) fn visit(
        &mut self,
        tree: TreeId,
        first: TreeKey,
        last: TreeKey,
        mut visit: impl FnMut(TreeItem<'_>) -> Visit,
    ) -> Result<bool, VolumeError> {
        let (mut until_look, mut interrupted) = (0, false);
        let visited = self.reader.for_each_item(self.volume, tree, first, last, |item| {
            if until_look == 0 {
                until_look = ITEMS_BETWEEN_LOOKS;
                interrupted = self.progress.cancelled();
                if interrupted {
                    return Visit::Stop;
                }
            }
            until_look -= 1;
            visit(item)
        });
        match visited {
            Ok(()) if interrupted => Err(VolumeError::Interrupted),
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("reading a tree")(errno)),
        }
    }

    pub(super) fn failed(&self, act: &'static str) -> impl FnOnce(Errno) -> VolumeError + use<> {
        let path = self.path.to_owned();
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => {
                VolumeError::NotPermitted { path, act: "reading the trees of the volume".into() }
            }
            errno => VolumeError::Io { path, act, source: errno.into() },
        }
    }

    pub(super) fn damaged(&self, detail: impl Into<String>) -> VolumeError {
        VolumeError::Damaged { path: self.path.to_owned(), detail: detail.into() }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> VolumeError {
        VolumeError::Unsupported { path: self.path.to_owned(), what: what.into() }
    }
}
