//! What the user named, and the volume that it lies on.
//!
//! Owns the reading of the table of mounts. Never opens a device, never changes anything.

use crate::{VolumeError, live, probe};
use longrun_sys::DeviceNumber;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kernel's table of mounts, of our own name space.
pub const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// What kind of thing the user named.
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

/// A volume as it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number of the mount: another one when the volume is mounted again.
    pub id: u64,
    /// The number of the volume.
    pub device: DeviceNumber,
    /// Which directory of the volume is mounted; "/" except for bind mounts.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Neither the mount nor the file system is read-only.
    pub writable: bool,
    /// The kernel's name of the file system.
    pub filesystem: String,
    /// What was mounted, as whoever mounted it called it.
    pub source: PathBuf,
    /// The options of the file system, one by one.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether the whole volume is mounted here, not a part of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The mount that has this number in the table, if it is still there.
    ///
    /// # Errors
    /// When the table of mounts cannot be read.
    pub fn numbered(id: u64) -> io::Result<Option<Self>> {
        Ok(read_mounts()?.into_iter().find(|mount| mount.id == id))
    }

    /// The mount that an open file or directory was reached through. By its number: the device that a file of btrfs shows
    /// is not that of its volume.
    ///
    /// # Errors
    /// When the kernel does not tell (before Linux 5.8), or the table of mounts cannot be read.
    pub fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        Self::numbered(longrun_sys::mount_of_file(file)?)
    }
}

/// What the user named, and the volume that it lies on.
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
}

impl Target {
    /// Finds out what `given` is: a mount point, any path on a mounted volume, a block device, or an image file.
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`] when it is none of these.
    pub fn resolve(given: &Path) -> Result<Self, VolumeError> {
        let not_a_volume = |problem: String| VolumeError::NotAVolume { path: given.to_owned(), problem };
        let meta = fs::metadata(given).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => not_a_volume("there is no such file or directory".into()),
            _ => VolumeError::Io { path: given.to_owned(), act: "looking at it", source: error },
        })?;
        let kind = meta.file_type();
        let path = Path::new(MOUNT_TABLE);
        let mounts = read_mounts().map_err(live::io(path, "reading the table of mounts"))?;
        if kind.is_block_device() {
            let number = DeviceNumber::from_stat(meta.rdev());
            let mount = best_mount(&mounts, number);
            return Ok(Self {
                given: given.to_owned(),
                subject: Subject::Volume,
                device: given.to_owned(),
                device_number: Some(number),
                mount,
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
                });
            }
            return Ok(Self {
                given: given.to_owned(),
                subject: Subject::Image,
                device: given.to_owned(),
                device_number: None,
                mount: None,
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
        Ok(Self { given: given.to_owned(), subject, device, device_number, mount: Some(mount) })
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

/// The number of a device node.
fn node_number(path: &Path) -> Option<DeviceNumber> {
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
    File::open(path).and_then(|file| probe::identify(&file)).is_ok_and(is_image)
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

/// All that is mounted in our own name space, in the order of the table.
///
/// # Errors
/// Those of reading a file.
pub fn read_mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mountinfo(&fs::read(MOUNT_TABLE)?))
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

/// The mounts in the text of a mountinfo file; lines that are not understood are left out.
#[must_use]
pub fn parse_mountinfo(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // The optional fields in the middle end with a lone dash.
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let &[id, _, number, root, point, mount_options, ..] = fields.as_slice() else { return None };
    let &[filesystem, source, super_options] = fields.get(dash + 1..dash + 4)? else { return None };
    let (major, minor) = std::str::from_utf8(number).ok()?.split_once(':')?;
    let options = words(super_options);
    let writable = !words(mount_options).iter().any(|o| o == "ro") && !options.iter().any(|o| o == "ro");
    Some(Mount {
        id: std::str::from_utf8(id).ok()?.parse().ok()?,
        device: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root: unescape(root),
        point: unescape(point),
        writable,
        filesystem: String::from_utf8_lossy(filesystem).into_owned(),
        source: unescape(source),
        options,
    })
}

fn words(options: &[u8]) -> Vec<String> {
    options.split(|byte| *byte == b',').map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Undoes the octal escapes (`\040`) by which the kernel writes blanks, line feeds and backslashes in names.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut name = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(&byte) = field.get(at) {
        let octal = if byte == b'\\' { field.get(at + 1..at + 4).and_then(octal_byte) } else { None };
        name.push(octal.unwrap_or(byte));
        at += if octal.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(name))
}

fn octal_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?, 8).ok()
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

    const TABLE: &str = "\
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro\n\
36 24 7:0 / /mnt/a\\040b\\134c rw,noatime shared:2 master:7 - ext4 /dev/loop0 rw,data=journal\n\
37 24 7:0 /sub /mnt/bind rw - ext4 /dev/loop0 ro\n\
38 24 0:22 / /sys ro,nosuid - sysfs sysfs rw\n\
garbage\n\
39 24 x:y / /bad rw - ext4 /dev/bad rw\n\
40 24 7:1 / /short rw shared:3";

    #[test]
    fn mounts_are_read_with_their_escapes_and_optional_fields() {
        let mounts = parse_mountinfo(TABLE.as_bytes());
        assert_eq!(mounts.len(), 4, "{mounts:#?}");
        assert_eq!(mounts[0].device, DeviceNumber { major: 254, minor: 0 });
        assert_eq!(mounts[1].point, Path::new("/mnt/a b\\c"));
        assert_eq!(mounts[1].options, ["rw", "data=journal"]);
        assert!(mounts[1].writable && mounts[1].is_whole());
        assert!(!mounts[2].writable && !mounts[2].is_whole());
        assert!(!mounts[3].writable);
    }

    #[test]
    fn the_mount_of_an_open_file_is_found_by_its_number() {
        let mount = Mount::of(File::open("/proc/self").unwrap()).unwrap().unwrap();
        assert_eq!((mount.filesystem.as_str(), mount.is_whole()), ("proc", true));
        assert_eq!(Mount::numbered(mount.id).unwrap(), Some(mount));
        assert_eq!(Mount::numbered(u64::MAX).unwrap(), None);
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        for (escaped, plain) in
            [("a\\04", "a\\04"), ("\\999x", "\\999x"), ("\\+12", "\\+12"), ("\\012", "\n"), ("", "")]
        {
            assert_eq!(unescape(escaped.as_bytes()), Path::new(plain));
        }
    }

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
