//! Which volume a mounted one is, after it was mounted again and after a restart.
//!
//! Owns the rule that two volumes with the same UUID are two volumes: a clone has the UUID of its origin, so that the device counts, too.
//! [`names`] has the ids by which users know them. Never writes to a volume.

pub mod names;

use crate::target::node_number;
use longrun_sys::{BlockDevice, DeviceNumber, Mount, Superblock, read_mounts, read_superblock, volume_members};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// What identifies a mounted volume for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its superblock, as it is on the device. Of a btrfs whose origin is mounted, too, the kernel shows a UUID made for this mount.
    pub superblock: Superblock,
    /// Its device: [`BlockDevice::identity`], or else the kernel's name. Of several devices the first in the order of these names.
    pub device: String,
    /// The devices of the other volumes that are mounted now.
    pub others: Vec<String>,
}

impl Identity {
    /// The identity of the volume whose mount has the number `id`. `root` opens its root directory: where the device cannot be read, as in
    /// a container, newer kernels report the UUID.
    ///
    /// # Errors
    /// When it is no longer mounted, the volume has no block device, or neither reports a UUID.
    pub fn of(id: u64, root: impl FnOnce() -> io::Result<File>) -> io::Result<Self> {
        let mounts = read_mounts()?;
        let mount = mounts.iter().find(|mount| mount.id == id).ok_or(io::ErrorKind::NotFound)?;
        let filesystem = mount.known_filesystem().ok_or(io::ErrorKind::Unsupported)?;
        let superblock = read_superblock(&mount.source, filesystem).or_else(|error| {
            let uuid = longrun_sys::volume_uuid(root()?).map_err(|_| error)?;
            Ok::<_, io::Error>(Superblock { uuid: Some(uuid).filter(|uuid| *uuid != [0; 16]), ..Superblock::default() })
        })?;
        let mut devices = devices(&mounts, block_device, device);
        let device = devices.remove(&mount.device).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { superblock, device, others: devices.into_values().collect() })
    }
}

/// The devices of the volumes in the mount table, by the number that the volume has there. Each is another one: some disks have the
/// serial number of others.
fn devices(
    mounts: &[Mount],
    block_device: impl Fn(&Mount) -> Option<DeviceNumber>,
    device: impl Fn(DeviceNumber) -> String,
) -> BTreeMap<DeviceNumber, String> {
    let mut devices = BTreeMap::new();
    for mount in mounts {
        if !devices.contains_key(&mount.device)
            && let Some(number) = block_device(mount)
        {
            devices.insert(mount.device, device(number));
        }
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    devices.values().for_each(|device| *times.entry(device.clone()).or_default() += 1);
    for (number, device) in &mut devices {
        if times.get(device).is_some_and(|times| *times > 1) {
            *device = format!("{device}@{number}");
        }
    }
    devices
}

/// The number of the device that was mounted. That of the volume is no device's on btrfs.
fn block_device(mount: &Mount) -> Option<DeviceNumber> {
    if mount.device.major != 0 {
        return Some(mount.device);
    }
    // Other names may lead to a file system that hangs.
    mount.source.starts_with(Path::new("/dev")).then(|| node_number(&mount.source))?
}

fn device(number: DeviceNumber) -> String {
    let name = |number: DeviceNumber| match BlockDevice::numbered(number) {
        Ok(device) => device.identity().unwrap_or(device.name),
        Err(_) => number.to_string(),
    };
    volume_members(number).into_iter().map(name).min().unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may fail loudly, and say what they skip")]
mod tests {
    use super::*;
    use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
    use longrun_sys::parse_mountinfo;

    #[test]
    fn devices_that_share_a_serial_number_are_told_apart() {
        let table = "\
20 1 0:4 / /proc rw - proc proc rw
24 1 8:1 / / rw - ext4 /dev/sda1 rw
25 1 8:1 /www /srv rw - ext4 /dev/sda1 rw
26 1 8:17 / /b rw - xfs /dev/sdb1 rw
27 1 8:33 / /c rw - xfs /dev/sdc1 rw
28 1 0:41 / /d rw - btrfs /dev/sdd rw
";
        let mounts = parse_mountinfo(table.as_bytes());
        let number = |major, minor| DeviceNumber { major, minor };
        let block_device = |mount: &Mount| match mount.device {
            device if device == number(0, 41) => Some(number(8, 48)),
            device => (device.major != 0).then_some(device),
        };
        let device = |number: DeviceNumber| match number.minor {
            17 | 33 => "0123456789".to_owned(),
            minor => format!("serial-{minor}"),
        };
        let found: Vec<_> = devices(&mounts, block_device, device).into_iter().collect();
        let expected = [
            (number(0, 41), "serial-48"),
            (number(8, 1), "serial-1"),
            (number(8, 17), "0123456789@8:17"),
            (number(8, 33), "0123456789@8:33"),
        ];
        assert_eq!(found, expected.map(|(number, device)| (number, device.to_owned())));
    }

    #[test]
    fn loop_a_clone_has_the_uuid_of_its_origin_and_another_device() {
        for kind in FileSystemKind::ALL {
            let origin = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
            let Some(clone) = origin.mounted_clone().unwrap() else {
                println!("skipped on {kind:?}: this kernel does not mount a clone beside its origin");
                continue;
            };
            let identity = |volume: &LoopVolume| {
                let point = volume.mount_point();
                Identity::of(longrun_sys::mount_at(&point).unwrap(), || File::open(&point)).unwrap()
            };
            let (first, second) = (identity(&origin), identity(&clone));
            assert!(first.superblock.uuid.is_some());
            assert_eq!(first.superblock.uuid, second.superblock.uuid, "{kind:?}");
            assert_ne!(first.device, second.device, "{kind:?}");
            assert!(first.others.contains(&second.device) && second.others.contains(&first.device), "{kind:?}");
            assert!(!first.others.contains(&first.device), "{kind:?}");
            origin.remount().unwrap();
            assert_eq!(identity(&origin).device, first.device, "{kind:?}");
        }
    }
}
