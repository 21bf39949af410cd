//! The storage that hosts share: arrays and targets, by the names that they have in sysfs.
//!
//! Owns where the kernel tells these names. A local disk belongs to none. Never opens a device.

use crate::{BlockDevice, BlockDeviceKind, DeviceNumber};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where sysfs is mounted.
const SYSFS: &str = "/sys";

/// What told the name of a storage group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageGroupSource {
    /// The node name (WWNN) of a Fibre Channel target.
    FibreChannel,
    /// The name (IQN) of an iSCSI target.
    Iscsi,
    /// The name (NQN) of an NVMe subsystem behind a network.
    NvmeFabrics,
}

impl StorageGroupSource {
    /// For programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::FibreChannel => "fc",
            Self::Iscsi => "iscsi",
            Self::NvmeFabrics => "nvme",
        }
    }
}

/// The storage groups of `disks`, with what told them: as a rule one, or none.
#[must_use]
pub fn storage_groups(disks: impl IntoIterator<Item = DeviceNumber>) -> BTreeMap<String, StorageGroupSource> {
    storage_groups_within(Path::new(SYSFS), disks)
}

/// As [`storage_groups`]; `sysfs` is where sysfs is mounted.
#[must_use]
pub fn storage_groups_within(
    sysfs: &Path,
    disks: impl IntoIterator<Item = DeviceNumber>,
) -> BTreeMap<String, StorageGroupSource> {
    let devices = disks.into_iter().filter_map(|number| BlockDevice::within(sysfs, number).ok());
    // Of several ways to one disk each leads to the same array.
    let ways = |device: BlockDevice| -> Vec<String> {
        let of_paths = |layer: &&BlockDevice| layer.kind == BlockDeviceKind::Disk;
        device.layers().into_iter().filter(of_paths).map(|layer| layer.name.clone()).collect()
    };
    devices.flat_map(ways).filter_map(|name| group_of(sysfs, &name)).collect()
}

fn group_of(sysfs: &Path, disk: &str) -> Option<(String, StorageGroupSource)> {
    // Its own directory lies below that of the port, session or subsystem that it is reached through.
    let place = fs::canonicalize(sysfs.join("class/block").join(disk)).ok()?;
    let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let named = |text: String, source| (!text.is_empty()).then(|| (name_of(&text), source));
    for part in place.ancestors() {
        let Some(name) = part.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with("rport-") {
            let node = text(&sysfs.join("class/fc_remote_ports").join(name).join("node_name"))?;
            return named(node, StorageGroupSource::FibreChannel);
        }
        if name.starts_with("session") && part.join("iscsi_session").exists() {
            let target = text(&sysfs.join("class/iscsi_session").join(name).join("targetname"))?;
            return named(target, StorageGroupSource::Iscsi);
        }
        if let Some(subsystem) = text(&part.join("subsysnqn")) {
            return is_behind_a_network(part).then(|| named(subsystem, StorageGroupSource::NvmeFabrics))?;
        }
    }
    None
}

/// Whether the controller, or a controller of the subsystem, in `place` is not one of this machine's own.
fn is_behind_a_network(place: &Path) -> bool {
    let transport = |path: &Path| fs::read_to_string(path.join("transport")).ok();
    let own = transport(place);
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut all = own.into_iter().chain(entries.filter_map(|entry| transport(&entry.path())));
    all.any(|transport| matches!(transport.trim(), "tcp" | "rdma" | "fc"))
}

/// As a name of a group: other characters than letters, digits, "-" and "_" become "_". What is too long keeps its end, where names of
/// targets differ.
fn name_of(text: &str) -> String {
    const LONGEST: usize = 128;
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = text.chars().map(good).collect();
    name.get(name.len().saturating_sub(LONGEST)..).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Sysfs(tempfile::TempDir);

    impl Sysfs {
        fn new() -> Self {
            let sysfs = Self(tempfile::tempdir().unwrap());
            ["class/block", "dev/block"].iter().for_each(|place| fs::create_dir_all(sysfs.path(place)).unwrap());
            sysfs
        }

        fn path(&self, place: &str) -> PathBuf {
            self.0.path().join(place)
        }

        fn put(&self, place: &str, text: &str) {
            let path = self.path(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        fn disk(&self, place: &str, number: &str) {
            self.put(&format!("{place}/dev"), number);
            let name = place.rsplit('/').next().unwrap();
            symlink(self.path(place), self.path(&format!("class/block/{name}"))).unwrap();
            symlink(self.path(place), self.path(&format!("dev/block/{number}"))).unwrap();
        }

        fn groups(&self, minor: u32) -> Vec<(String, &'static str)> {
            let found = storage_groups_within(self.0.path(), [DeviceNumber { major: 8, minor }]);
            found.into_iter().map(|(name, source)| (name, source.word())).collect()
        }
    }

    #[test]
    fn targets_are_found_above_their_disks_and_local_disks_belong_to_none() {
        let sysfs = Sysfs::new();
        sysfs.disk("devices/pci0/host1/rport-1:0-2/target1:0:0/1:0:0:0/block/sda", "8:0");
        sysfs.put("class/fc_remote_ports/rport-1:0-2/node_name", "0x50060e8007c3a200");
        sysfs.disk("devices/platform/host2/session3/target2:0:0/2:0:0:1/block/sdb", "8:16");
        sysfs.put("devices/platform/host2/session3/iscsi_session/session3/targetname", "unused");
        sysfs.put("class/iscsi_session/session3/targetname", "iqn.2003-01.org.linux-iscsi.san:sn.42");
        sysfs.disk("devices/virtual/nvme-fabrics/ctl/nvme4/nvme4n1", "8:32");
        sysfs.put("devices/virtual/nvme-fabrics/ctl/nvme4/subsysnqn", "nqn.2014-08.com.example:array1");
        sysfs.put("devices/virtual/nvme-fabrics/ctl/nvme4/transport", "tcp");
        sysfs.disk("devices/virtual/nvme-subsystem/nvme-subsys5/nvme5n1", "8:48");
        sysfs.put("devices/virtual/nvme-subsystem/nvme-subsys5/subsysnqn", "nqn.2014-08.com.example:array2");
        sysfs.put("devices/virtual/nvme-subsystem/nvme-subsys5/nvme5/transport", "rdma");
        sysfs.disk("devices/pci0/0000:00:1f.0/nvme/nvme0/nvme0n1", "8:64");
        sysfs.put("devices/pci0/0000:00:1f.0/nvme/nvme0/subsysnqn", "nqn.1994-11.com.maker:ssd");
        sysfs.put("devices/pci0/0000:00:1f.0/nvme/nvme0/transport", "pcie");
        sysfs.disk("devices/pci0/ata1/host0/target0:0:0/0:0:0:0/block/sdf", "8:80");
        let one = |name: &str, source| vec![(name.to_owned(), source)];
        assert_eq!(sysfs.groups(0), one("0x50060e8007c3a200", "fc"));
        assert_eq!(sysfs.groups(16), one("iqn_2003-01_org_linux-iscsi_san_sn_42", "iscsi"));
        assert_eq!(sysfs.groups(32), one("nqn_2014-08_com_example_array1", "nvme"));
        assert_eq!(sysfs.groups(48), one("nqn_2014-08_com_example_array2", "nvme"));
        assert_eq!((sysfs.groups(64), sysfs.groups(80), sysfs.groups(96)), (vec![], vec![], vec![]));
    }

    #[test]
    fn several_ways_to_one_disk_lead_to_one_array() {
        let sysfs = Sysfs::new();
        for (way, number) in [("sda", "8:0"), ("sdb", "8:16")] {
            let rport = format!("rport-1:0-{way}");
            sysfs.disk(&format!("devices/pci0/host1/{rport}/target1:0:0/1:0:0:0/block/{way}"), number);
            sysfs.put(&format!("class/fc_remote_ports/{rport}/node_name"), "0x5006");
        }
        sysfs.disk("devices/virtual/block/dm-0", "8:32");
        sysfs.put("devices/virtual/block/dm-0/dm/uuid", "mpath-360060e80");
        fs::create_dir_all(sysfs.path("devices/virtual/block/dm-0/slaves")).unwrap();
        for way in ["sda", "sdb"] {
            symlink(
                sysfs.path(&format!("class/block/{way}")),
                sysfs.path(&format!("devices/virtual/block/dm-0/slaves/{way}")),
            )
            .unwrap();
        }
        assert_eq!(sysfs.groups(32), [("0x5006".to_owned(), "fc")]);
    }

    #[test]
    fn a_name_is_fit_for_a_key_and_keeps_its_end() {
        assert_eq!(name_of("iqn.x:y/é z"), "iqn_x_y___z");
        let long = name_of(&format!("{}end", "a".repeat(300)));
        assert!(long.len() == 128 && long.ends_with("end"));
    }
}
