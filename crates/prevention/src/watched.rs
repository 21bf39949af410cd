//! A watched volume, and the access to its files.
//!
//! Owns the rule that nothing of a volume stays open, so that an administrator can unmount it at any time. Its root is
//! opened only while it is needed, and is then checked to be the root of the same mount. The path of a mount point can
//! contain a directory of an unprivileged user, so links in it are not followed, and only directories are opened.

use longrun_sys::FileSystem;
use longrun_sys::Mount;
use longrun_sys::{DeviceNumber, Errno};
use longrun_volume::Identity;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A watched volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The file system's own number, as /proc/self/mountinfo shows it.
    pub device: DeviceNumber,
    /// The kernel's number of this mount, which changes when something else is mounted there.
    pub mount: u64,
    /// Its type.
    pub filesystem: FileSystem,
    /// Where it is mounted: the whole volume, writable. On btrfs best the top of all subvolumes.
    pub point: PathBuf,
}

impl Watched {
    /// The volume at `mount`, unless prevention does not know its type or nothing can be written there.
    #[must_use]
    pub fn at(mount: &Mount) -> Option<Self> {
        let filesystem = FileSystem::from_name(&mount.filesystem).filter(|_| mount.writable)?;
        Some(Self { device: mount.device, mount: mount.id, filesystem, point: mount.point.clone() })
    }

    /// The volume that is mounted at `point`; nothing when prevention does not know its type, or nothing can be written there.
    ///
    /// # Errors
    /// As [`Self::mount_of`].
    pub fn mounted_at(point: &Path) -> io::Result<Option<Self>> {
        Ok(Self::mount_of(point)?.and_then(|mount| Self::at(&mount)))
    }

    /// The mount that `path` lies on. What is there is not opened.
    ///
    /// # Errors
    /// When the path does not exist, or the mount table cannot be read.
    pub fn mount_of(path: &Path) -> io::Result<Option<Mount>> {
        Mount::numbered(longrun_sys::mount_at(path)?)
    }

    /// Which volume it is, also after a restart.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn identity(&self) -> io::Result<Identity> {
        Identity::of(self.mount, || self.open_root())
    }

    /// Whether what is written is stored compressed unless the file says otherwise.
    pub(crate) fn has_compression(&self) -> bool {
        let mount = Mount::numbered(self.mount).ok().flatten().filter(|_| self.filesystem == FileSystem::Btrfs);
        let options = mount.map(|mount| mount.options).unwrap_or_default();
        options.iter().any(|option| option.starts_with("compress") && !option.ends_with("=no"))
    }

    /// Opens the mount point, for opening files by handle through it. Hold it for moments only.
    ///
    /// # Errors
    /// `ESTALE` when something else (or nothing) is mounted there now; `ELOOP` and `ENOTDIR` when another process has put a link or
    /// something else in the way; unsupported before Linux 5.8; the kernel's otherwise.
    pub fn open_root(&self) -> io::Result<File> {
        let root = longrun_sys::open_trusted_directory(&self.point).map_err(|errno| match errno {
            Errno::NOSYS => {
                io::Error::new(io::ErrorKind::Unsupported, "this kernel has no openat2; Linux 5.8 or later is needed")
            }
            other => other.into(),
        })?;
        let root = File::from(root);
        // The kernel uses the numbers of mounts again. Only on btrfs does a directory not show the number of its volume.
        let other = self.filesystem != FileSystem::Btrfs && longrun_sys::device_number_of_file(&root)? != self.device;
        // Below the root lie directories that users can move to and fro, on the same mount.
        let root_of_it = longrun_sys::is_root_of_mount(&root)? && longrun_sys::mount_of_file(&root)? == self.mount;
        if other || !root_of_it {
            return Err(Errno::STALE.into());
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn loop_what_users_put_in_the_place_of_a_mount_point_is_not_opened() {
        for kind in FileSystemKind::ALL {
            let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
            let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
            watched.open_root().unwrap();
            let at =
                |point: PathBuf| Watched { point, ..watched.clone() }.open_root().map_err(|e| Errno::from_io_error(&e));
            let owned = tempfile::tempdir().unwrap();
            let base = fs::canonicalize(owned.path()).unwrap();
            // The right volume, but by a way that its owner can turn at any time.
            symlink(volume.mount_point(), base.join("link")).unwrap();
            assert_eq!(at(base.join("link")).unwrap_err(), Some(Errno::LOOP), "{kind:?}");
            // Opening it would block until another process writes.
            assert!(Command::new("mkfifo").arg(base.join("fifo")).status().unwrap().success());
            assert_eq!(at(base.join("fifo")).unwrap_err(), Some(Errno::NOTDIR), "{kind:?}");
            assert_eq!(at(base).unwrap_err(), Some(Errno::STALE), "{kind:?}");
            // A directory of the volume is on the right mount, too.
            fs::create_dir(volume.mount_point().join("below")).unwrap();
            assert_eq!(at(volume.mount_point().join("below")).unwrap_err(), Some(Errno::STALE), "{kind:?}");
        }
    }
}
