//! The directory that a volume is mounted on, which nobody else may enter.
//!
//! Owns its name, its end, and what killed runs left. Never removes anything but empty directories and its own lock file: what is
//! mounted there is a user's data.

use longrun_sys::{FlockOperation, LockFile};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Every such directory is called so, followed by numbers.
const PREFIX: &str = "longrun-mount-";
/// In it: locked as long as the process lives that made it.
const LOCK: &str = "lock";
/// In it: where the volume is mounted.
const POINT: &str = "volume";
/// So many of one process.
const MOST: u32 = 1000;

/// A directory of our own, with one in it to mount on.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    point: PathBuf,
    _lock: LockFile,
}

impl Directory {
    /// In /run, or in the directory for temporary files where that is not possible.
    pub(super) fn new() -> io::Result<Self> {
        let mut last = Err(io::ErrorKind::NotFound.into());
        for place in [PathBuf::from("/run"), std::env::temp_dir()] {
            // Engines open it by a path without links.
            let Ok(place) = fs::canonicalize(place) else { continue };
            sweep(&place);
            last = Self::within(&place);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn within(place: &Path) -> io::Result<Self> {
        let only_us = || {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        for number in 0..MOST {
            let path = place.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match only_us().create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            return Self::furnished(&path, &only_us()).inspect_err(|_| remove(&path));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn furnished(path: &Path, builder: &DirBuilder) -> io::Result<Self> {
        let point = path.join(POINT);
        builder.create(&point)?;
        // Locked before it has its name: a name without a lock may be removed by all.
        let unnamed = path.join("new-lock");
        let lock = LockFile::new(File::create_new(&unnamed)?);
        lock.set(FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(unnamed, path.join(LOCK))?;
        Ok(Self { path: path.to_owned(), point, _lock: lock })
    }

    /// Where to mount.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a directory. It stays where something is still mounted on it.
fn remove(path: &Path) {
    match fs::remove_dir(path.join(POINT)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return,
        _ => {}
    }
    _ = fs::remove_file(path.join("new-lock"));
    _ = fs::remove_file(path.join(LOCK));
    _ = fs::remove_dir(path);
}

/// Removes what killed runs left in `place`: directories, and mounts where they had no mount namespace of their own.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && (meta.uid() == 0 || !longrun_sys::is_root()));
        if !is_ours {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK)).map(LockFile::new) else { continue };
        // A directory that is a mount point in the namespace of another process could be removed: the kernel would unmount there.
        if lock.set(FlockOperation::NonBlockingLockExclusive).is_ok_and(|locked| locked) {
            // It fails when nothing is mounted, as it should be.
            _ = longrun_sys::detach_mount(&path.join(POINT));
            remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let used = Directory::within(place.path()).unwrap();
        let left = Directory::within(place.path()).unwrap();
        let path = left.path.clone();
        let strange = place.path().join("longrun-mount-1-x");
        fs::create_dir(&strange).unwrap();
        let of_user = place.path().join("longrun-mount-2-x");
        fs::create_dir_all(of_user.join(POINT)).unwrap();
        fs::write(of_user.join(LOCK), "").unwrap();
        fs::write(of_user.join(POINT).join("data"), "precious").unwrap();
        // As it is after kill -9.
        let Directory { _lock, .. } = &left;
        _lock.set(FlockOperation::Unlock).unwrap();
        sweep(place.path());
        assert!(!path.exists() && strange.exists() && used.point().exists());
        assert!(of_user.join(POINT).join("data").exists());
        let mode = fs::metadata(&used.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "others may look into it");
        let path = used.path.clone();
        drop(used);
        assert!(!path.exists());
    }
}
