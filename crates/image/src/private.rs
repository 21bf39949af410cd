//! The directory in which a program of QEMU works: for root it is all that the program finds of this machine.
//!
//! Owns its names, its end, and the removal of what killed runs left. Never touches a directory that another user made.

use crate::{Disk as _, FileDisk, ImageError};
use longrun_sys::{FlockOperation, LockFile, PassedFile, Sandbox, is_root, pass_files};
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every such directory is called so, followed by random letters.
const PREFIX: &str = "longrun-image-";
/// In it: locked as long as the process lives that made it.
const LOCK: &str = "lock";
const NEW_LOCK: &str = "new-lock";
/// In it: what the program writes to its standard error.
const MESSAGES: &str = "messages";
/// In it: the root directory of the program, or without root the directory that it makes files in.
const ROOM: &str = "room";
/// In that: what the content of the image is mounted on.
const CONTENT: &str = "content";
/// In that: the process number of a daemon, when all is there.
const READY: &str = "ready";

/// A directory that only we may look into. It goes when this is dropped, or, should we be killed, when the next one is
/// made.
pub(crate) struct PrivateDirectory {
    path: PathBuf,
    _lock: LockFile,
    sandbox: Option<Sandbox>,
}

impl PrivateDirectory {
    /// For a program that opens `image`: in /run for root, in the directory for temporary files for others.
    ///
    /// # Errors
    /// [`ImageError::Directory`].
    pub(crate) fn new(image: &Path) -> Result<Self, ImageError> {
        let temporary = std::env::temp_dir();
        let places = [is_root().then_some(Path::new("/run")), Some(&temporary)];
        let mut last = Err(io::ErrorKind::NotFound.into());
        for place in places.into_iter().flatten() {
            // Mounted on as the root of another process, it must not depend on where we are.
            let Ok(place) = fs::canonicalize(place) else { continue };
            sweep(&place);
            last = Self::within(&place);
            if last.is_ok() {
                break;
            }
        }
        last.map_err(|source| ImageError::Directory { path: image.to_owned(), source })
    }

    fn within(place: &Path) -> io::Result<Self> {
        let only_us = fs::Permissions::from_mode(0o700);
        let path = tempfile::Builder::new().prefix(PREFIX).permissions(only_us).tempdir_in(place)?.keep();
        Self::furnished(&path).inspect_err(|_| remove(&path))
    }

    fn furnished(path: &Path) -> io::Result<Self> {
        // Locked before it has its name: a name without a lock may be removed by all.
        let unnamed = path.join(NEW_LOCK);
        let lock = LockFile::new(File::create_new(&unnamed)?);
        lock.set(FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(unnamed, path.join(LOCK))?;
        let room = path.join(ROOM);
        fs::create_dir(&room)?;
        File::create_new(room.join(CONTENT))?;
        let sandbox = is_root().then(|| Sandbox::furnish(&room)).transpose()?;
        Ok(Self { path: path.to_owned(), _lock: lock, sandbox })
    }

    /// Lets a program open these files, and for root no others: the files that a header names do not exist for it.
    pub(crate) fn confine(&self, command: &mut Command, files: Vec<PassedFile>) {
        if let Some(sandbox) = &self.sandbox {
            sandbox.confine(command);
        }
        pass_files(command, files);
    }

    /// Where the content of the image is to be mounted: an empty file, as the program calls it.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.in_program(CONTENT)
    }

    /// The content of the image, once the program `id` has mounted it.
    pub(crate) fn content(&self, id: u32) -> PathBuf {
        match self.sandbox {
            // It is mounted for that process alone.
            Some(_) => Path::new("/proc").join(id.to_string()).join("root").join(CONTENT),
            None => self.path.join(ROOM).join(CONTENT),
        }
    }

    /// Where a daemon writes its process number when all is there, as the daemon calls it.
    pub(crate) fn ready_in_program(&self) -> PathBuf {
        self.in_program(READY)
    }

    /// The same, as we call it.
    pub(crate) fn ready(&self) -> PathBuf {
        self.path.join(ROOM).join(READY)
    }

    /// Where it writes its messages.
    pub(crate) fn messages(&self) -> PathBuf {
        self.path.join(MESSAGES)
    }

    fn in_program(&self, name: &str) -> PathBuf {
        let room = self.path.join(ROOM);
        let root = if self.sandbox.is_some() { Path::new("/") } else { &room };
        root.join(name)
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a directory. One by one: should anything be mounted in it, that stays.
fn remove(directory: &Path) {
    let room = directory.join(ROOM);
    unmount(&room.join(CONTENT));
    Sandbox::remove(&room);
    for name in [room.join(CONTENT), room.join(READY), directory.join(MESSAGES), directory.join(NEW_LOCK)] {
        _ = fs::remove_file(name);
    }
    _ = fs::remove_dir(room);
    // Last: a directory without a lock is not looked at again.
    _ = fs::remove_file(directory.join(LOCK));
    // What cannot be removed now is left.
    _ = fs::remove_dir(directory);
}

/// An open image for a program of QEMU, which reads the header and opens the files that it names. For root the program finds none of
/// them ([`PrivateDirectory::confine`]). Without root, the image must belong to root or to the user of the run.
pub(crate) fn pass(image: &FileDisk) -> Result<PassedFile, ImageError> {
    let path = || image.path().to_owned();
    let examine = |source| ImageError::Examine { path: path(), source };
    let owner = image.file().metadata().map_err(examine)?.uid();
    if !is_root() && ![0, rustix::process::geteuid().as_raw()].contains(&owner) {
        return Err(ImageError::Foreign { path: path(), owner });
    }
    PassedFile::of(image.file()).map_err(|errno| examine(errno.into()))
}

/// What a program says of its files, with their names in the place of those that it has for them. `names` are pairs of these, in the order
/// in which the files were passed.
pub(crate) fn with_names(text: String, names: &[(PathBuf, PathBuf)]) -> String {
    // The last have the longest numbers, which begin with the shorter ones.
    names.iter().rev().fold(text, |text, (descriptor, name)| {
        text.replace(&descriptor.display().to_string(), &name.display().to_string())
    })
}

/// Takes the mount away that a daemon leaves when it is killed: without root, or where its mount was not its own.
fn unmount(content: &Path) {
    // It fails when there is none, as it should be. Without root there is a helper for that.
    if rustix::mount::unmount(content, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) == Err(rustix::io::Errno::PERM) {
        let mut helper = Command::new("fusermount3");
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
            remove(&directory);
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
        let left = PrivateDirectory::within(place.path()).unwrap();
        let path = left.path.clone();
        // As it is after kill -9.
        left._lock.set(FlockOperation::Unlock).unwrap();
        fs::write(left.ready(), "1").unwrap();
        fs::write(left.messages(), "none").unwrap();
        let of_others = place.path().join("longrun-image-without-lock");
        fs::create_dir(&of_others).unwrap();
        assert!(path.join(ROOM).join(CONTENT).exists(), "the test proves nothing");
        sweep(place.path());
        assert!(!path.exists() && of_others.exists() && used.path.join(ROOM).join(CONTENT).exists());
        let mode = fs::metadata(&used.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "others may look into it");
        drop(used);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_somebody_in_a_left_directory_is_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let left = PrivateDirectory::within(place.path()).unwrap();
        let strange = left.path.join(ROOM).join("usr").join("file");
        fs::create_dir_all(strange.parent().unwrap()).unwrap();
        fs::write(&strange, "precious").unwrap();
        drop(left);
        assert!(strange.exists());
    }
}
