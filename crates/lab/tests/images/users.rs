//! Everybody who may use an image or a device besides us.

use crate::tools::{Loop, MIB, Mounted, create, output, run, scratch, virtual_machine, wait_for};
use longrun_image::{Access, Disk, FileDisk, ImageError, open_image};
use longrun_layout::Bytes;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

#[test]
fn loop_an_image_that_a_virtual_machine_has_is_refused_and_ours_is_refused_to_it() {
    for driver in ["raw", "qcow2"] {
        let scratch = scratch();
        let path = scratch.path().join("image");
        create(&path, driver, 4);
        for writes in [true, false] {
            let machine = virtual_machine(&path, driver, writes, &scratch);
            let refused = open_image(&path, Access::Write).map(drop).unwrap_err();
            assert!(matches!(refused, ImageError::InUse { .. }), "{refused}");
            let who = format!("qemu-storage-da (process {})", machine.0.id());
            assert!(refused.to_string().contains(&who), "{refused}");
            let read = open_image(&path, Access::Read).unwrap();
            assert_eq!(read.in_use.map(|user| user.contains(&who)), writes.then_some(true), "{driver}");
            let mut found = [1; 10];
            read.disk.read(Bytes(0), &mut found).unwrap();
            assert_eq!(found, [0; 10]);
            drop(read.disk);
            drop(machine);
        }
        // Reading hinders no virtual machine.
        let read = open_image(&path, Access::Read).unwrap();
        drop(virtual_machine(&path, driver, true, &scratch));
        drop(read);
        let opened = open_image(&path, Access::Write).unwrap();
        for arguments in [&["read 0 512"][..], &["write 0 512"], &["-r", "read 0 512"]] {
            let (last, first) = arguments.split_last().unwrap();
            let mut command = Command::new("qemu-io");
            let command = command.args(["-f", driver]).args(first.iter().filter(|a| **a == "-r"));
            let refused = command.args(["-c", last]).arg(&path).stdin(Stdio::null()).output().unwrap();
            let message = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && message.contains("lock"), "{driver} {arguments:?}: {message}");
        }
        let again = open_image(&path, Access::Write).map(drop).unwrap_err();
        assert!(matches!(again, ImageError::InUse { .. }), "{again}");
        drop(opened);
        drop(open_image(&path, Access::Write).unwrap());
    }
}

#[test]
fn loop_an_image_below_a_loop_device_is_refused_under_every_name() {
    let scratch = scratch();
    let (path, other) = (scratch.path().join("image"), scratch.path().join("other"));
    create(&path, "raw", 4);
    fs::hard_link(&path, &other).unwrap();
    let device = Loop::on(&other);
    // The name that the loop device was given is gone; the file is not.
    fs::remove_file(&other).unwrap();
    let refused = FileDisk::open(&path, Access::Write).map(drop).unwrap_err().to_string();
    assert!(refused.contains(&format!("{} shows it", device.0.display())), "{refused}");
    let read = FileDisk::open(&path, Access::Read).unwrap();
    assert!(read.in_use().unwrap().contains(device.0.to_str().unwrap()));
    drop(device);
    wait_for("the end of a loop device", || read.in_use().is_none());
    FileDisk::open(&path, Access::Write).unwrap();
}

#[test]
fn loop_a_device_is_opened_for_writing_only_when_nothing_uses_it() {
    let scratch = scratch();
    let path = scratch.path().join("image");
    create(&path, "raw", 32);
    let device = Loop::on(&path);
    run("mkfs.ext4", [OsStr::new("-q"), device.0.as_os_str()]);
    let point = scratch.path().join("mount");
    fs::create_dir(&point).unwrap();
    run("mount", [&device.0, &point]);
    let mounted = Mounted(point.clone());
    let refused = FileDisk::open(&device.0, Access::Write).map(drop).unwrap_err().to_string();
    assert!(refused.contains(&format!("it is mounted at {}", point.display())), "{refused}");
    assert!(FileDisk::open(&device.0, Access::Read).unwrap().in_use().unwrap().contains(point.to_str().unwrap()));
    drop(mounted);

    let disk = FileDisk::open(&device.0, Access::Write).unwrap();
    assert_eq!((disk.length(), disk.sector_size()), (Bytes(32 * MIB), Bytes(512)));
    assert!(!output("mount", [&device.0, &point]).status.success(), "it was mounted while we had it");
    let again = FileDisk::open(&device.0, Access::Write).map(drop).unwrap_err();
    assert!(matches!(again, ImageError::InUse { .. }), "{again}");
}

#[test]
fn loop_a_device_discards_whole_sectors_and_zeroes_any_bytes() {
    let scratch = scratch();
    let path = scratch.path().join("image");
    create(&path, "raw", 32);
    let device = Loop::on(&path);
    let disk = FileDisk::open(&device.0, Access::Write).unwrap();
    let used = || fs::metadata(&path).unwrap().blocks() * 512;
    disk.write(Bytes(8 * MIB), &vec![1; 8 * MIB as usize]).unwrap();
    disk.flush().unwrap();
    let before = used();
    disk.discard(Bytes(8 * MIB + 1), Bytes(4 * MIB)).unwrap();
    disk.flush().unwrap();
    assert!(before - used() >= 4 * MIB - 8192, "{before} {}", used());
    disk.zero(Bytes(14 * MIB + 1), Bytes(2)).unwrap();
    let mut found = [7; 4];
    disk.read(Bytes(14 * MIB), &mut found).unwrap();
    assert_eq!(found, [1, 0, 0, 1]);
    disk.read(Bytes(8 * MIB), &mut found[..1]).unwrap();
    assert_eq!(found[0], 1, "half a sector was discarded");
}

#[test]
fn loop_a_device_that_a_virtual_machine_has_is_refused() {
    let scratch = scratch();
    let path = scratch.path().join("image");
    create(&path, "raw", 4);
    let device = Loop::on(&path);
    let machine = virtual_machine(&device.0, "raw", true, &scratch);
    let refused = FileDisk::open(&device.0, Access::Write).map(drop).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {}", machine.0.id())), "{refused}");
    drop(machine);
    FileDisk::open(&device.0, Access::Write).unwrap();
}

#[test]
fn loop_an_image_that_ntfs_3g_has_mounted_is_refused() {
    let scratch = scratch();
    let (path, point) = (scratch.path().join("image"), scratch.path().join("mount"));
    create(&path, "raw", 16);
    run("mkntfs", [OsStr::new("-qFQ"), path.as_os_str()]);
    fs::create_dir(&point).unwrap();
    run("ntfs-3g", [&path, &point]);
    let mounted = Mounted(point.clone());
    let refused = FileDisk::open(&path, Access::Write).map(drop).unwrap_err().to_string();
    assert!(refused.contains("ntfs-3g (process"), "{refused}");
    drop(mounted);
    wait_for("the end of ntfs-3g", || FileDisk::open(&path, Access::Write).is_ok());
    let disk = FileDisk::open(&path, Access::Write).unwrap();
    let mounted = output("ntfs-3g", [&path, &point]);
    let _mounted = mounted.status.success().then(|| Mounted(point));
    assert!(!mounted.status.success(), "ntfs-3g mounted an image that we had");
    drop(disk);
}
