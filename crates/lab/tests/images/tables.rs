//! Partition tables as the usual tools make them.

use crate::tools::{Loop, MIB, run, scratch};
use longrun_image::{Access, Disk, FileDisk, MemoryDisk, read_partitions};
use longrun_layout::Bytes;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The partitions of a file or device by sfdisk: number, start, length.
fn by_sfdisk(path: &Path, sector: u64) -> Vec<(u32, u64, u64)> {
    let table: serde_json::Value =
        serde_json::from_str(&run("sfdisk", [OsStr::new("--json"), path.as_os_str()])).unwrap();
    let name = path.to_str().unwrap();
    let partitions = table["partitiontable"]["partitions"].as_array().unwrap();
    // An extended partition holds others, and no volume.
    let partitions = partitions.iter().filter(|one| one["type"] != "5" && one["type"] != "f");
    let partition = |one: &serde_json::Value| {
        let number = one["node"].as_str().unwrap().strip_prefix(name).unwrap().trim_start_matches('p').parse().unwrap();
        (number, one["start"].as_u64().unwrap() * sector, one["size"].as_u64().unwrap() * sector)
    };
    partitions.map(partition).collect()
}

/// Has sfdisk make a table.
pub fn partition(path: &Path, kind: &str, script: &str) {
    let mut child = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel", "--label", kind])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

fn empty_image(scratch: &TempDir) -> PathBuf {
    let path = scratch.path().join("image");
    fs::File::create_new(&path).unwrap().set_len(20 * MIB).unwrap();
    path
}

fn by_us(disk: &dyn Disk) -> Vec<(u32, u64, u64)> {
    let found = read_partitions(disk).unwrap();
    found.iter().map(|one| (one.number, one.start.0, one.length.0)).collect()
}

#[test]
fn partition_tables_of_sfdisk_and_sgdisk_are_read_as_these_read_them() {
    for (kind, script) in [
        ("dos", "size=2M\nsize=1M,type=7\n"),
        ("dos", "size=1M\nsize=12M,type=5\nsize=1M\nsize=1M,type=82\nsize=2M\nsize=1M\n"),
        ("dos", "start=4096,size=8M,type=f\nstart=30000,size=2048\nstart=6144,size=2048\nsize=4096\n"),
        ("gpt", "size=1M,name=first\nsize=2M,type=E6D6D379-F507-44C2-A23C-238F2A3DF928\nsize=+\n"),
    ] {
        let scratch = scratch();
        let path = empty_image(&scratch);
        partition(&path, kind, script);
        let expected = by_sfdisk(&path, 512);
        assert!(expected.len() >= 2);
        assert_eq!(by_us(&FileDisk::open(&path, Access::Read).unwrap()), expected, "{script}");
        if kind == "gpt" {
            let mut content = fs::read(&path).unwrap();
            content[532] ^= 1;
            assert_eq!(by_us(&MemoryDisk::new(content)), expected, "by the backup of {script}");
        }
    }
    let scratch = scratch();
    let path = empty_image(&scratch);
    let arguments = ["-n", "3:0:+4M", "-c", "3:Daten und \u{4e2d}", "-t", "3:0700", "-n", "1:0:+1M", "-h", "3"];
    run("sgdisk", arguments.map(OsStr::new).into_iter().chain([path.as_os_str()]));
    let disk = FileDisk::open(&path, Access::Read).unwrap();
    assert_eq!(by_us(&disk), by_sfdisk(&path, 512));
    let third = read_partitions(&disk).unwrap().pop().unwrap();
    assert_eq!((third.name.as_str(), third.kind.to_string().as_str()), ("Daten und \u{4e2d}", "Microsoft basic data"));
}

#[test]
fn loop_tables_of_disks_with_large_sectors_are_read() {
    for (kind, script) in
        [("dos", "size=1M\nsize=12M,type=5\nsize=1M\nsize=2M\n"), ("gpt", "size=1M\nsize=2M,name=second\n")]
    {
        let scratch = scratch();
        let path = empty_image(&scratch);
        let device = Loop::with(&path, &["--sector-size", "4096"]);
        partition(&device.0, kind, script);
        let expected = by_sfdisk(&device.0, 4096);
        let disk = FileDisk::open(&device.0, Access::Read).unwrap();
        assert_eq!(disk.sector_size(), Bytes(4096));
        assert_eq!(by_us(&disk), expected, "{script}");
        if kind == "gpt" {
            // An image of the disk has lost the size of its sectors.
            let mut content = vec![0; 20 * MIB as usize];
            disk.read(Bytes(0), &mut content).unwrap();
            assert_eq!(by_us(&MemoryDisk::new(content)), expected);
        }
    }
}

#[test]
fn volumes_of_the_usual_tools_are_no_partition_tables() {
    for maker in [&["mkntfs", "-qFQ"][..], &["mkfs.ext4", "-qF"], &["mkfs.xfs", "-qf"], &["mkfs.btrfs", "-qf"]] {
        let scratch = scratch();
        let path = empty_image(&scratch);
        fs::File::options().write(true).open(&path).unwrap().set_len(320 * MIB).unwrap();
        // What was there before may shine through.
        run("sgdisk", [OsStr::new("-n"), OsStr::new("1:0:+4M"), path.as_os_str()]);
        run("sgdisk", [OsStr::new("--zap-all"), path.as_os_str()]);
        run(maker[0], [OsStr::new(maker[1]), path.as_os_str()]);
        assert_eq!(by_us(&FileDisk::open(&path, Access::Read).unwrap()), [], "{maker:?}");
    }
}
