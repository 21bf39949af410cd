//! What the tests of the ledger have in common.
#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses its part, and may panic")]

use jiff::Timestamp;
use longrun_ledger::{Account, Batch, Counter, Gauge, Ledger, Limits, Period, Query, VolumeIdentity};
use std::path::Path;
use std::process::Command;

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn volume(uuid: &str, point: &str) -> VolumeIdentity {
    VolumeIdentity {
        uuid: uuid.into(),
        label: Some(format!("label of {uuid}")),
        point: point.into(),
        device: "/dev/sdb1".into(),
        filesystem: "xfs".into(),
    }
}

pub fn account() -> Account {
    Account::volume("a-uuid")
}

pub fn gauge(excess: u64) -> Gauge {
    Gauge {
        files: Some(1000),
        fragmented_files: Some(excess / 3),
        excess_fragments: Some(excess),
        free_pieces: Some(200 + excess),
        largest_free_bytes: Some(64 << 20),
        free_bytes: Some(4 << 30),
        used_bytes: Some(6 << 30),
        floor_pieces: Some(2),
    }
}

pub fn counted(counter: Counter, amount: u64, at: Timestamp) -> Batch {
    let mut batch = Batch::default();
    batch.count(&account(), counter, amount, at);
    batch
}

pub fn open(path: &Path, now: &str) -> Ledger {
    let opened = Ledger::open(path, Limits::default(), at(now)).unwrap();
    assert_eq!(opened.note, None);
    opened.ledger
}

pub fn ever() -> Query {
    let period = Period { from: at("1971-01-01T00:00:00Z"), to: at("2200-01-01T00:00:00Z") };
    Query { period, volume: None, events: 100 }
}

/// A file system in memory, gone when dropped.
pub struct Tmpfs {
    directory: tempfile::TempDir,
}

impl Tmpfs {
    pub fn of_kibibytes(size: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tmpfs = Self { directory };
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}k"), "tmpfs"]).arg(tmpfs.path()));
        tmpfs
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn remount(&self, how: &str) {
        run(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.path()));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A test that fails may still have the database open.
        _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// The smallest btrfs in a file, gone when dropped.
pub struct Btrfs {
    directory: tempfile::TempDir,
}

impl Btrfs {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
        std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        run(Command::new("mkfs.btrfs").env("PATH", search).arg("-q").arg(&image));
        let volume = Self { directory };
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point));
        volume
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("mnt")
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // The loop device goes with the mount.
        _ = Command::new("umount").arg(self.path()).status();
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status} (this test needs root)");
}
