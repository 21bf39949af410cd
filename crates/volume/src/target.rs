//! The target that the user named, and its volume.
//!
//! Owns the choice of the mount. Never opens a device, never changes anything.

use crate::{JournalPlace, mounted, probe};
use longrun_engine::VolumeError;
use longrun_image::Disk;
use longrun_sys::{DeviceNumber, MOUNT_TABLE, Mount, read_mounts};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A mount point or a block device: the volume as a whole.
    Volume,
    /// A directory on a mounted volume, not its mount point.
    Directory,
    /// A file on a mounted volume.
    File,
    /// A regular file that holds a volume.
    Image,
}

/// The target that the user named, and its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As the user gave it.
    pub given: PathBuf,
    /// What it is.
    pub subject: Subject,
    /// The block device, or the image file.
    pub device: PathBuf,
    /// The number of the block device; none for an image. Of btrfs, whose mounts have numbers of their own, that of the device
    /// that was mounted.
    pub device_number: Option<DeviceNumber>,
    /// Where it is mounted (the best place: writable and whole before others), if it is.
    pub mount: Option<Mount>,
    /// What has to be read and written instead of the device, when the volume is on a disk image that is open.
    pub inside: Option<Inside>,
    /// Whether the user has agreed that the shadow copies of an NTFS volume become wrong.
    pub spoils_shadow_copies: bool,
}

/// A volume on a disk image that is open.
#[derive(Clone)]
pub struct Inside {
    /// The volume.
    pub disk: Arc<dyn Disk>,
    /// Where a journal of changes is kept.
    pub journal: JournalPlace,
    /// Whether the image grows by what is written to free space, so that what files leave is to be given back.
    pub is_thin: bool,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("disk", &self.disk.path()).field("journal", &self.journal).finish()
    }
}

impl PartialEq for Inside {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.disk, &other.disk) && (&self.journal, self.is_thin) == (&other.journal, other.is_thin)
    }
}

impl Eq for Inside {}

impl Target {
    /// Finds out what `given` is: a mount point, any path on a mounted volume, a block device, or an image file.
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`] when it is none of these.
    pub fn resolve(given: &Path) -> Result<Self, VolumeError> {
        let not_a_volume = |problem: String| VolumeError::NotAVolume { path: given.to_owned(), problem };
        let meta = fs::metadata(given).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => not_a_volume("there is no such file or directory".into()),
            _ => VolumeError::Io { path: given.to_owned(), act: "examining it", source: error },
        })?;
        let kind = meta.file_type();
        let path = Path::new(MOUNT_TABLE);
        let mounts = read_mounts().map_err(mounted::io(path, "reading the mount table"))?;
        if kind.is_block_device() {
            let number = DeviceNumber::from_stat(meta.rdev());
            let mount = best_mount(&mounts, number);
            return Ok(Self {
                given: given.to_owned(),
                subject: Subject::Volume,
                device: given.to_owned(),
                device_number: Some(number),
                mount,
                inside: None,
                spoils_shadow_copies: false,
            });
        }
        if !kind.is_file() && !kind.is_dir() {
            return Err(not_a_volume("neither a file, a directory nor a block device".into()));
        }
        if kind.is_file() && holds_a_volume(given) {
            // The image of a mounted loop device lags behind what is mounted: then the mounted volume is meant.
            if let Some((device, number)) = loop_device_of(given)
                && let Some(mount) = best_mount(&mounts, number)
            {
                return Ok(Self {
                    given: given.to_owned(),
                    subject: Subject::Volume,
                    device,
                    device_number: Some(number),
                    mount: Some(mount),
                    inside: None,
                    spoils_shadow_copies: false,
                });
            }
            return Ok(Self {
                given: given.to_owned(),
                subject: Subject::Image,
                device: given.to_owned(),
                device_number: None,
                mount: None,
                inside: None,
                spoils_shadow_copies: false,
            });
        }
        let number = DeviceNumber::from_stat(meta.dev());
        let canonical = fs::canonicalize(given).unwrap_or_else(|_| given.to_owned());
        let found = best_mount(&mounts, number).map(|mount| (mount, Some(number)));
        let Some((mount, device_number)) = found.or_else(|| mount_with_own_number(&mounts, &canonical)) else {
            return Err(not_a_volume("on a file system without a block device of its own".into()));
        };
        let is_top = |m: &Mount| m.is_whole() || (m.filesystem == BTRFS && meta.ino() == TOP_OF_SUBVOLUME);
        let is_mount_point = mounts.iter().any(|m| m.device == mount.device && m.point == canonical && is_top(m));
        let subject = match (kind.is_dir(), is_mount_point) {
            (true, true) => Subject::Volume,
            (true, false) => Subject::Directory,
            (false, _) => Subject::File,
        };
        let device = device_path(&mount);
        Ok(Self {
            given: given.to_owned(),
            subject,
            device,
            device_number,
            mount: Some(mount),
            inside: None,
            spoils_shadow_copies: false,
        })
    }
}

/// Its files and mounts have numbers of their own, one for each subvolume and another for the whole.
const BTRFS: &str = "btrfs";
/// The number of the directory that a subvolume begins with. It is rarely the whole of a btrfs that is mounted.
const TOP_OF_SUBVOLUME: u64 = 256;

/// The mount that `path` lies on and its block device, where that is not what stat tells: btrfs.
fn mount_with_own_number(mounts: &[Mount], path: &Path) -> Option<(Mount, Option<DeviceNumber>)> {
    let id = longrun_sys::mount_at(path).ok()?;
    let own = mounts.iter().find(|mount| mount.id == id && mount.filesystem == BTRFS)?;
    let others = mounts.iter().filter(|mount| mount.device == own.device).filter(|mount| is_visible(mount));
    // Where it does not matter otherwise, the one that the user named.
    let best = others.max_by_key(|mount| (mount.is_whole(), mount.writable, mount.id == id)).unwrap_or(own);
    Some((best.clone(), node_number(&best.source)))
}

/// The number of the block device that the name leads to; `None` where it leads to anything else.
#[must_use]
pub fn node_number(path: &Path) -> Option<DeviceNumber> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device())?;
    Some(DeviceNumber::from_stat(meta.rdev()))
}

/// Whether a mount is what one finds at its mount point.
fn is_visible(mount: &Mount) -> bool {
    if mount.filesystem == BTRFS {
        return longrun_sys::mount_at(&mount.point).is_ok_and(|id| id == mount.id);
    }
    fs::metadata(&mount.point).is_ok_and(|meta| DeviceNumber::from_stat(meta.dev()) == mount.device)
}

/// Whether a regular file is an image of a volume or of a disk, by its signature. What cannot be read is an ordinary file.
fn holds_a_volume(path: &Path) -> bool {
    // A boot sector's mark alone is two bytes that any file may have.
    let is_image = |content| match content {
        probe::Content::FileSystem(_) => true,
        probe::Content::Container(name) => name.contains("image"),
        probe::Content::Unknown => false,
    };
    probe::identify_at(path).is_ok_and(is_image)
}

/// The loop device that has `image` for its backing file.
fn loop_device_of(image: &Path) -> Option<(PathBuf, DeviceNumber)> {
    let image = fs::canonicalize(image).ok()?;
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        if backing.strip_suffix(b"\n").unwrap_or(&backing) != image.as_os_str().as_bytes() {
            return None;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let number = DeviceNumber::from_stat(fs::metadata(&device).ok()?.rdev());
        Some((device, number))
    })
}

/// The mount of `device` to work through: really visible at its mount point, whole and writable if there is such a one.
fn best_mount(mounts: &[Mount], device: DeviceNumber) -> Option<Mount> {
    let is_of = |m: &&Mount| m.device == device || (m.filesystem == BTRFS && node_number(&m.source) == Some(device));
    mounts.iter().filter(is_of).filter(|m| is_visible(m)).max_by_key(|m| (m.is_whole(), m.writable)).cloned()
}

/// The device node: what was mounted when that is a name of the device, else the kernel's own name.
fn device_path(mount: &Mount) -> PathBuf {
    let is_it = |path: &Path| {
        fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device() && m.rdev() == mount.device.to_stat())
    };
    if is_it(&mount.source) {
        return mount.source.clone();
    }
    let uevent = fs::read_to_string(format!("/sys/dev/block/{}/uevent", mount.device)).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let by_number = PathBuf::from(format!("/dev/block/{}", mount.device));
    let by_name = name.map(|name| Path::new("/dev").join(name)).filter(|path| is_it(path));
    // What stands for no block device (tmpfs and the like) keeps the name that it was mounted by.
    by_name.or_else(|| is_it(&by_number).then_some(by_number)).unwrap_or_else(|| mount.source.clone())
}

impl Target {
    /// What the kernel calls the device: the name of its directory in /sys/fs/ext4 and the like.
    #[must_use]
    pub(crate) fn kernel_name(&self) -> Option<OsString> {
        let number = self.device_number?;
        let link = fs::read_link(format!("/sys/dev/block/{number}")).ok()?;
        link.file_name().map(|name| OsString::from_vec(name.as_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_no_volume_are_named() {
        let missing = Target::resolve(Path::new("/no/such/path")).unwrap_err().to_string();
        assert!(missing.contains("/no/such/path: there is no such file"), "{missing}");
        let null = Target::resolve(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(null.contains("neither a file, a directory nor a block device"), "{null}");
        let proc = Target::resolve(Path::new("/proc/self/status"));
        assert!(!matches!(proc, Ok(Target { subject: Subject::Image, .. })));
    }
}
