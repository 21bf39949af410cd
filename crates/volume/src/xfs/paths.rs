//! The paths of files that are known by inode number.
//!
//! Owns a walk through directories. Never opens a file, never leaves the volume. A user may replace a directory by a
//! link after it was found and before it is read; such a link is not followed.

use longrun_engine::{Progress, VolumeError, unnamed};
use longrun_layout::{FileId, InodeNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The paths of `files` below `top`, a mount point, in their order.
///
/// # Errors
/// As [`paths_of`].
pub fn names(top: &Path, files: &[FileId], progress: &dyn Progress) -> Result<Vec<PathBuf>, VolumeError> {
    let inodes: Vec<InodeNumber> = files.iter().map(|file| file.inode).collect();
    let mut paths = paths_of(top, &inodes, progress)?;
    Ok(inodes.iter().map(|inode| paths.remove(inode).unwrap_or_else(|| unnamed(*inode))).collect())
}

/// The path below `top`, a mount point, of each of `inodes` that has one there; one of its names, if it has several. Ends
/// as soon as all are found, or `progress` is cancelled.
///
/// # Errors
/// [`VolumeError::Io`] when `top` itself cannot be read; what cannot be read below has no names.
pub fn paths_of(
    top: &Path,
    inodes: &[InodeNumber],
    progress: &dyn Progress,
) -> Result<BTreeMap<InodeNumber, PathBuf>, VolumeError> {
    let failed = |act| move |source| VolumeError::Io { path: top.to_owned(), act, source };
    let device = fs::metadata(top).map_err(failed("examining it"))?.dev();
    let mut wanted: BTreeSet<u64> = inodes.iter().map(|inode| inode.0).collect();
    let (mut found, mut open) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        if wanted.is_empty() || progress.cancelled() {
            break;
        }
        let entries = match longrun_sys::list_trusted_directory(&directory) {
            Err(source) if directory == top => return Err(failed("reading the directory")(source)),
            Err(_) => continue,
            Ok(entries) => entries,
        };
        for entry in entries.flatten() {
            progress.give_way();
            let path = directory.join(entry.file_name());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            // A mount point has the inode number of what is mounted there, or of what is hidden below.
            if is_directory && !entry.metadata().is_ok_and(|meta| meta.dev() == device) {
                continue;
            }
            if wanted.remove(&entry.ino()) {
                found.insert(InodeNumber(entry.ino()), path.clone());
            }
            if is_directory {
                open.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Counts how often others may go first.
    #[derive(Default)]
    struct Asked(Cell<u32>);

    impl Progress for Asked {
        fn at(&self, _done: u64, _total: u64) {}

        fn cancelled(&self) -> bool {
            false
        }

        fn give_way(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Puts a link in the place of a directory when it has been found and not yet been read.
    struct Swaps<'a>(Cell<bool>, &'a Path, &'a Path);

    impl Progress for Swaps<'_> {
        fn at(&self, _done: u64, _total: u64) {}

        fn cancelled(&self) -> bool {
            false
        }

        fn give_way(&self) {
            if !self.0.replace(true) {
                return;
            }
            _ = fs::rename(self.1, self.1.with_extension("away"));
            _ = std::os::unix::fs::symlink(self.2, self.1);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_not_followed() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (top, outside) = (fs::canonicalize(top.path()).unwrap(), fs::canonicalize(outside.path()).unwrap());
        fs::create_dir(top.join("a")).unwrap();
        fs::write(top.join("b"), "x").unwrap();
        fs::write(outside.join("secret"), "x").unwrap();
        let secret = InodeNumber(fs::metadata(outside.join("secret")).unwrap().ino());
        let swaps = Swaps(Cell::new(false), &top.join("a"), &outside);
        let found = paths_of(&top, &[secret, InodeNumber(u64::MAX)], &swaps).unwrap();
        assert!(fs::symlink_metadata(top.join("a")).unwrap().is_symlink(), "nothing was swapped");
        assert_eq!(found, BTreeMap::new());
    }

    #[test]
    fn files_are_found_by_their_inode_numbers() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        fs::write(top.path().join("a/b/file"), "x").unwrap();
        let inode = InodeNumber(fs::metadata(top.path().join("a/b/file")).unwrap().ino());
        let asked = Asked::default();
        let found = paths_of(top.path(), &[inode, InodeNumber(u64::MAX)], &asked).unwrap();
        assert_eq!(found, BTreeMap::from([(inode, top.path().join("a/b/file"))]));
        assert_eq!(asked.0.get(), 3, "once for each name");
    }
}
