//! The scope of an optimization: a volume, the files below a directory, or one file.
//!
//! Owns the walk below a directory. Never changes anything.

use crate::exit::Failure;
use longrun_engine::{Scope, VolumeError};
use longrun_layout::{FileId, InodeNumber};
use longrun_sys::{Errno, FileHandle, OFlags};
use longrun_volume::Target;
use longrun_volume::target::Subject;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The part of the volume that `target` names.
pub fn of(target: &Target) -> Result<Scope, Failure> {
    let path = &target.given;
    match target.subject {
        Subject::Volume | Subject::Image => Ok(Scope::Volume),
        Subject::File => {
            // O_PATH gives the identity of the file without opening it, whatever it may be by now.
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(OFlags::PATH.bits().cast_signed());
            let file = options.open(path).map_err(|e| Failure::io(path, "opening", &e))?;
            let id = id_of_file(&file);
            id.map(Scope::File).map_err(|errno| match (&target.mount, errno) {
                // A file system whose files have no handles is none that can be optimized.
                (Some(mount), Errno::OPNOTSUPP) => {
                    VolumeError::Unsupported { path: path.clone(), what: mount.filesystem.clone() }.into()
                }
                _ => Failure::io(path, "reading its identity", &errno.into()),
            })
        }
        Subject::Directory => {
            let inodes = Arc::new(files_below(path)?);
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed());
            let directory = options.open(path).map_err(|e| Failure::io(path, "opening", &e))?;
            let subvolume = longrun_sys::subvolume_of_file(&directory).map_or(0, |tree| tree.0 as u32);
            Ok(Scope::Directory { inodes, subvolume })
        }
    }
}

/// The identity of a file in the form that layouts use.
fn id_of_file(file: &File) -> Result<FileId, Errno> {
    match FileHandle::of_file(file)?.as_btrfs() {
        // An inode number is unique only within its subvolume.
        Some((subvolume, inode, _)) => Ok(FileId { inode, generation: subvolume.0 as u32 }),
        None => longrun_sys::id_of_file(file),
    }
}

/// The inodes of the regular files below `top`, on its device.
fn files_below(top: &Path) -> Result<BTreeSet<InodeNumber>, Failure> {
    let failed = |path: &Path, error| Failure::io(path, "reading the directory", &error);
    let device = fs::metadata(top).map_err(|e| failed(top, e))?.dev();
    let (mut found, mut open) = (BTreeSet::new(), vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            // A directory that is deleted during the walk is skipped.
            Err(error) if directory != top && has_vanished(&error) => continue,
            entries => entries.map_err(|e| failed(&directory, e))?,
        };
        for entry in entries {
            let entry = match entry {
                Err(error) if has_vanished(&error) => break,
                entry => entry.map_err(|e| failed(&directory, e))?,
            };
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != device {
                continue;
            }
            if meta.is_dir() {
                open.push(entry.path());
            } else if meta.is_file() {
                found.insert(InodeNumber(meta.ino()));
            }
        }
    }
    Ok(found)
}

/// Whether a directory has been deleted or replaced by something else.
fn has_vanished(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn directories_that_vanish_during_the_walk_are_no_error() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("stays"), "").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for number in 0..20 {
                        fs::create_dir(top.path().join(number.to_string())).unwrap();
                    }
                    for number in 0..20 {
                        fs::remove_dir(top.path().join(number.to_string())).unwrap();
                    }
                }
            });
            let walked = (0..300).all(|_| files_below(top.path()).is_ok_and(|found| found.len() == 1));
            done.store(true, Ordering::Relaxed);
            assert!(walked);
        });
        assert!(files_below(&top.path().join("none")).is_err(), "what the user named must be there");
    }
}
