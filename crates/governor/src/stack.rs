//! The devices below a volume on which the load of others matters.

use longrun_sys::{BlockDevice, DeviceNumber, volume_members};
use std::collections::BTreeSet;

/// A device whose load is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub number: DeviceNumber,
    /// The kernel's name of it.
    pub name: String,
    /// A file on it serves as the device of the volume.
    pub below_file: bool,
    /// Nothing that is known lies below: this is where requests contend.
    pub is_lowest: bool,
}

/// The devices at the bottom below the volume on `device`; and where a file serves as a device on the way there, that device
/// too: what its users do may never reach the disk, and is told more exactly there. Several ways to one disk of an array are
/// that one disk, whose requests are told of where they have not been given to one of them yet. A btrfs lies on all its
/// devices.
#[must_use]
pub fn devices_below(device: DeviceNumber) -> Vec<Device> {
    let members = volume_members(device).into_iter().filter_map(|member| BlockDevice::numbered(member).ok());
    let mut devices: Vec<Device> = members.flat_map(|member| devices_of(&member)).collect();
    let mut seen = BTreeSet::new();
    devices.retain(|device| seen.insert(device.number));
    devices
}

fn devices_of(top: &BlockDevice) -> Vec<Device> {
    let (upper, lowest) = (top.disks(), top.disks_below_files());
    let device = |found: &BlockDevice, below_file, is_lowest| Device {
        number: found.number,
        name: found.name.clone(),
        below_file,
        is_lowest,
    };
    let mut devices: Vec<Device> = upper.iter().map(|found| device(found, false, lowest.contains(found))).collect();
    let below_files = lowest.iter().filter(|found| !upper.contains(found));
    devices.extend(below_files.map(|found| device(found, true, true)));
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_sys::BlockDeviceKind;

    fn block_device(name: &str, minor: u32, kind: BlockDeviceKind, below: Vec<BlockDevice>) -> BlockDevice {
        BlockDevice { number: DeviceNumber { major: 7, minor }, name: name.to_owned(), kind, below }
    }

    #[test]
    fn of_a_file_that_serves_as_a_device_both_its_users_and_those_of_the_disk_below_count() {
        let disk = block_device("sda", 0, BlockDeviceKind::Disk, Vec::new());
        let backing = "/srv/image".into();
        let on_file = block_device("loop0", 1, BlockDeviceKind::Loop { backing }, vec![disk.clone()]);
        let both = block_device("dm-0", 2, BlockDeviceKind::Mapped, vec![on_file, disk.clone()]);
        let found = |top: &BlockDevice| {
            let devices = devices_of(top).into_iter();
            devices.map(|d| (d.name, d.below_file, d.is_lowest)).collect::<Vec<_>>()
        };
        let named = |name: &str, below_file, is_lowest| (name.to_owned(), below_file, is_lowest);
        assert_eq!(found(&both), [named("sda", false, true), named("loop0", false, false)]);
        assert_eq!(found(&both.below[0]), [named("loop0", false, false), named("sda", true, true)]);
        let unknown = block_device("loop1", 3, BlockDeviceKind::Loop { backing: "/fuse/image".into() }, Vec::new());
        assert_eq!(found(&unknown), [named("loop1", false, true)]);
        let ways = vec![disk.clone(), block_device("sdb", 16, BlockDeviceKind::Disk, Vec::new())];
        let paths = block_device("dm-1", 5, BlockDeviceKind::Paths, ways);
        assert_eq!(found(&paths), [named("dm-1", false, true)], "one disk, whichever way requests take");
        let partition = block_device("sda1", 4, BlockDeviceKind::Partition, vec![disk]);
        assert_eq!(found(&partition), [named("sda", false, true)]);
    }
}
