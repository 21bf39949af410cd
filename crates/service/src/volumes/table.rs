//! Finds the volumes in the mount table, and the changes between two readings of it. Pure.

use longrun_prevention::Watched;
use longrun_sys::DeviceNumber;
use longrun_sys::FileSystem;
use longrun_sys::Mount;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A volume that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The mount to work through.
    pub watched: Watched,
    /// Everywhere that it is mounted.
    pub mounts: Vec<PathBuf>,
    /// What was mounted, under the name that the mount call gave.
    pub source: PathBuf,
}

/// What is seen of a mount at its mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// Something else, or nothing: it lies below another mount.
    Hidden,
    /// It is there, or may be, but cannot be opened.
    Broken,
    /// The volume.
    Visible,
}

/// The volumes that can be watched, and those that could be if they could be opened. However often a file system is mounted (bind mounts, subvolumes of btrfs, other
/// name spaces' propagated mounts), it is one volume; `sight` tells what is seen of a mount.
///
/// Leaves out file systems without a block device of their own (overlays, network and memory file systems), and
/// those that are read-only, such as mounted images.
#[must_use]
pub fn find(mounts: &[Mount], sight: impl Fn(&Mount) -> Sight) -> BTreeMap<DeviceNumber, Found> {
    let mut volumes: BTreeMap<DeviceNumber, Vec<&Mount>> = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| is_on_a_block_device(mount)) {
        volumes.entry(mount.device).or_default().push(mount);
    }
    let found = volumes.into_iter().filter_map(|(device, mounts)| {
        // A part of an ext4 or XFS volume does not show names outside of it; btrfs is rarely mounted but in parts.
        let usable = |mount: &&&Mount| mount.writable && (mount.is_whole() || mount.filesystem == "btrfs");
        let seen = mounts.iter().filter(usable).map(|mount| (sight(mount), mount));
        // The first mount before later ones: it is the likeliest to stay.
        let (_, best) = seen
            .filter(|(sight, _)| *sight > Sight::Hidden)
            .max_by_key(|(sight, mount)| (*sight, mount.is_whole(), std::cmp::Reverse(mount.id)))?;
        let points = mounts.iter().map(|mount| mount.point.clone()).collect();
        Some((device, Found { watched: Watched::at(best)?, mounts: points, source: best.source.clone() }))
    });
    found.collect()
}

fn is_on_a_block_device(mount: &Mount) -> bool {
    // btrfs has no number of a block device, since it may lie on several.
    let by_number = mount.device.major != 0;
    FileSystem::from_name(&mount.filesystem).is_some() && (by_number || mount.source.starts_with(Path::new("/dev")))
}

/// A change between two readings of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A volume is gone, or cannot be written to any more.
    Gone(DeviceNumber),
    /// A volume has come.
    Came(Box<Found>),
    /// It is mounted in other places too, or in fewer; the one to work through is the same.
    Renamed(Box<Found>),
}

/// The changes from `before` to `now`, unmounted volumes first. A volume that was mounted again appears as both.
#[must_use]
pub fn changes(before: &BTreeMap<DeviceNumber, Found>, now: &BTreeMap<DeviceNumber, Found>) -> Vec<Change> {
    let same = |a: &Found, b: &Found| a.watched == b.watched;
    let gone = before.iter().filter(|(device, old)| now.get(device).is_none_or(|new| !same(old, new)));
    let gone = gone.map(|(device, _)| Change::Gone(*device));
    let other = now.iter().filter_map(|(device, new)| match before.get(device) {
        Some(old) if old == new => None,
        Some(old) if same(old, new) => Some(Change::Renamed(Box::new(new.clone()))),
        _ => Some(Change::Came(Box::new(new.clone()))),
    });
    gone.chain(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_sys::parse_mountinfo;

    const TABLE: &str = "\
24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 24 7:0 / /snap/core/1 ro,nodev - squashfs /dev/loop0 ro
31 24 0:40 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw
32 24 0:41 /@home /home rw - btrfs /dev/vdb rw,subvol=/@home
33 24 0:41 / /mnt/pool rw - btrfs /dev/vdb rw,subvol=/
34 24 8:16 / /srv rw - xfs /dev/sdb rw
35 24 8:16 /www /var/www rw - xfs /dev/sdb rw
36 24 8:32 / /readonly ro - ext4 /dev/sdc rw
37 24 8:48 /part /only-bound rw - ext4 /dev/sdd rw
38 24 0:50 / /net rw - nfs4 host:/x rw
39 24 8:64 / /boot/efi rw - vfat /dev/sda1 rw
40 24 0:51 / /media/ntfs rw - fuseblk /dev/sde1 rw
41 24 8:80 / /hidden rw - ext4 /dev/sdf rw
";

    fn found(table: &str) -> BTreeMap<DeviceNumber, Found> {
        find(&parse_mountinfo(table.as_bytes()), |mount| match mount.point.to_str().unwrap() {
            "/hidden" => Sight::Hidden,
            "/broken" => Sight::Broken,
            _ => Sight::Visible,
        })
    }

    #[test]
    fn each_file_system_is_one_volume_however_it_is_mounted_and_only_those_that_can_be_written_count() {
        let volumes = found(TABLE);
        let points: Vec<_> = volumes.values().map(|v| v.watched.point.to_str().unwrap()).collect();
        assert_eq!(points, ["/mnt/pool", "/srv", "/"]);
        let pool = &volumes[&DeviceNumber { major: 0, minor: 41 }];
        assert_eq!(pool.mounts, [Path::new("/home"), Path::new("/mnt/pool")]);
        assert_eq!(pool.source, Path::new("/dev/vdb"));
    }

    #[test]
    fn without_the_top_of_btrfs_a_subvolume_serves() {
        let volumes = found("32 24 0:41 /@home /home rw - btrfs /dev/vdb rw\n");
        assert_eq!(volumes.values().next().unwrap().watched.point, Path::new("/home"));
    }

    #[test]
    fn a_volume_that_cannot_be_opened_counts_but_another_mount_of_it_is_better() {
        let broken = "30 24 8:16 / /broken rw - xfs /dev/sdb rw\n";
        let point = |table: &str| found(table).values().next().unwrap().watched.point.clone();
        assert_eq!(point(broken), Path::new("/broken"));
        assert_eq!(point(&format!("{broken}90 24 8:16 / /srv rw - xfs /dev/sdb rw\n")), Path::new("/srv"));
    }

    #[test]
    fn volumes_come_and_go_and_are_mounted_anew() {
        let before = found(TABLE);
        assert_eq!(changes(&before, &before), []);
        let remounted = TABLE.replace("34 24 8:16", "90 24 8:16");
        let now = found(&remounted);
        let srv = DeviceNumber { major: 8, minor: 16 };
        assert_eq!(changes(&before, &now), [Change::Gone(srv), Change::Came(Box::new(now[&srv].clone()))]);
        let read_only = found(&TABLE.replace("/srv rw - xfs /dev/sdb rw", "/srv ro - xfs /dev/sdb ro"));
        assert_eq!(changes(&before, &read_only), [Change::Gone(srv)]);
        let bound = found(&format!("{TABLE}95 24 254:1 / /again rw - ext4 /dev/vda1 rw\n"));
        assert!(matches!(&changes(&before, &bound)[..], [Change::Renamed(root)] if root.mounts.len() == 2));
    }
}
