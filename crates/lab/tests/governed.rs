//! Work that gives way asks little of a disk at a time: whoever comes waits for no more than that.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use anyhow::Result;
use longrun_governor::{Arrivals, DiskKind, Governor, Pace, SYNC};
use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, longrun_binary, tool};
use longrun_layout::Bytes;
use longrun_sys::AlignedBuffer;
use longrun_sys::{DeviceNumber, OFlags};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

const SIZE: Bytes = Bytes(512 << 20);
/// One of ours, and what the kernel reads ahead for whoever looks at the device or at directories. A chunk is made of 128.
const FEW: u64 = 14;

/// Two files that grow past the page cache, by turns, in 8 KiB; one of them goes again.
fn write_in_pieces(file: &Path) -> Result<()> {
    let other = file.with_extension("other");
    let open = |path: &Path| {
        let flags = OFlags::DIRECT.bits().cast_signed();
        OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)
    };
    let (one, two) = (open(file)?, open(&other)?);
    let mut buffer = AlignedBuffer::new(8192);
    for n in 0..500_u64 {
        buffer.prefix(8192).fill(n as u8);
        one.write_all_at(buffer.prefix(8192), n * 8192)?;
        two.write_all_at(buffer.prefix(8192), n * 8192)?;
    }
    Ok(fs::remove_file(other)?)
}

/// Mends a file in 500 pieces on such a disk; how many reads were under way at once, at most.
fn most_reads_at_once(model: &str, kind: FileSystemKind, pace: &str) -> u64 {
    let disk = Arc::new(ModelledDisk::start(DiskModel::by_name(model).unwrap(), 1, &[SIZE]).unwrap());
    let longrun = longrun_binary().unwrap();
    let longrun = longrun.to_str().unwrap();
    let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(kind, SIZE.0 >> 20)).unwrap();
    let file = volume.mount_point().join("file");
    let before = disk
        .without_model(|| {
            if kind == FileSystemKind::Ext4 {
                let make = ["fragment".as_ref(), file.as_os_str(), "--size".as_ref(), "4M".as_ref()];
                tool::run(longrun, make.into_iter().chain(["--fragments".as_ref(), "500".as_ref()]))?;
            } else {
                write_in_pieces(&file)?;
            }
            let before = dump(&volume.mount_point())?;
            volume.remount()?;
            Ok(before)
        })
        .unwrap();
    let optimize = ["optimize".as_ref(), file.as_os_str(), "--json".as_ref(), "--pace".as_ref(), pace.as_ref()];
    let told: Value = serde_json::from_str(&tool::run(longrun, optimize).unwrap()).unwrap();
    assert!(told["before"]["excess_fragments"].as_u64() > Some(300), "{kind:?}: {told}");
    assert!(told["after"]["excess_fragments"].as_u64() < Some(10), "{kind:?}: {told}");
    let most = disk.statistics().unwrap().most_reads_at_once;
    disk.without_model(|| compare(&before, &dump(&volume.mount_point())?)).unwrap();
    volume.check().unwrap();
    most
}

#[test]
fn loop_a_file_in_pieces_is_read_a_few_at_a_time_unless_in_haste_on_a_disk_without_an_arm() {
    for kind in [FileSystemKind::Ext4, FileSystemKind::Xfs] {
        for pace in ["invisible", "fast"] {
            let most = most_reads_at_once("hdd", kind, pace);
            assert!(most <= FEW, "{kind:?}, {pace}: {most} at once");
        }
        let most = most_reads_at_once("cloud", kind, "fast");
        assert!(most > FEW, "{kind:?}: {most} at once in haste, which shows that the count means something");
    }
}

#[test]
fn loop_a_disk_that_becomes_another_one_is_worked_on_as_that() {
    let disk = ModelledDisk::start(DiskModel::by_name("cloud").unwrap(), 1, &[SIZE]).unwrap();
    let number = DeviceNumber::from_stat(fs::metadata(disk.device(0).unwrap()).unwrap().rdev());
    let mut governor = Governor::new(Some(number), Pace::Invisible);
    let hidden = governor.limits().unwrap();
    assert!(governor.loads().latency.is_none() && hidden.pieces > 1, "{hidden:?}");
    governor.look_below();
    assert_eq!(governor.limits(), Some(hidden), "nothing has changed");
    fs::write(format!("/sys/dev/block/{number}/queue/rotational"), "1").unwrap();
    assert_eq!(governor.limits(), Some(hidden), "it is not looked all the time");
    governor.look_below();
    assert_eq!(governor.loads().disks.unwrap().kinds, [DiskKind::Rotational]);
    assert!(governor.limits().unwrap().quiet > hidden.quiet);
}

#[test]
fn loop_how_long_others_wait_for_durability_on_ext4_is_told() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(256)).unwrap();
    let number = DeviceNumber::from_stat(fs::metadata(volume.device()).unwrap().rdev());
    let arrivals = Arrivals::watch(&[number]).unwrap();
    let durable = |count: u32| {
        for number in 0..count {
            let path = volume.mount_point().join(number.to_string());
            fs::write(&path, "x").unwrap();
            tool::run("sync", [path.as_os_str()]).unwrap();
        }
        let completed = arrivals.asked(number).unwrap().completed;
        completed[SYNC].alone.requests + completed[SYNC].after.requests
    };
    assert_eq!(durable(5), 5);
    // What this process itself waits for is its own affair.
    File::open(volume.mount_point().join("0")).unwrap().sync_all().unwrap();
    assert_eq!(durable(2), 7);
}
