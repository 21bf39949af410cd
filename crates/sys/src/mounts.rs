//! The kernel's mount table.
//!
//! Owns its format. Never mounts anything, and never decides which mount of a volume to use.

use crate::{DeviceNumber, FileSystem};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The kernel's mount table, of our own name space.
pub const MOUNT_TABLE: &str = "/proc/self/mountinfo";

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
    /// What was mounted, under the name that the mount call gave.
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

    /// Its file system, where Longrun knows it.
    #[must_use]
    pub fn known_filesystem(&self) -> Option<FileSystem> {
        FileSystem::from_name(&self.filesystem)
    }

    /// The mount that has this number in the table, if it is still there.
    ///
    /// # Errors
    /// When the mount table cannot be read.
    pub fn numbered(id: u64) -> io::Result<Option<Self>> {
        Ok(read_mounts()?.into_iter().find(|mount| mount.id == id))
    }

    /// The mount that an open file or directory was reached through. By its number: the device that a file of btrfs shows
    /// is not that of its volume.
    ///
    /// # Errors
    /// When the kernel does not tell (before Linux 5.8), or the mount table cannot be read.
    pub fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        Self::numbered(crate::mount_of_file(file)?)
    }
}

/// All that is mounted in our own name space, in the order of the table.
///
/// # Errors
/// Those of reading a file.
pub fn read_mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mountinfo(&fs::read(MOUNT_TABLE)?))
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
#[must_use]
pub fn unescape(field: &[u8]) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

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
}
