//! The place of a volume's lock file, where only root can take the lock ([decision
//! 15](../../../../docs/decisions/0015-the-lock-lies-where-only-root-can-take-it.md)).
//!
//! Owns the directory of the locks, the name of a volume in it, and the additional lock on its root directory. The
//! algorithm is in [`super::lock`]. Never writes to the volume.

use super::lock::{lock, lock_for_one_file};
use super::{io, others};
use longrun_engine::VolumeError;
use longrun_layout::InodeNumber;
use longrun_sys::{
    Errno, FileHandle, FileSystem, FlockOperation, LockFile, Mount, OFlags, TreeId, TreeKey, TreeReader, Visit,
};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Not below /run/longrun, which systemd removes with the service: a lock file that is removed while it is locked locks
/// nothing any more.
const DIRECTORY: &str = "/run/longrun-locks";

/// Who may enter the directory.
const ROOT_ALONE: u32 = 0o700;

/// The lock of a volume, until it is dropped.
#[derive(Debug)]
pub(crate) struct VolumeLock {
    // Before the lock itself: the next who has that must not find the notice.
    _notice: LockFile,
    _own: LockFile,
}

impl VolumeLock {
    /// For a run over the volume of `root`, which errors call `path`. A file that is being mended is waited for.
    pub(crate) fn whole(root: &File, path: &Path) -> Result<Self, VolumeError> {
        let own = open_lock(root, path)?;
        lock(&own, path)?;
        let notice = leave_notice(root, path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { _notice: notice, _own: own })
    }

    /// For no longer than it takes to mend one file; the present holder of the lock is not waited for.
    pub(crate) fn for_one_file(root: &File, path: &Path) -> Result<Self, VolumeError> {
        let own = open_lock(root, path)?;
        lock_for_one_file(&own, path)?;
        let notice = leave_notice(root, path, FlockOperation::NonBlockingLockShared)?;
        Ok(Self { _notice: notice, _own: own })
    }

    /// A file beside the lock of the volume of `root`: what one run over it tells the next. Only root can have written it, and
    /// only who has the lock opens it.
    pub(crate) fn note(&self, root: &File, path: &Path, what: &str) -> Result<File, VolumeError> {
        let name = name_of(root).map_err(io(path, "reading the UUID of the volume"))?;
        let file = open_in(Path::new(DIRECTORY), &format!("{name}.{what}"));
        file.map_err(io(Path::new(DIRECTORY), "opening the note of the last run"))
    }
}

fn open_lock(root: &File, path: &Path) -> Result<LockFile, VolumeError> {
    let name = name_of(root).map_err(io(path, "reading the UUID of the volume"))?;
    let file = open_in(Path::new(DIRECTORY), &name);
    file.map(LockFile::new).map_err(io(Path::new(DIRECTORY), "opening the lock of the volume"))
}

/// One name for a volume, through whichever mount, subvolume or device it is reached.
fn name_of(root: &File) -> Result<String, Errno> {
    if FileSystem::of(root)? == Some(FileSystem::Btrfs) {
        // Each of its subvolumes has a device number of its own.
        let uuid = longrun_sys::btrfs_info(root)?.uuid;
        return Ok(uuid.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    Ok(longrun_sys::device_number_of_file(root)?.to_string())
}

/// Opens the lock file `name`, made if need be. It is never removed: what another one has locked must be what we open.
fn open_in(directory: &Path, name: &str) -> std::io::Result<File> {
    match DirBuilder::new().mode(ROOT_ALONE).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(directory)?;
    // The user who runs the tests creates the directory for themselves.
    let is_roots = meta.uid() == 0 || !longrun_sys::is_root();
    if !meta.is_dir() || !is_roots || meta.mode() & 0o077 != 0 {
        let text = "it is not a directory that only root can enter; remove it, and longrun creates it again";
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, text));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(flags.bits().cast_signed()).open(directory.join(name))
}

/// Locks the root directory as well, for optimizers that have another /run: those in containers, and older versions. Any
/// user can lock it too, so only a lock of root's is a reason to leave the volume alone.
fn leave_notice(root: &File, path: &Path, operation: FlockOperation) -> Result<LockFile, VolumeError> {
    let directory = match top_of_btrfs(root) {
        Some(directory) => directory,
        None => File::from(longrun_sys::reopen_directory(root).map_err(io(path, "opening the root directory"))?),
    };
    let directory = LockFile::new(directory);
    if directory.set(operation).map_err(io(path, "locking the root directory"))? {
        return Ok(directory);
    }
    let inode = directory.file().metadata().map_err(io(path, "examining the root directory"))?.ino();
    let mount = Mount::of(root).map_err(io(path, "reading the mount table"))?;
    match mount.and_then(|mount| others::lock_holder(mount.device, inode)) {
        Some(holder) => Err(VolumeError::InUse { path: path.to_owned(), holder }),
        None => Ok(directory),
    }
}

/// On btrfs, the root directory of the top subvolume, whichever subvolumes are mounted where; `None` elsewhere.
fn top_of_btrfs(root: &File) -> Option<File> {
    const TOP_SUBVOLUME: TreeId = TreeId(5);
    const TOP_DIRECTORY: u64 = 256;
    const INODE: u8 = 1;
    let mut generation = None;
    let key = TreeKey { object: TOP_DIRECTORY, kind: INODE, offset: 0 };
    let mut reader = TreeReader::default();
    let visited = reader.for_each_item(root, TOP_SUBVOLUME, key, key, |item| {
        // Behind no other field.
        generation = item.bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Visit::Stop
    });
    visited.ok()?;
    let handle = FileHandle::on_btrfs(TOP_SUBVOLUME, InodeNumber(TOP_DIRECTORY), generation? as u32)?;
    handle.open(root, OFlags::RDONLY | OFlags::DIRECTORY).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_directory_of_locks_is_made_for_root_alone() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("locks");
        let first = open_in(&directory, "7:0").unwrap();
        let again = open_in(&directory, "7:0").unwrap();
        assert_eq!(first.metadata().unwrap().ino(), again.metadata().unwrap().ino());
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        assert_eq!(first.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_others_can_enter_or_a_link_is_no_place_for_locks() {
        let top = tempfile::tempdir().unwrap();
        let (directory, link) = (top.path().join("locks"), top.path().join("link"));
        drop(open_in(&directory, "7:0").unwrap());
        symlink(&directory, &link).unwrap();
        symlink(top.path().join("elsewhere"), directory.join("7:1")).unwrap();
        assert!(open_in(&link, "7:0").is_err());
        assert!(open_in(&directory, "7:1").is_err() && !top.path().join("elsewhere").exists());
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let refused = open_in(&directory, "7:0").unwrap_err().to_string();
        assert!(refused.contains("only root"), "{refused}");
    }
}
