//! The directory that the content of an image is shown in.
//!
//! Owns its names, its end, and the removal of what killed runs left. Never touches a directory that another user made.

use longrun_sys::{FlockOperation, LockFile, is_root};
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Every such directory is called so, followed by random letters.
const PREFIX: &str = "longrun-image-";
/// In it: locked as long as the process lives that made it.
const LOCK: &str = "lock";
/// In it: the content of the image, a mount point of its own.
const CONTENT: &str = "content";

/// A directory that only we may look into. It goes when this is dropped, or, should we be killed, when the next one is
/// made.
pub(crate) struct PrivateDirectory {
    directory: TempDir,
    _lock: LockFile,
}

impl PrivateDirectory {
    /// In /run for root, in the directory for temporary files for others.
    pub(crate) fn new() -> io::Result<Self> {
        let temporary = std::env::temp_dir();
        let places = [is_root().then_some(Path::new("/run")), Some(&temporary)];
        let mut last = Err(io::ErrorKind::NotFound.into());
        for place in places.into_iter().flatten() {
            sweep(place);
            last = Self::within(place);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn within(place: &Path) -> io::Result<Self> {
        let only_us = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix(PREFIX).permissions(only_us).tempdir_in(place)?;
        // Locked before it has its name: a name without a lock may be removed by all.
        let unnamed = directory.path().join("new-lock");
        let lock = LockFile::new(File::create_new(&unnamed)?);
        lock.set(FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(unnamed, directory.path().join(LOCK))?;
        File::create_new(directory.path().join(CONTENT))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where the content of the image is to be mounted: an empty file.
    pub(crate) fn content(&self) -> PathBuf {
        self.directory.path().join(CONTENT)
    }

    /// Where the daemon writes its process number when all is there.
    pub(crate) fn ready(&self) -> PathBuf {
        self.directory.path().join("ready")
    }

    /// Where it writes its messages.
    pub(crate) fn messages(&self) -> PathBuf {
        self.directory.path().join("messages")
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        unmount(self.directory.path());
    }
}

/// Takes the mount away that a daemon leaves when it is killed.
fn unmount(directory: &Path) {
    // It fails when there is none, as it should be. Without root there is a helper for that.
    let content = directory.join(CONTENT);
    if rustix::mount::unmount(&content, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) == Err(rustix::io::Errno::PERM) {
        let mut helper = std::process::Command::new("fusermount3");
        let quiet = || std::process::Stdio::null();
        _ = helper.arg("-uqz").arg(content).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
    }
}

/// Removes what killed runs left in `place`.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let directory = entry.path();
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw());
        let is_left = || {
            let lock = File::open(directory.join(LOCK)).map(LockFile::new);
            lock.is_ok_and(|lock| lock.set(FlockOperation::NonBlockingLockExclusive).is_ok_and(|locked| locked))
        };
        if is_ours && is_left() {
            unmount(&directory);
            // What cannot be removed now is left for the next time.
            _ = fs::remove_dir_all(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let used = PrivateDirectory::within(place.path()).unwrap();
        let mut left = PrivateDirectory::within(place.path()).unwrap();
        left.directory.disable_cleanup(true);
        let path = left.directory.path().to_owned();
        drop(left);
        let of_others = place.path().join("longrun-image-without-lock");
        fs::create_dir(&of_others).unwrap();
        assert!(path.join(CONTENT).exists(), "the test proves nothing");
        sweep(place.path());
        assert!(!path.exists() && of_others.exists() && used.content().exists());
        let mode = fs::metadata(used.directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "others may look into it");
        drop(used);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
