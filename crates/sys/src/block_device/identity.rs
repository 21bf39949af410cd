//! What names a block device for good. The kernel's names, such as `sda`, go to other devices after a restart.

use super::{BlockDevice, BlockDeviceKind, SYSFS, numbered};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A longer name is not used: identities are names of files.
const LONGEST: usize = 200;
/// Where sysfs has the name that a device keeps: the world-wide name or serial number of a disk, the UUID of an array or of a mapped
/// device, the file of a loop device.
const PLACES: [&str; 7] = ["wwid", "device/wwid", "device/serial", "serial", "dm/uuid", "md/uuid", "loop/backing_file"];

impl BlockDevice {
    /// The name that the device keeps over restarts, as a file name: world-wide name, serial number, UUID, or the file of a loop device;
    /// of a partition that of its disk, with its number. `None` where sysfs has no such name.
    #[must_use]
    pub fn identity(&self) -> Option<String> {
        self.identity_within(Path::new(SYSFS))
    }

    fn identity_within(&self, sysfs: &Path) -> Option<String> {
        let directory = numbered(sysfs, self.number);
        let text = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| file_name(text))
        };
        let name = match self.kind {
            BlockDeviceKind::Partition => {
                let disk = self.below.first()?.identity_within(sysfs)?;
                Some(format!("{disk}-partition-{}", text("partition")?))
            }
            _ => PLACES.into_iter().find_map(text),
        };
        name.filter(|name| name.len() <= LONGEST)
    }
}

/// The text as the name of one file: bytes other than letters, digits, underscore and minus become a point and their hexadecimal number.
fn file_name(text: &str) -> String {
    text.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || b"_-".contains(&byte) {
            name.push(char::from(byte));
        } else {
            _ = write!(name, ".{byte:02x}");
        }
        name
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::DeviceNumber;

    #[test]
    fn identities_are_names_of_files_whatever_a_disk_calls_itself() {
        let root = tempfile::tempdir().unwrap();
        let of = |number: &str| root.path().join("dev/block").join(number);
        fs::create_dir_all(of("8:0").join("device")).unwrap();
        fs::create_dir_all(of("8:1")).unwrap();
        fs::write(of("8:0").join("device/wwid"), "../t10.ATA/x y\n").unwrap();
        fs::write(of("8:1").join("partition"), "1\n").unwrap();
        let device = |minor, kind, below| BlockDevice {
            number: DeviceNumber { major: 8, minor },
            name: String::new(),
            kind,
            below,
        };
        let disk = device(0, BlockDeviceKind::Disk, Vec::new());
        assert_eq!(disk.identity_within(root.path()).unwrap(), ".2e.2e.2ft10.2eATA.2fx.20y");
        let partition = device(1, BlockDeviceKind::Partition, vec![disk]);
        assert_eq!(partition.identity_within(root.path()).unwrap(), ".2e.2e.2ft10.2eATA.2fx.20y-partition-1");
        let nameless = device(2, BlockDeviceKind::Disk, Vec::new());
        assert_eq!(nameless.identity_within(root.path()), None);
        fs::create_dir_all(of("8:2")).unwrap();
        fs::write(of("8:2").join("wwid"), "x".repeat(300)).unwrap();
        assert_eq!(nameless.identity_within(root.path()), None, "no name of a file");
    }
}
