//! The kind of a disk, and the policy for work on it.
//!
//! Owns the detection of the kind. The policy is pure.

use crate::Device;
use crate::stack::devices_below;
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Component, Path};
use std::time::Duration;

/// The kind of a disk, as far as it matters for work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// It has a head that moves.
    Rotational,
    /// It has none.
    SolidState,
    /// What it is made of is hidden: a hypervisor, a cloud or a storage array keeps it, or it is a file.
    Virtual,
    /// So it is, and what is discarded goes back to the storage below: what is written to a place for the
    /// first time takes space there.
    Thin,
}

impl fmt::Display for DiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rotational => "rotational disk",
            Self::SolidState => "solid-state disk",
            Self::Virtual => "virtual disk",
            Self::Thin => "thin virtual disk",
        })
    }
}

/// Parts of what virtual disks call themselves.
const VIRTUAL_NAMES: &[&str] = &[
    "qemu",
    "virtual",
    "vmware",
    "msft",
    "google",
    "persistentdisk",
    "nvme_card",
    "elastic block stor",
    "vbox",
    "lio-org",
];

/// Whether a disk is reached through a network, and hence kept by an array or another host: Fibre Channel and iSCSI show that
/// in the place that the device has in sysfs, NVMe tells it.
fn is_remote(directory: &Path) -> bool {
    let place = fs::canonicalize(directory).unwrap_or_default();
    let through = |part: Component<'_>| {
        let name = part.as_os_str().to_string_lossy();
        name.starts_with("rport-") || name.strip_prefix("session").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    // The controllers of an NVMe disk lie beside it, where it has several.
    let controllers = fs::read_dir(directory.join("device")).into_iter().flatten().flatten().map(|entry| entry.path());
    let transports = controllers.chain([directory.join("device")]).map(|place| place.join("transport"));
    let mut transports = transports.filter_map(|file| fs::read_to_string(file).ok());
    place.components().any(through) || transports.any(|name| matches!(name.trim(), "tcp" | "rdma" | "fc"))
}

impl DiskKind {
    /// The kind of a device now: what is behind a number can change.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        let directory = Path::new("/sys/dev/block").join(device.number.to_string());
        Self::in_directory(&directory, &device.name)
    }

    /// What lies lowest below a device, and of several disks the one that most speaks against work in the order of its places; `None`
    /// where nothing is known of it.
    #[must_use]
    pub fn below(device: DeviceNumber) -> Option<Self> {
        Disks::below(device)?.kinds.into_iter().max()
    }

    fn in_directory(directory: &Path, name: &str) -> Self {
        let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default().to_lowercase();
        let called = format!("{} {}", text("device/vendor"), text("device/model"));
        // Such drivers say "rotational" of everything unless they are told otherwise.
        let by_driver = ["vd", "xvd", "nbd", "rbd", "drbd", "ublk"].iter().any(|driver| name.starts_with(driver));
        let hidden =
            if matches!(text("queue/discard_max_bytes").trim(), "" | "0") { Self::Virtual } else { Self::Thin };
        let by_ways = text("dm/uuid").starts_with("mpath-");
        if by_driver || by_ways || VIRTUAL_NAMES.iter().any(|part| called.contains(part)) || is_remote(directory) {
            hidden
        } else if text("queue/rotational").trim() == "1" {
            // Of a file that serves as a device, what lies below it says so.
            Self::Rotational
        } else if name.starts_with("loop") {
            hidden
        } else {
            Self::SolidState
        }
    }
}

/// To save a seek, no disk has more moved unasked. A seek takes as long as reading 1 to 2 MB, and what is moved is read and written:
/// the file has to be read some four times before that has paid.
const DEAREST: Bytes = Bytes(4 << 20);

/// The policy for one kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPolicy {
    /// The most to move without asking again.
    #[serde(rename = "chunk_bytes")]
    pub chunk: Bytes,
    /// The same while others have waited long enough for us: so much that the fixed cost of a request still is less than half.
    #[serde(skip)]
    pub least: Bytes,
    /// The most pieces, lying apart, to read without asking again.
    pub pieces: usize,
    /// How long it must be quiet before it counts as unused.
    #[serde(skip)]
    pub quiet: Duration,
    /// A file whose fragments are this long on average is read as fast as a whole one: putting it together would be writing
    /// for nothing.
    #[serde(rename = "whole_bytes")]
    pub whole: Bytes,
    /// Whether it matters where on the disk things lie, beside how many pieces they are in.
    pub order_matters: bool,
}

impl DiskPolicy {
    /// For a kind of disk.
    #[must_use]
    pub fn of(kind: DiskKind) -> Self {
        let hidden = Self {
            chunk: Bytes(1 << 20),
            least: Bytes(256 << 10),
            // At 3000 requests a second they take 5 ms.
            pieces: 16,
            // Of a process that reads ten times a second one pause of twenty is longer.
            quiet: Duration::from_millis(300),
            // Providers count requests of up to so much as one.
            whole: Bytes(256 << 10),
            // There may be a platter below.
            order_matters: true,
        };
        match kind {
            // Each piece is a seek, and other I/O waits for all that are on their way; in the order of the platter one
            // at a time takes no longer. A chunk takes about as long as two seeks. A seek takes as long as reading 1 to
            // 2 MB: in fragments of 16 MiB it is a tenth.
            DiskKind::Rotational => Self {
                least: Bytes(512 << 10),
                pieces: 1,
                quiet: Duration::from_millis(500),
                whole: Bytes(16 << 20),
                ..hidden
            },
            DiskKind::Virtual => hidden,
            // 64 KiB fragments are read as fast as a whole file (`docs/benchmarks.md`), and what is moved takes space anew.
            DiskKind::Thin => Self { whole: Bytes(64 << 10), ..hidden },
            // The kernel reads ahead by 128 KiB: then a request is no longer in a whole file.
            DiskKind::SolidState => Self {
                chunk: Bytes(2 << 20),
                least: Bytes(128 << 10),
                pieces: 32,
                quiet: Duration::from_millis(50),
                whole: Bytes(128 << 10),
                order_matters: false,
            },
        }
    }

    /// The most bytes to move for each fragment that a file is fewer, unasked.
    #[must_use]
    pub fn worth(&self) -> Bytes {
        self.whole.min(DEAREST)
    }

    /// For several disks together: what suits the most sensitive. Of unknown disks the worst is assumed.
    #[must_use]
    pub fn of_all(kinds: impl IntoIterator<Item = DiskKind>) -> Self {
        let worst = kinds.into_iter().map(Self::of).reduce(|a, b| Self {
            chunk: a.chunk.min(b.chunk),
            least: a.least.max(b.least),
            pieces: a.pieces.min(b.pieces),
            quiet: a.quiet.max(b.quiet),
            whole: a.whole.max(b.whole),
            order_matters: a.order_matters || b.order_matters,
        });
        worst.unwrap_or_else(|| Self::of(DiskKind::Rotational))
    }
}

/// The disks below a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disks {
    /// The lowest devices below it: where requests contend.
    pub devices: Vec<String>,
    /// Their kinds, each once.
    pub kinds: Vec<DiskKind>,
    /// How to work on them.
    #[serde(flatten)]
    pub policy: DiskPolicy,
}

impl fmt::Display for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds.iter().map(DiskKind::to_string).collect();
        write!(f, "{} ({})", kinds.join(" and "), self.devices.join(", "))
    }
}

impl Disks {
    /// Below the volume on the device with this number, as they are now; none where nothing is known of it.
    #[must_use]
    pub fn below(volume: DeviceNumber) -> Option<Self> {
        Self::of(&devices_below(volume))
    }

    /// Of these the lowest.
    pub(crate) fn of(devices: &[Device]) -> Option<Self> {
        let lowest: Vec<&Device> = devices.iter().filter(|device| device.is_lowest).collect();
        let kinds: BTreeSet<DiskKind> = lowest.iter().map(|device| DiskKind::of(device)).collect();
        (!lowest.is_empty()).then(|| Self {
            devices: lowest.iter().map(|device| device.name.clone()).collect(),
            kinds: kinds.iter().copied().collect(),
            policy: DiskPolicy::of_all(kinds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, files: &[(&str, &str)]) -> DiskKind {
        kind_at("block", name, files)
    }

    fn kind_at(place: &str, name: &str, files: &[(&str, &str)]) -> DiskKind {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(place).join(name);
        for (file, text) in files {
            let path = directory.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        DiskKind::in_directory(&directory, name)
    }

    #[test]
    fn a_disk_of_an_array_is_virtual_whatever_its_driver_says() {
        let array = [("queue/rotational", "1\n"), ("device/vendor", "DGC     \n"), ("device/model", "VRAID\n")];
        assert_eq!(kind_at("host3/rport-3:0-0/target3:0:0/3:0:0:1/block", "sda", &array), DiskKind::Virtual);
        assert_eq!(kind_at("host2/session1/target2:0:0/2:0:0:1/block", "sda", &array), DiskKind::Virtual);
        assert_eq!(
            kind_at("host2/target2:0:0/2:0:0:1/block", "sda", &array),
            DiskKind::Rotational,
            "a controller here"
        );
        assert_eq!(kind_at("sessions/session-x/block", "sda", &array), DiskKind::Rotational, "names of something else");
        let paths = [("queue/rotational", "1\n"), ("dm/uuid", "mpath-3600a0b80000f1c9e")];
        assert_eq!(kind("dm-0", &paths), DiskKind::Virtual);
        let flash = |transport| [("queue/rotational", "0\n"), transport];
        assert_eq!(kind("nvme0n1", &flash(("device/transport", "tcp\n"))), DiskKind::Virtual);
        assert_eq!(kind("nvme0n1", &flash(("device/nvme0/transport", "rdma\n"))), DiskKind::Virtual);
        assert_eq!(kind("nvme0n1", &flash(("device/transport", "pcie\n"))), DiskKind::SolidState);
    }

    #[test]
    fn what_a_disk_calls_itself_comes_before_what_its_driver_says() {
        let turns = ("queue/rotational", "1\n");
        assert_eq!(kind("sda", &[turns, ("device/vendor", "ATA     \n")]), DiskKind::Rotational);
        assert_eq!(kind("sda", &[("queue/rotational", "0\n")]), DiskKind::SolidState);
        assert_eq!(kind("vda", &[turns]), DiskKind::Virtual);
        assert_eq!(kind("sda", &[turns, ("device/vendor", "VMware  \n")]), DiskKind::Virtual);
        // A file that serves as a device has the nature of what is below it, where the kernel knows that.
        assert_eq!(kind("loop0", &[turns]), DiskKind::Rotational);
        assert_eq!(kind("loop0", &[("queue/rotational", "0\n")]), DiskKind::Virtual);
        let gives_back = ("queue/discard_max_bytes", "2147450880\n");
        assert_eq!(kind("vda", &[turns, gives_back]), DiskKind::Thin);
        assert_eq!(kind("loop0", &[("queue/rotational", "0\n"), gives_back]), DiskKind::Thin, "a sparse file");
        assert_eq!(kind("sda", &[("queue/rotational", "0\n"), gives_back]), DiskKind::SolidState);
        let ebs = [("queue/rotational", "0\n"), ("device/model", "Amazon Elastic Block Store              \n")];
        assert_eq!(kind("nvme0n1", &ebs), DiskKind::Virtual);
    }

    #[test]
    fn where_each_piece_is_a_seek_few_are_asked_for_at_a_time_and_calm_lasts_longer() {
        let [turning, hidden, solid] =
            [DiskKind::Rotational, DiskKind::Virtual, DiskKind::SolidState].map(DiskPolicy::of);
        assert_eq!(turning.pieces, 1, "whoever comes waits for one seek");
        assert!(turning.pieces < hidden.pieces && hidden.pieces < solid.pieces);
        assert!(turning.quiet > hidden.quiet && hidden.quiet > solid.quiet);
        assert!(turning.order_matters && !solid.order_matters);
    }

    #[test]
    fn the_dearer_writing_is_and_the_cheaper_a_fragment_the_sooner_a_file_is_whole_enough() {
        use DiskKind::{Rotational, SolidState, Thin, Virtual};
        let whole = [Thin, SolidState, Virtual, Rotational].map(|kind| DiskPolicy::of(kind).whole);
        assert!(whole.is_sorted_by(|a, b| a < b), "{whole:?}");
        assert_eq!(DiskPolicy::of_all([SolidState, Rotational]).whole, DiskPolicy::of(Rotational).whole);
    }

    #[test]
    fn no_disk_has_more_moved_for_a_fragment_than_its_length_is_worth_or_a_seek() {
        use DiskKind::{Rotational, SolidState, Thin, Virtual};
        for kind in [Thin, SolidState, Virtual, Rotational].map(DiskPolicy::of) {
            assert!(kind.worth() <= kind.whole && kind.worth() <= DEAREST, "{kind:?}");
        }
        assert_eq!(DiskPolicy::of(Rotational).worth(), DEAREST);
        assert_eq!(DiskPolicy::of(Thin).worth(), DiskPolicy::of(Thin).whole);
    }

    #[test]
    fn several_disks_are_treated_as_the_most_sensitive_of_them() {
        let both = DiskPolicy::of_all([DiskKind::SolidState, DiskKind::Rotational]);
        assert_eq!(both, DiskPolicy::of(DiskKind::Rotational));
        assert_eq!(DiskPolicy::of_all([]), DiskPolicy::of(DiskKind::Rotational));
        assert_ne!(DiskPolicy::of(DiskKind::SolidState), DiskPolicy::of(DiskKind::Rotational));
    }
}
