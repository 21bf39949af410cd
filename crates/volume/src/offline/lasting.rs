//! Whether a directory outlives a loss of power.
//!
//! Owns what is known of file systems and devices that do not. Never writes anything.

use crate::target::node_number;
use longrun_sys::{BlockDevice, BlockDeviceKind, DeviceNumber, Mount};
use std::io;
use std::path::Path;

/// What looks into the kernel. Tests have another one.
trait Kernel {
    fn mount_of(&self, path: &Path) -> io::Result<Option<Mount>>;
    fn device(&self, number: DeviceNumber) -> io::Result<BlockDevice>;
}

struct Running;

impl Kernel for Running {
    fn mount_of(&self, path: &Path) -> io::Result<Option<Mount>> {
        Mount::numbered(longrun_sys::mount_at(path)?)
    }

    fn device(&self, number: DeviceNumber) -> io::Result<BlockDevice> {
        BlockDevice::numbered(number)
    }
}

/// File systems whose content is memory only (Documentation/filesystems/tmpfs.rst and ramfs-rootfs-initramfs.rst).
const IN_MEMORY: [&str; 4] = ["tmpfs", "ramfs", "rootfs", "devtmpfs"];
/// File systems that keep what is written in a directory of another one, which their options do not always tell.
const LAYERED: [&str; 3] = ["overlay", "aufs", "unionfs"];
/// Names of block devices whose content is memory only.
const MEMORY_DEVICES: [&str; 2] = ["zram", "ram"];
/// Overlays and loop devices on each other.
const DEEPEST: usize = 8;

/// Why what is written to `directory` is gone after a loss of power, or may be; `None` when nothing is known that says so.
pub(super) fn loss(directory: &Path) -> Option<String> {
    loss_by(&Running, directory, DEEPEST)
}

fn loss_by(kernel: &impl Kernel, directory: &Path, deepest: usize) -> Option<String> {
    // Before Linux 5.8 the kernel does not tell the mount: then nothing is known.
    let mount = kernel.mount_of(directory).ok().flatten()?;
    let (kind, point) = (mount.filesystem.as_str(), mount.point.display());
    if IN_MEMORY.contains(&kind) {
        return Some(format!("{kind} at {point} is in memory"));
    }
    if LAYERED.contains(&kind) {
        if mount.options.iter().any(|option| option == "volatile") {
            return Some(format!("{kind} at {point} is mounted with the option volatile"));
        }
        let upper = mount.options.iter().find_map(|option| option.strip_prefix("upperdir=")).map(Path::new);
        let known = upper.filter(|upper| deepest > 0 && kernel.mount_of(upper).is_ok_and(|mount| mount.is_some()));
        return match known {
            Some(upper) => loss_by(kernel, upper, deepest - 1),
            None => Some(format!("{kind} at {point} keeps it at a place that cannot be seen from here")),
        };
    }
    // The number of btrfs is of no device.
    let number = node_number(&mount.source).unwrap_or(mount.device);
    let device = kernel.device(number).ok()?;
    device.layers().into_iter().find_map(|layer| match &layer.kind {
        BlockDeviceKind::Loop { backing } if deepest > 0 => loss_by(kernel, backing, deepest - 1),
        _ => {
            let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
            let is_memory = MEMORY_DEVICES.iter().any(|name| layer.name.strip_prefix(name).is_some_and(digits));
            is_memory.then(|| format!("{point} is on {}, which is in memory", layer.name))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Mounts by what lies on them, and devices by their minor numbers.
    #[derive(Default)]
    struct Fake {
        mounts: Vec<(&'static str, Mount)>,
        devices: Vec<BlockDevice>,
    }

    impl Fake {
        fn with(mut self, path: &'static str, filesystem: &str, minor: u32, options: &[&str]) -> Self {
            let mount = Mount {
                id: 1,
                device: DeviceNumber { major: 900, minor },
                root: "/".into(),
                point: path.into(),
                writable: true,
                filesystem: filesystem.into(),
                source: "none".into(),
                options: options.iter().map(ToString::to_string).collect(),
            };
            self.mounts.push((path, mount));
            self
        }

        fn on(mut self, minor: u32, name: &str, kind: BlockDeviceKind) -> Self {
            let number = DeviceNumber { major: 900, minor };
            self.devices.push(BlockDevice { number, name: name.into(), kind, below: Vec::new() });
            self
        }

        fn loss(&self) -> Option<String> {
            loss_by(self, Path::new("/var/lib"), DEEPEST)
        }
    }

    impl Kernel for Fake {
        fn mount_of(&self, path: &Path) -> io::Result<Option<Mount>> {
            let longest =
                self.mounts.iter().filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.len());
            longest.map(|(_, mount)| Some(mount.clone())).ok_or(io::ErrorKind::NotFound.into())
        }

        fn device(&self, number: DeviceNumber) -> io::Result<BlockDevice> {
            self.devices.iter().find(|device| device.number == number).cloned().ok_or(io::ErrorKind::NotFound.into())
        }
    }

    fn is_lost(fake: &Fake, words: &str) {
        let loss = fake.loss().unwrap_or_default();
        assert!(loss.contains(words), "{words}: {loss:?}");
    }

    #[test]
    fn what_is_in_memory_does_not_last() {
        // The mount table of the running kernel.
        assert!(loss(Path::new("/dev/shm")).is_some_and(|loss| loss.contains("in memory")));
    }

    #[test]
    fn memory_is_told_from_disks() {
        for kind in IN_MEMORY {
            is_lost(&Fake::default().with("/var", kind, 0, &[]), "in memory");
        }
        for name in ["zram0", "ram15"] {
            is_lost(&Fake::default().with("/", "ext4", 1, &[]).on(1, name, BlockDeviceKind::Disk), name);
        }
        for name in ["sda1", "rampart", "zram", "nvme0n1"] {
            assert_eq!(
                Fake::default().with("/", "ext4", 1, &[]).on(1, name, BlockDeviceKind::Disk).loss(),
                None,
                "{name}"
            );
        }
        assert_eq!(Fake::default().with("/", "nfs4", 2, &[]).loss(), None);
        assert_eq!(Fake::default().loss(), None, "nothing is known");
    }

    #[test]
    fn an_overlay_lasts_as_long_as_its_upper_layer() {
        let upper = ["rw", "upperdir=/cow/upper", "workdir=/cow/work"];
        let overlay = |options: &[&str]| Fake::default().with("/", "overlay", 1, options);
        is_lost(&overlay(&upper).with("/cow", "tmpfs", 2, &[]), "in memory");
        assert_eq!(overlay(&upper).with("/cow", "ext4", 2, &[]).loss(), None);
        is_lost(&overlay(&["upperdir=/cow/upper", "volatile"]).with("/cow", "ext4", 2, &[]), "volatile");
        is_lost(&overlay(&["lowerdir=/a"]), "cannot be seen");
        is_lost(&Fake::default().with("/var", "overlay", 1, &upper), "cannot be seen");
        // Its own upper layer: an answer all the same.
        is_lost(&overlay(&["upperdir=/var/lib"]), "cannot be seen");
    }

    #[test]
    fn a_loop_device_lasts_as_long_as_its_file() {
        let on = |kind| {
            let backing = BlockDeviceKind::Loop { backing: PathBuf::from("/live/root.img") };
            Fake::default().with("/", "ext4", 1, &[]).on(1, "loop0", backing).with("/live", kind, 2, &[]).loss()
        };
        assert!(on("tmpfs").is_some_and(|loss| loss.contains("in memory")));
        assert_eq!(on("vfat"), None);
    }
}
