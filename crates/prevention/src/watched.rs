//! A volume that is being looked after, and the way to its files.
//!
//! Owns the rule that nothing of a volume stays open: an administrator can unmount it at any time. Its root is opened for
//! the moment that it is needed, and is then checked to be the same mount still.

use crate::FileSystem;
use longrun_sys::{DeviceNumber, Errno};
use longrun_volume::target::Mount;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A volume that is being looked after.
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

    /// The mount that `path` lies on.
    ///
    /// # Errors
    /// When the path cannot be opened, or the table of mounts not be read.
    pub fn mount_of(path: &Path) -> io::Result<Option<Mount>> {
        Mount::of(File::open(path)?)
    }

    /// Opens the mount point, for opening files by handle through it. Hold it for moments only.
    ///
    /// # Errors
    /// `ESTALE` when something else (or nothing) is mounted there now; the kernel's otherwise.
    pub fn open_root(&self) -> io::Result<File> {
        let root = File::open(&self.point)?;
        // The kernel uses the numbers of mounts again. Only on btrfs does a directory not show the number of its volume.
        let other = self.filesystem != FileSystem::Btrfs && longrun_sys::device_number_of_file(&root)? != self.device;
        if other || longrun_sys::mount_of_file(&root)? != self.mount {
            return Err(Errno::STALE.into());
        }
        Ok(root)
    }
}
