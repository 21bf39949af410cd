//! The device-mapper devices below a volume, as far as they decide whether data may be moved.
//!
//! Owns the reading of device-mapper in sysfs. Never opens a device.

use longrun_sys::DeviceNumber;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A layer that allocates space for each block when it is first written. A block that moves takes new space there,
/// while its old place is not given back or not at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growing {
    /// Its space comes from a pool that is smaller than the sum of what it serves.
    ThinPool,
    /// Every block that is written for the first time since a snapshot was taken is copied before.
    Snapshot,
}

impl fmt::Display for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThinPool => {
                "a volume in a thin pool (optimizing would fill the pool; when it is full all its volumes fail)"
            }
            Self::Snapshot => {
                "a snapshot or a volume that has one (optimizing would fill the snapshot; remove it first)"
            }
        })
    }
}

impl Growing {
    /// What LVM says of one of its devices: its identifier ends with the part that the device plays.
    fn by_identifier(uuid: &str) -> Option<Self> {
        // A partition of a volume has "part1-" and the like in front.
        let (_, part) = uuid.trim().split_once("LVM-").and_then(|(_, rest)| rest.split_once('-'))?;
        match part {
            "tpool" | "tdata" | "tmeta" | "vpool" | "vdata" => Some(Self::ThinPool),
            "real" | "cow" => Some(Self::Snapshot),
            _ => None,
        }
    }
}

/// Whether `device`, or anything that it consists of, is such a thing; `sysfs` is where sysfs is mounted.
///
/// Recognised are LVM's thin volumes, VDO volumes, snapshots and their origins, also below partitions, encryption and
/// RAID. Not recognised: pools that an administrator built by hand with dmsetup or that a storage array has, and the
/// sparse image of a loop device, which grows too.
pub(crate) fn growing(sysfs: &Path, device: DeviceNumber) -> Option<Growing> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<PathBuf> = vec![sysfs.join("dev/block").join(device.to_string())];
    while let Some(next) = left.pop() {
        let Ok(directory) = fs::canonicalize(&next) else { continue };
        if !seen.insert(directory.clone()) {
            continue;
        }
        let uuid = fs::read_to_string(directory.join("dm/uuid")).unwrap_or_default();
        let found = Growing::by_identifier(&uuid);
        if found.is_some() {
            return found;
        }
        if directory.join("partition").exists() {
            left.extend(directory.parent().map(Path::to_owned));
        }
        left.extend(fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const LV: &str = "LVM-wd1Jcb3ZQvXyzzPaoYvDwB8XyCUBXsEKAhgbDZYXCS6sVqhg6cvgTaYr0ZRp3IhC";

    /// Devices by name, number, identifier in device-mapper (empty: no such device) and what they lie on.
    fn sysfs(devices: &[(&str, &str, &str, &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let links = root.path().join("dev/block");
        fs::create_dir_all(&links).unwrap();
        for (name, number, uuid, below) in devices {
            let directory = root.path().join("devices").join(name);
            fs::create_dir_all(directory.join("slaves")).unwrap();
            if !uuid.is_empty() {
                fs::create_dir(directory.join("dm")).unwrap();
                fs::write(directory.join("dm/uuid"), format!("{uuid}\n")).unwrap();
            }
            symlink(&directory, links.join(number)).unwrap();
            for slave in *below {
                symlink(root.path().join("devices").join(slave), directory.join("slaves").join(slave)).unwrap();
            }
        }
        root
    }

    fn verdict(root: &tempfile::TempDir, minor: u32) -> Option<Growing> {
        growing(root.path(), DeviceNumber { major: 253, minor })
    }

    #[test]
    fn a_thin_volume_lies_on_its_pool() {
        let root = sysfs(&[
            ("dm-3", "253:3", LV, &["dm-2"]),
            ("dm-2", "253:2", &format!("{LV}-tpool"), &["dm-0", "dm-1"]),
            ("dm-1", "253:1", &format!("{LV}-tdata"), &[]),
            ("dm-0", "253:0", &format!("{LV}-tmeta"), &[]),
        ]);
        assert_eq!(verdict(&root, 3), Some(Growing::ThinPool));
    }

    #[test]
    fn a_snapshot_and_its_origin_are_told_also_below_encryption() {
        let root = sysfs(&[
            ("dm-0", "253:0", LV, &["dm-2"]),
            ("dm-1", "253:1", LV, &["dm-2", "dm-3"]),
            ("dm-2", "253:2", &format!("{LV}-real"), &["sda"]),
            ("dm-3", "253:3", &format!("{LV}-cow"), &["sda"]),
            ("dm-4", "253:4", "CRYPT-LUKS2-0123-home", &["dm-0"]),
            ("sda", "8:0", "", &[]),
        ]);
        for minor in [0, 1, 4] {
            assert_eq!(verdict(&root, minor), Some(Growing::Snapshot), "{minor}");
        }
    }

    #[test]
    fn a_partition_lies_on_its_disk() {
        let root = sysfs(&[
            ("dm-2", "253:2", &format!("{LV}-tpool"), &[]),
            ("md0", "9:0", "", &["dm-2"]),
            ("md0/md0p1", "253:9", "", &[]),
        ]);
        assert_eq!(verdict(&root, 9), None);
        fs::write(root.path().join("devices/md0/md0p1/partition"), "1\n").unwrap();
        assert_eq!(verdict(&root, 9), Some(Growing::ThinPool));
    }

    #[test]
    fn ordinary_devices_may_be_optimized() {
        let root = sysfs(&[
            ("dm-0", "253:0", LV, &["dm-1", "dm-2", "sda"]),
            ("dm-1", "253:1", &format!("{LV}-cdata"), &["sda"]),
            ("dm-2", "253:2", "CRYPT-LUKS1-tpool-real", &["sda"]),
            ("sda", "8:0", "", &["dm-0"]),
        ]);
        assert_eq!(verdict(&root, 0), None);
        assert_eq!(verdict(&root, 77), None, "what is not there");
    }
}
