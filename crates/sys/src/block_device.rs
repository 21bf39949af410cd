//! The devices below a block device, down to those that execute the requests, as reported by sysfs.
//!
//! Owns the parsing of sysfs: partitions, device-mapper, RAID, loop devices. Never opens a device.

mod identity;

use crate::DeviceNumber;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where sysfs is mounted.
const SYSFS: &str = "/sys";
/// Stacks are rarely deeper than four; what is deeper than this is a configuration error.
const DEEPEST: usize = 16;

/// A block device, and what it lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its number.
    pub number: DeviceNumber,
    /// The kernel's name of it: `sda1`, `dm-0`.
    pub name: String,
    /// What it is.
    pub kind: BlockDeviceKind,
    /// What it lies on, in the order of the numbers; empty for a disk, and where it is not known.
    pub below: Vec<BlockDevice>,
}

/// What a block device is, as far as that says what lies below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockDeviceKind {
    /// A disk, or what looks like one: nothing of this machine lies below.
    Disk,
    /// A part of a disk.
    Partition,
    /// Made by device-mapper: LVM, encryption and others.
    Mapped,
    /// Made by device-mapper of several ways to one disk: multipath.
    Paths,
    /// Made of other devices otherwise: RAID, bcache.
    Joined,
    /// A file, seen as a device.
    Loop {
        /// The file, under the name that the setup call gave.
        backing: PathBuf,
    },
}

impl BlockDevice {
    /// The device with this number.
    ///
    /// # Errors
    /// When sysfs does not have it.
    pub fn numbered(number: DeviceNumber) -> io::Result<Self> {
        Self::within(Path::new(SYSFS), number)
    }

    /// As [`Self::numbered`]; `sysfs` is where sysfs is mounted.
    ///
    /// # Errors
    /// When sysfs does not have it.
    pub fn within(sysfs: &Path, number: DeviceNumber) -> io::Result<Self> {
        Self::look(sysfs, &numbered(sysfs, number), DEEPEST)
    }

    /// Its node in /dev.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        // sysfs names cannot contain the slash that names of some controllers have.
        Path::new("/dev").join(self.name.replace('!', "/"))
    }

    /// The devices that do the work: what is at the bottom below partitions, device-mapper and RAID. A loop device
    /// is one of them: its requests are its own, and what its file asks for in turn is another matter
    /// ([`Self::lowest_below_files`]). In the order of their numbers, each once.
    #[must_use]
    pub fn lowest(&self) -> Vec<&Self> {
        self.bottom(|kind| matches!(kind, BlockDeviceKind::Loop { .. }))
    }

    /// As [`Self::lowest`], but of a loop device those that its file lies on, where that is known.
    #[must_use]
    pub fn lowest_below_files(&self) -> Vec<&Self> {
        self.bottom(|_| false)
    }

    /// As [`Self::lowest`], but several ways to one disk are one device: what they lead to.
    #[must_use]
    pub fn disks(&self) -> Vec<&Self> {
        self.bottom(|kind| matches!(kind, BlockDeviceKind::Loop { .. } | BlockDeviceKind::Paths))
    }

    /// The same, but of a loop device those that its file lies on, where that is known.
    #[must_use]
    pub fn disks_below_files(&self) -> Vec<&Self> {
        self.bottom(|kind| *kind == BlockDeviceKind::Paths)
    }

    /// This device and all below, each once, from the top to the bottom.
    #[must_use]
    pub fn layers(&self) -> Vec<&Self> {
        let mut layers = vec![self];
        let mut seen = BTreeSet::from([self.number]);
        let mut at = 0;
        while let Some(layer) = layers.get(at).copied() {
            layers.extend(layer.below.iter().filter(|below| seen.insert(below.number)));
            at += 1;
        }
        layers
    }

    /// What lies lowest, on ways down that end where `ends` says so.
    fn bottom(&self, ends: fn(&BlockDeviceKind) -> bool) -> Vec<&Self> {
        let mut found = Vec::new();
        self.collect(ends, &mut found);
        found.sort_by_key(|device| device.number);
        found.dedup_by_key(|device| device.number);
        found
    }

    fn collect<'a>(&'a self, ends: fn(&BlockDeviceKind) -> bool, found: &mut Vec<&'a Self>) {
        if ends(&self.kind) || self.below.is_empty() {
            found.push(self);
        } else {
            self.below.iter().for_each(|below| below.collect(ends, found));
        }
    }

    fn look(sysfs: &Path, place: &Path, deepest: usize) -> io::Result<Self> {
        let directory = fs::canonicalize(place)?;
        let strange = || io::Error::other(format!("{} is not a block device", directory.display()));
        let name = directory.file_name().ok_or_else(strange)?.to_string_lossy().into_owned();
        let number = number_in(&fs::read_to_string(directory.join("dev"))?).ok_or_else(strange)?;
        let backing = fs::read(directory.join("loop/backing_file")).ok();
        let slaves: Vec<PathBuf> =
            fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let (kind, places) = if directory.join("partition").exists() {
            (BlockDeviceKind::Partition, directory.parent().map(Path::to_owned).into_iter().collect())
        } else if let Some(path) = backing {
            let backing = PathBuf::from(OsString::from_vec(path.strip_suffix(b"\n").unwrap_or(&path).to_vec()));
            let place = fs::metadata(&backing).ok().map(|file| numbered(sysfs, DeviceNumber::from_stat(file.dev())));
            (BlockDeviceKind::Loop { backing }, place.into_iter().collect())
        } else if directory.join("dm").exists() {
            // The tool that makes such a device states it in its name.
            let uuid = fs::read(directory.join("dm/uuid")).unwrap_or_default();
            (if uuid.starts_with(b"mpath-") { BlockDeviceKind::Paths } else { BlockDeviceKind::Mapped }, slaves)
        } else if slaves.is_empty() {
            (BlockDeviceKind::Disk, slaves)
        } else {
            (BlockDeviceKind::Joined, slaves)
        };
        // What cannot be looked at is left out: file systems that are on no device, devices that are just going.
        let mut below: Vec<Self> = match deepest {
            0 => Vec::new(),
            _ => places.iter().filter_map(|place| Self::look(sysfs, place, deepest - 1).ok()).collect(),
        };
        below.sort_by_key(|device| device.number);
        Ok(Self { number, name, kind, below })
    }
}

/// The devices of the btrfs that `device` belongs to, or it alone. A device that is missing has no number.
#[must_use]
pub fn volume_members(device: DeviceNumber) -> Vec<DeviceNumber> {
    members_within(Path::new(SYSFS), device)
}

fn members_within(sysfs: &Path, device: DeviceNumber) -> Vec<DeviceNumber> {
    let entries = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = |volume: PathBuf| -> Vec<DeviceNumber> {
        let devices = entries(volume.join("devices"));
        let number = |entry: fs::DirEntry| number_in(&fs::read_to_string(entry.path().join("dev")).ok()?);
        let mut numbers: Vec<DeviceNumber> = devices.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    let mut volumes = entries(sysfs.join("fs/btrfs")).map(|entry| numbers(entry.path()));
    volumes.find(|numbers| numbers.contains(&device)).unwrap_or_else(|| vec![device])
}

/// The number of the partition in its table, as the kernel counts; `None` when the device is no partition.
#[must_use]
pub fn partition_number(device: DeviceNumber) -> Option<u32> {
    let text = fs::read_to_string(numbered(Path::new(SYSFS), device).join("partition"));
    text.ok()?.trim().parse().ok()
}

fn numbered(sysfs: &Path, number: DeviceNumber) -> PathBuf {
    sysfs.join("dev/block").join(number.to_string())
}

fn number_in(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Devices by name within sysfs, number, a file that tells what they are, and what they lie on.
    fn sysfs(devices: &[(&str, &str, &str, &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let links = root.path().join("dev/block");
        fs::create_dir_all(&links).unwrap();
        for (name, number, mark, below) in devices {
            let directory = root.path().join("devices").join(name);
            fs::create_dir_all(directory.join("slaves")).unwrap();
            fs::write(directory.join("dev"), format!("{number}\n")).unwrap();
            if let Some((mark, content)) = mark.split_once('=') {
                fs::create_dir_all(directory.join(mark).parent().unwrap()).unwrap();
                fs::write(directory.join(mark), content).unwrap();
            }
            symlink(&directory, links.join(number)).unwrap();
            for slave in *below {
                let name = Path::new(slave).file_name().unwrap();
                symlink(root.path().join("devices").join(slave), directory.join("slaves").join(name)).unwrap();
            }
        }
        root
    }

    fn names(devices: &[&BlockDevice]) -> String {
        devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn at(root: &tempfile::TempDir, major: u32, minor: u32) -> BlockDevice {
        BlockDevice::within(root.path(), DeviceNumber { major, minor }).unwrap()
    }

    #[test]
    fn encryption_on_a_raid_of_partitions_lies_on_the_disks() {
        let root = sysfs(&[
            ("sda", "8:0", "", &[]),
            ("sdb", "8:16", "", &[]),
            ("sda/sda2", "8:2", "partition=2", &[]),
            ("sdb/sdb2", "8:18", "partition=2", &[]),
            ("md0", "9:0", "md/level=raid1", &["sdb/sdb2", "sda/sda2"]),
            ("dm-0", "253:0", "dm/uuid=CRYPT-LUKS2-1", &["md0"]),
        ]);
        let top = at(&root, 253, 0);
        assert_eq!((top.kind.clone(), names(&top.lowest()).as_str()), (BlockDeviceKind::Mapped, "sda sdb"));
        assert_eq!(top.below.first().unwrap().kind, BlockDeviceKind::Joined);
        assert_eq!(top.layers().len(), 6);
        assert_eq!(names(&at(&root, 8, 18).lowest()), "sdb");
    }

    #[test]
    fn a_btrfs_has_all_its_devices_and_another_device_is_alone() {
        let root = sysfs(&[("sda", "8:0", "", &[]), ("sdb", "8:16", "", &[]), ("sdc", "8:32", "", &[])]);
        let of = |minor| members_within(root.path(), DeviceNumber { major: 8, minor }).len();
        assert_eq!(of(0), 1, "no btrfs at all");
        for (volume, names) in [("one", &["sda", "sdb"][..]), ("other", &["missing"])] {
            let members = root.path().join("fs/btrfs").join(volume).join("devices");
            fs::create_dir_all(&members).unwrap();
            for name in names {
                symlink(root.path().join("devices").join(name), members.join(name)).unwrap();
            }
        }
        assert_eq!([of(0), of(16), of(32)], [2, 2, 1]);
    }

    #[test]
    fn two_ways_down_to_one_disk_are_one_disk() {
        let root = sysfs(&[
            ("vda", "254:0", "", &[]),
            ("vda/vda1", "254:1", "partition=1", &[]),
            ("vda/vda2", "254:2", "partition=2", &[]),
            ("dm-1", "253:1", "dm/uuid=LVM-x", &["vda/vda1", "vda/vda2"]),
        ]);
        assert_eq!(names(&at(&root, 253, 1).lowest()), "vda");
        assert_eq!(names(&at(&root, 253, 1).layers()), "dm-1 vda1 vda2 vda");
    }

    #[test]
    fn several_ways_to_one_disk_of_an_array_are_one_disk() {
        let root = sysfs(&[
            ("sda", "8:0", "", &[]),
            ("sdb", "8:16", "", &[]),
            ("dm-0", "253:0", "dm/uuid=mpath-3600a0b80000f1c9e", &["sda", "sdb"]),
            ("dm-1", "253:1", "dm/uuid=part1-mpath-3600a0b80000f1c9e", &["dm-0"]),
            ("dm-2", "253:2", "dm/uuid=LVM-x", &["dm-1"]),
        ]);
        let volume = at(&root, 253, 2);
        assert_eq!((names(&volume.disks()).as_str(), names(&volume.disks_below_files()).as_str()), ("dm-0", "dm-0"));
        assert_eq!(names(&volume.lowest()), "sda sdb");
        let encrypted = sysfs(&[("sda", "8:0", "", &[]), ("dm-0", "253:0", "dm/uuid=CRYPT-LUKS2-1", &["sda"])]);
        assert_eq!(names(&at(&encrypted, 253, 0).disks()), "sda");
    }

    #[test]
    fn a_loop_device_ends_the_way_down_unless_its_file_is_meant() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let on = DeviceNumber::from_stat(fs::metadata(file.path()).unwrap().dev()).to_string();
        let mark = format!("loop/backing_file={}\n", file.path().display());
        let root = sysfs(&[
            ("disk", &on, "", &[]),
            ("loop0", "7:0", &mark, &[]),
            ("loop1", "7:1", "loop/backing_file=/no", &[]),
        ]);
        let device = at(&root, 7, 0);
        assert_eq!(device.kind, BlockDeviceKind::Loop { backing: file.path().to_owned() });
        assert_eq!((names(&device.lowest()).as_str(), names(&device.lowest_below_files()).as_str()), ("loop0", "disk"));
        assert_eq!(names(&at(&root, 7, 1).lowest_below_files()), "loop1", "where its file lies is not known");
    }

    #[test]
    fn a_ring_and_what_is_missing_do_no_harm() {
        let root = sysfs(&[("dm-0", "253:0", "dm/uuid=x", &["dm-1"]), ("dm-1", "253:1", "dm/uuid=y", &["dm-0"])]);
        assert_eq!(at(&root, 253, 0).layers().len(), 2);
        assert!(BlockDevice::within(root.path(), DeviceNumber { major: 1, minor: 1 }).is_err());
    }
}
