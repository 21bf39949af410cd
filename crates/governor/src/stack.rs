//! What a volume lies on: partitions, device-mapper, RAID and loop devices, down to the devices where the contention is.
//!
//! Owns the way down, in sysfs. Never opens a device.

use longrun_sys::DeviceNumber;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A block device, as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub number: DeviceNumber,
    /// The kernel's name of it.
    pub name: String,
    /// A file on it serves as the device of the volume.
    pub below_file: bool,
}

/// The devices below a volume whose load counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Those that lie on nothing else that is known: where the contention is.
    pub lowest: Vec<Device>,
    /// Loop devices on the way there: their users are nearer to us than those of the disk below.
    pub loops: Vec<Device>,
}

impl Stack {
    /// The stack below the volume whose device has this number.
    #[must_use]
    pub fn below(volume: DeviceNumber) -> Self {
        Self::in_sysfs(Path::new("/sys"), volume)
    }

    /// All of them.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.loops.iter().chain(&self.lowest)
    }

    fn in_sysfs(sysfs: &Path, volume: DeviceNumber) -> Self {
        let mut stack = Self::default();
        let mut seen = BTreeSet::new();
        let mut left = vec![(sysfs.join("dev/block").join(volume.to_string()), false)];
        while let Some((link, below_file)) = left.pop() {
            let Ok(directory) = fs::canonicalize(&link) else { continue };
            if !seen.insert(directory.clone()) {
                continue;
            }
            if directory.join("partition").exists() {
                left.extend(directory.parent().map(|disk| (disk.to_owned(), below_file)));
                continue;
            }
            let slaves: Vec<PathBuf> =
                fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten().map(|e| e.path()).collect();
            if !slaves.is_empty() {
                left.extend(slaves.into_iter().map(|slave| (slave, below_file)));
                continue;
            }
            let Some(device) = device_of(&directory, below_file) else { continue };
            let backing = backing_device(&directory).map(|number| sysfs.join("dev/block").join(number.to_string()));
            match backing.filter(|link| link.exists()) {
                Some(link) => {
                    stack.loops.push(device);
                    left.push((link, true));
                }
                None => stack.lowest.push(device),
            }
        }
        stack
    }
}

fn device_of(directory: &Path, below_file: bool) -> Option<Device> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let number = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let name = directory.file_name()?.to_string_lossy().into_owned();
    Some(Device { number, name, below_file })
}

/// The device that holds the file behind a loop device. None for other devices, and where the file lies on no device that
/// it would tell (FUSE, network, btrfs).
fn backing_device(directory: &Path) -> Option<DeviceNumber> {
    let file = fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    let meta = fs::metadata(file.trim_end_matches('\n')).ok()?;
    Some(DeviceNumber::from_stat(if meta.is_file() { meta.dev() } else { meta.rdev() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Devices by path below "devices" and number, and what they lie on.
    fn sysfs(devices: &[(&str, &str, &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let links = root.path().join("dev/block");
        fs::create_dir_all(&links).unwrap();
        for (name, number, below) in devices {
            let directory = root.path().join("devices").join(name);
            fs::create_dir_all(directory.join("slaves")).unwrap();
            fs::write(directory.join("dev"), format!("{number}\n")).unwrap();
            symlink(&directory, links.join(number)).unwrap();
            for slave in *below {
                let name = slave.rsplit('/').next().unwrap();
                symlink(root.path().join("devices").join(slave), directory.join("slaves").join(name)).unwrap();
            }
        }
        root
    }

    fn names(devices: &[Device]) -> Vec<&str> {
        let mut names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    fn stack(root: &tempfile::TempDir, major: u32, minor: u32) -> Stack {
        Stack::in_sysfs(root.path(), DeviceNumber { major, minor })
    }

    #[test]
    fn the_way_down_goes_through_mapped_devices_raid_and_partitions() {
        let root = sysfs(&[
            ("sda", "8:0", &[]),
            ("sda/sda1", "8:1", &[]),
            ("sdb", "8:16", &[]),
            ("md0", "9:0", &["sda/sda1", "sdb"]),
            ("dm-0", "253:0", &["md0"]),
            ("dm-1", "253:1", &["dm-0", "sdb"]),
        ]);
        fs::write(root.path().join("devices/sda/sda1/partition"), "1\n").unwrap();
        let found = stack(&root, 253, 1);
        assert_eq!(names(&found.lowest), ["sda", "sdb"]);
        assert!(found.loops.is_empty() && found.lowest.iter().all(|device| !device.below_file));
        assert_eq!(names(&stack(&root, 8, 1).lowest), ["sda"]);
        assert_eq!(stack(&root, 8, 77), Stack::default());
    }

    #[test]
    fn a_loop_device_lies_on_what_holds_its_file_if_that_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let under = DeviceNumber::from_stat(file.as_file().metadata().unwrap().dev());
        let root = sysfs(&[("disk", &under.to_string(), &[]), ("loop0", "7:0", &[]), ("loop1", "7:1", &[])]);
        let backed_by = |name: &str, file: &Path| {
            let directory = root.path().join("devices").join(name).join("loop");
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("backing_file"), format!("{}\n", file.display())).unwrap();
        };
        backed_by("loop0", file.path());
        backed_by("loop1", Path::new("/proc/self/io"));
        let found = stack(&root, 7, 0);
        assert_eq!((names(&found.loops), names(&found.lowest)), (vec!["loop0"], vec!["disk"]));
        assert!(found.lowest[0].below_file && !found.loops[0].below_file);
        assert_eq!(names(&stack(&root, 7, 1).lowest), ["loop1"], "on no block device");
    }
}
