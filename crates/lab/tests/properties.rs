//! Story: an administrator compares everything that a file can have before and after a full pass. Content, holes,
//! preallocated space, times to the nanosecond, owners, modes, links, attributes, ACLs, capabilities and flags must be the
//! same.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_ageing::{Recipe, fragment_file};
use longrun_lab::oracle::{dump, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec};
use rustix::fs::{FallocateFlags, IFlags, Timespec, Timestamps, XattrFlags, fallocate, setxattr};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A file of 2 MiB in 16 pieces.
fn fragmented(path: &Path, number: u64) -> File {
    let mut content = vec![0; 2 << 20];
    longrun_ageing::fill_block(&mut content, 99, number, 0);
    fs::write(path, &content).unwrap();
    fragment_file(path, 16).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// One file for each property, all fragmented.
fn make_everything(directory: &Path) {
    let path = |name: &str| directory.join(name);
    let file = fragmented(&path("holes"), 1);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 64 << 10, 128 << 10).unwrap();
    file.set_len(50 * MIB).unwrap();
    file.write_all_at(b"far away", 40 * MIB).unwrap();

    let file = fragmented(&path("preallocated inside"), 2);
    fallocate(&file, FallocateFlags::empty(), 2 * MIB, MIB).unwrap();
    let file = fragmented(&path("preallocated behind the end"), 3);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 2 * MIB, MIB).unwrap();

    fragmented(&path("linked"), 4);
    fs::hard_link(path("linked"), path("linked too")).unwrap();
    symlink("linked", path("symbolic")).unwrap();
    symlink("x".repeat(200), path("long symbolic")).unwrap();

    fragmented(&path("owned"), 5);
    chown(path("owned"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(path("owned"), fs::Permissions::from_mode(0o6751)).unwrap();

    fragmented(&path("attributes"), 6);
    setxattr(path("attributes"), "user.large", &vec![7; 2000], XattrFlags::empty()).unwrap();
    setxattr(path("attributes"), "trusted.note", b"for root", XattrFlags::empty()).unwrap();
    // Version 2, CAP_NET_BIND_SERVICE permitted and effective, as setcap writes it.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(path("attributes"), "security.capability", &capability, XattrFlags::empty()).unwrap();
    // Version 2: owner rw, user 1000 r, group r, mask r, others none.
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 6, u32::MAX), (0x02, 4, 1000), (0x04, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    setxattr(path("attributes"), "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();

    let file = fragmented(&path("old"), 7);
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
    rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time }).unwrap();

    for (number, name, flag) in [(8, "immutable", IFlags::IMMUTABLE), (9, "append only", IFlags::APPEND)] {
        let file = fragmented(&path(name), number);
        rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file).unwrap() | flag).unwrap();
    }
    let file = fragmented(&path("no dump, sync"), 10);
    let flags = rustix::fs::ioctl_getflags(&file).unwrap() | IFlags::NODUMP | IFlags::SYNC;
    rustix::fs::ioctl_setflags(&file, flags).unwrap();

    fragmented(&path("name with\n\u{1b}[31m and \u{7} in it"), 11);
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("tiny"), b"x").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(path("sub")).unwrap();
}

#[test]
fn loop_everything_that_a_file_has_is_the_same_after_each_kind_of_pass() {
    for mode in ["full", "efficient", "files"] {
        let spec = VolumeSpec::ext4(512).mkfs(&["-b", "4096"]);
        let (volume, _) = LoopVolume::aged(&spec, Recipe::Server, 5).unwrap();
        let directory = volume.mount_point().join("everything");
        fs::create_dir(&directory).unwrap();
        make_everything(&directory);
        volume.remount().unwrap();
        let before = dump(&volume.mount_point()).unwrap();
        let optimizer = common::longrun(mode);
        let finished = optimizer.run(&volume.mount_point(), Duration::from_secs(120)).unwrap();
        optimizer.compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        volume.remount().unwrap();
        optimizer.compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        volume.check().unwrap();

        // A file that stayed where it was proves nothing about its property; but files mode finds no place for some.
        let after = filefrag(&volume.mount_point()).unwrap();
        for (path, fragments) in after.worst.iter().filter(|(path, _)| path.starts_with(&directory)) {
            let immovable = path.ends_with("immutable") || path.ends_with("append only");
            assert!(
                immovable || mode == "files" || *fragments < 16,
                "{mode}: {} was not moved: {}",
                path.display(),
                finished.stdout
            );
        }
    }
}
