//! Which devices are measured when a volume or a disk is meant.

use longrun_sys::{BlockDevice, BlockDeviceKind, DeviceNumber, volume_members};

/// The devices to measure for the volume, disk or partition `device`: itself; of an array (md) each of its members, of a btrfs each of
/// its devices. What is joined of several devices is measured apart, because reading it as a whole keeps several heads busy at once.
/// A share of the way through an array is the same share of the way through each member, except in a linear one.
#[must_use]
pub fn members(device: DeviceNumber) -> Vec<BlockDevice> {
    let tops = volume_members(device).into_iter().filter_map(|member| BlockDevice::numbered(member).ok());
    let mut found = Vec::new();
    tops.for_each(|top| descend(top, &mut found));
    found.sort_by_key(|member| member.number);
    found.dedup_by_key(|member| member.number);
    found
}

fn descend(device: BlockDevice, found: &mut Vec<BlockDevice>) {
    if device.kind == BlockDeviceKind::Joined && !device.below.is_empty() {
        device.below.into_iter().for_each(|below| descend(below, found));
    } else {
        found.push(device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(minor: u32, kind: BlockDeviceKind, below: Vec<BlockDevice>) -> BlockDevice {
        BlockDevice { number: DeviceNumber { major: 9, minor }, name: format!("d{minor}"), kind, below }
    }

    #[test]
    fn an_array_is_measured_by_its_members_and_anything_else_as_it_is() {
        let disk = |minor| device(minor, BlockDeviceKind::Disk, Vec::new());
        let partition = device(3, BlockDeviceKind::Partition, vec![disk(1)]);
        let array = device(5, BlockDeviceKind::Joined, vec![partition, disk(2)]);
        let names = |top: BlockDevice| {
            let mut found = Vec::new();
            descend(top, &mut found);
            found.into_iter().map(|device| device.name).collect::<Vec<_>>()
        };
        assert_eq!(names(array.clone()), ["d3", "d2"]);
        assert_eq!(names(device(6, BlockDeviceKind::Mapped, vec![array])), ["d6"], "a volume of LVM is a part of it");
        assert_eq!(names(disk(1)), ["d1"]);
    }
}
