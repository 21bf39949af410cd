//! What kind of disk it is, and what follows for work on it.
//!
//! Owns the signs by which the kinds are told apart. What follows is pure.

use crate::Device;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What kind of disk it is, as far as that decides how to work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// It has a head that moves.
    Rotational,
    /// It has none.
    SolidState,
    /// What it is made of is hidden: a hypervisor, a cloud or a storage array keeps it, or it is a file.
    Virtual,
}

impl fmt::Display for DiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rotational => "rotational disk",
            Self::SolidState => "solid-state disk",
            Self::Virtual => "virtual disk",
        })
    }
}

/// Parts of what virtual disks call themselves.
const VIRTUAL_NAMES: &[&str] =
    &["qemu", "virtual", "vmware", "msft", "google", "persistentdisk", "elastic block store", "vbox", "lio-org"];

impl DiskKind {
    /// The kind of a device now: what is behind a number can change.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        let directory = Path::new("/sys/dev/block").join(device.number.to_string());
        Self::in_directory(&directory, &device.name)
    }

    fn in_directory(directory: &Path, name: &str) -> Self {
        let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default().to_lowercase();
        let called = format!("{} {}", text("device/vendor"), text("device/model"));
        // Such drivers say "rotational" of everything unless they are told otherwise.
        let by_driver =
            ["vd", "xvd", "loop", "nbd", "rbd", "drbd", "ublk"].iter().any(|driver| name.starts_with(driver));
        if by_driver || VIRTUAL_NAMES.iter().any(|part| called.contains(part)) {
            Self::Virtual
        } else if text("queue/rotational").trim() == "1" {
            Self::Rotational
        } else {
            Self::SolidState
        }
    }
}

/// What follows from the kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPolicy {
    /// The most to move without asking again.
    pub chunk: Bytes,
    /// How long it must be quiet before it counts as unused.
    pub quiet: Duration,
}

impl DiskPolicy {
    /// For a kind of disk.
    #[must_use]
    pub fn of(kind: DiskKind) -> Self {
        match kind {
            // A chunk takes about as long as two seeks, and nobody waits longer than that for us.
            DiskKind::Rotational | DiskKind::Virtual => {
                Self { chunk: Bytes(1 << 20), quiet: Duration::from_millis(100) }
            }
            DiskKind::SolidState => Self { chunk: Bytes(2 << 20), quiet: Duration::from_millis(50) },
        }
    }

    /// For several disks together: what suits the most sensitive. Of unknown disks the worst is assumed.
    #[must_use]
    pub fn of_all(kinds: impl IntoIterator<Item = DiskKind>) -> Self {
        let worst = kinds
            .into_iter()
            .map(Self::of)
            .reduce(|a, b| Self { chunk: a.chunk.min(b.chunk), quiet: a.quiet.max(b.quiet) });
        worst.unwrap_or_else(|| Self::of(DiskKind::Rotational))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, files: &[(&str, &str)]) -> DiskKind {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        DiskKind::in_directory(root.path(), name)
    }

    #[test]
    fn what_a_disk_calls_itself_comes_before_what_its_driver_says() {
        let turns = ("queue/rotational", "1\n");
        assert_eq!(kind("sda", &[turns, ("device/vendor", "ATA     \n")]), DiskKind::Rotational);
        assert_eq!(kind("sda", &[("queue/rotational", "0\n")]), DiskKind::SolidState);
        assert_eq!(kind("vda", &[turns]), DiskKind::Virtual);
        assert_eq!(kind("sda", &[turns, ("device/vendor", "VMware  \n")]), DiskKind::Virtual);
        let ebs = [("queue/rotational", "0\n"), ("device/model", "Amazon Elastic Block Store              \n")];
        assert_eq!(kind("nvme0n1", &ebs), DiskKind::Virtual);
    }

    #[test]
    fn several_disks_are_treated_as_the_most_sensitive_of_them() {
        let both = DiskPolicy::of_all([DiskKind::SolidState, DiskKind::Rotational]);
        assert_eq!(both, DiskPolicy::of(DiskKind::Rotational));
        assert_eq!(DiskPolicy::of_all([]), DiskPolicy::of(DiskKind::Rotational));
        assert_ne!(DiskPolicy::of(DiskKind::SolidState), DiskPolicy::of(DiskKind::Rotational));
    }
}
