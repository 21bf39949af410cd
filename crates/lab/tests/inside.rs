//! XFS and btrfs on a partition of a disk image, mounted where only one process looks. The checkers of the file systems, the
//! mount table and losetup judge, and the hash of the image.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[path = "inside/bench.rs"]
mod bench;

use bench::{Child, Image, can_be_written, close, devices_on, dump_of, optimize, wait_for};
use longrun_ageing::Recipe;
use longrun_engine::VolumeError;
use longrun_image::{Access, ImageError, open_image};
use longrun_lab::oracle::{compare, filefrag};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::Bytes;
use longrun_sys::LoopDevice;
use longrun_volume::disk_image::DiskImage;
use longrun_volume::target::Subject;
use longrun_volume::{Target, survey};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// What is mounted; ext4 is worked on as it lies there.
const KINDS: [FileSystemKind; 2] = [FileSystemKind::Xfs, FileSystemKind::Btrfs];

/// As small as the makers allow, nearly.
fn spec(kind: FileSystemKind) -> VolumeSpec {
    match kind {
        FileSystemKind::Btrfs => VolumeSpec::btrfs(256),
        _ => VolumeSpec::xfs(384),
    }
}

/// A volume with fragmented files, unmounted.
fn fragmented(kind: FileSystemKind) -> (LoopVolume, bench::Files) {
    if kind == FileSystemKind::Xfs {
        let (volume, _) = LoopVolume::aged(&spec(kind), Recipe::Churn, 9).unwrap();
        let files = dump_of(&volume.mount_point());
        volume.unmount().unwrap();
        return (volume, files);
    }
    let volume = LoopVolume::create(&spec(kind)).unwrap();
    let directory = volume.mount_point().join("directory");
    fs::create_dir(&directory).unwrap();
    for number in 0..8 {
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 1000 * (number + 1)) as u8).collect();
        let path = directory.join(number.to_string());
        write_in_pieces(kind, &path, &content, Bytes(16 << 10), u64::from(number)).unwrap();
    }
    fs::hard_link(directory.join("0"), volume.mount_point().join("name")).unwrap();
    let files = dump_of(&volume.mount_point());
    volume.unmount().unwrap();
    (volume, files)
}

/// An empty one, unmounted.
fn small() -> LoopVolume {
    let volume = LoopVolume::create(&spec(FileSystemKind::Xfs)).unwrap();
    volume.unmount().unwrap();
    volume
}

#[test]
fn loop_a_volume_in_an_image_is_read_and_no_byte_of_the_image_changes() {
    for kind in KINDS {
        let (volume, files) = fragmented(kind);
        let image = Image::with(&volume);
        drop(volume);
        let before = image.hash();
        let mount = image.mount(Access::Read).unwrap();
        assert_eq!(image.mounts(), [mount.point().to_owned()]);
        let target = Target::resolve(mount.point()).unwrap();
        assert_eq!((target.subject, target.device.as_path()), (Subject::Volume, mount.device()), "{kind:?}");
        let read = survey(&target, &longrun_engine::NoProgress).unwrap();
        assert!(read.layout().files().count() >= 8, "{kind:?}");
        drop(read);
        compare(&files, &dump_of(mount.point())).unwrap();
        let refused = longrun_volume::open(&target).err().unwrap();
        assert!(matches!(refused, VolumeError::NotWritable { .. }), "{kind:?}: {refused}");
        assert!(fs::write(mount.point().join("new"), "x").is_err(), "{kind:?}");
        assert!(!can_be_written(mount.device()), "{kind:?}");
        // Beside another one: nobody is alone.
        let second = image.mount(Access::Read);
        assert_eq!(second.is_ok(), kind != FileSystemKind::Btrfs, "{kind:?}");
        drop(second);
        close(mount);
        image.nothing_is_left();
        assert!(image.hash() == before, "{kind:?}: the image changed");
    }
}

#[test]
fn loop_a_full_pass_over_a_volume_in_an_image_leaves_a_clean_one_with_the_same_files() {
    for kind in KINDS {
        let (volume, files) = fragmented(kind);
        let image = Image::with(&volume);
        drop(volume);
        let outside = image.outside();
        let mount = image.mount(Access::Write).unwrap();
        let target = Target::resolve(mount.point()).unwrap();
        let excess = filefrag(mount.point()).unwrap().excess;
        assert!(optimize(&target) > 0, "{kind:?}");
        let left = filefrag(mount.point()).unwrap().excess;
        assert!(excess > 200 && left * 5 <= excess, "{kind:?}: {excess} before, {left} after");
        close(mount);
        image.nothing_is_left();
        assert!(image.outside() == outside, "{kind:?}: what is not on the partition changed");
        image.check();
        let mount = image.mount(Access::Read).unwrap();
        compare(&files, &dump_of(mount.point())).unwrap();
    }
}

#[test]
fn loop_a_volume_whose_journal_has_to_be_replayed_is_refused_and_not_changed() {
    for kind in KINDS {
        let options = if kind == FileSystemKind::Xfs { "" } else { "commit=600" };
        let volume = LoopVolume::create(&spec(kind).mount(options)).unwrap();
        let file = File::create(volume.mount_point().join("file")).unwrap();
        // What is on the device after a synced write is what a power cut leaves. A btrfs has no log when a commit came after that write:
        // the first data needs one, and so does any process that syncs all volumes of the machine.
        let write_and_copy = |round: u64| {
            longrun_sys::sync_volume(&file).unwrap();
            file.write_all_at(&[7; 100_000], round * 100_000).unwrap();
            file.sync_all().unwrap();
            Image::with(&volume)
        };
        let image = (0..100).map(write_and_copy).find(Image::has_log).unwrap();
        drop((file, volume));
        let before = image.hash();
        for access in [Access::Read, Access::Write] {
            let refused = image.mount(access).unwrap_err().to_string();
            assert!(refused.contains("was not unmounted cleanly"), "{kind:?}: {refused}");
            assert!(refused.contains("has to be replayed"), "{kind:?}: {refused}");
        }
        image.nothing_is_left();
        assert!(image.hash() == before, "{kind:?}: the image changed");
    }
}

#[test]
fn loop_a_volume_that_was_stopped_as_by_a_power_cut_is_refused() {
    let volume = LoopVolume::create(&spec(FileSystemKind::Xfs)).unwrap();
    let root = File::open(volume.mount_point()).unwrap();
    fs::write(volume.mount_point().join("file"), "x").unwrap();
    longrun_sys::shutdown(&root, longrun_sys::Shutdown::LogFlushed).unwrap();
    drop(root);
    volume.unmount().unwrap();
    let image = Image::with(&volume);
    let refused = image.mount(Access::Write).unwrap_err().to_string();
    assert!(refused.contains("was not unmounted cleanly"), "{refused}");
}

#[test]
fn loop_of_two_copies_of_a_mounted_volume_a_btrfs_is_refused_and_an_xfs_is_optimized() {
    for kind in [FileSystemKind::Btrfs, FileSystemKind::Xfs] {
        let (volume, files) = fragmented(kind);
        let image = Image::with(&volume);
        volume.mount().unwrap();
        let before = image.hash();
        match image.mount(Access::Write) {
            Err(refused) => {
                let refused = refused.to_string();
                assert!(kind == FileSystemKind::Btrfs && refused.contains("the same UUID"), "{kind:?}: {refused}");
                assert!(image.hash() == before);
            }
            Ok(mount) => {
                assert_eq!(kind, FileSystemKind::Xfs);
                assert!(optimize(&Target::resolve(mount.point()).unwrap()) > 0);
                close(mount);
                image.check();
            }
        }
        compare(&files, &dump_of(&volume.mount_point())).unwrap();
        volume.check().unwrap();
        volume.unmount().unwrap();
        // And none is taken for the other one afterwards.
        let mount = image.mount(Access::Read).unwrap();
        compare(&files, &dump_of(mount.point())).unwrap();
        drop(mount);
        image.nothing_is_left();
    }
}

#[test]
fn loop_in_a_mount_namespace_nobody_else_sees_the_mount_and_it_ends_with_the_process() {
    for kind in KINDS {
        let (volume, files) = fragmented(kind);
        let image = Image::with(&volume);
        drop(volume);
        // Killed in the middle of a pass, and behind one.
        for work in ["begin", "optimize"] {
            let child = Child::start(&image, work, true);
            assert!(image.mounts().is_empty(), "{kind:?}: it is seen from outside");
            assert_eq!(devices_on(&image.path).len(), 1, "{kind:?}");
            if work == "optimize" {
                let refused = open_image(&image.path, Access::Write).err().unwrap();
                assert!(matches!(refused, ImageError::InUse { .. }), "{kind:?}: {refused}");
            }
            child.kill();
            wait_for("the end of the mount", || devices_on(&image.path).is_empty());
            image.check();
        }
        // The mount of another process is not needed for what it left to be removed.
        let mount = image.mount(Access::Read).unwrap();
        compare(&files, &dump_of(mount.point())).unwrap();
        drop(mount);
        image.nothing_is_left();
        image.check();
    }
}

#[test]
fn loop_without_a_mount_namespace_the_next_run_removes_what_a_killed_one_left() {
    let (volume, files) = fragmented(FileSystemKind::Xfs);
    let image = Image::with(&volume);
    drop(volume);
    let other = Image::with(&small());
    let child = Child::start(&image, "hold", false);
    assert_eq!(image.mounts().len(), 1);
    let beside = other.mount(Access::Read).unwrap();
    assert_eq!((image.mounts().len(), other.mounts().len()), (1, 1), "what is in use was taken away");
    child.kill();
    assert_eq!((image.mounts().len(), devices_on(&image.path).len()), (1, 1), "the test proves nothing");
    let second = other.mount(Access::Read).unwrap();
    wait_for("the end of the mount", || devices_on(&image.path).is_empty());
    assert_eq!(other.mounts().len(), 2);
    drop((beside, second));
    let mount = image.mount(Access::Read).unwrap();
    compare(&files, &dump_of(mount.point())).unwrap();
    drop(mount);
    image.nothing_is_left();
    image.check();
}

/// The owner of a directory exchanges the image between the look at its partitions and the mount.
#[test]
fn loop_the_open_image_is_mounted_though_another_has_its_name() {
    let volume = small();
    let (image, other) = (Image::with(&volume), Image::with(&volume));
    drop(volume);
    let before = other.hash();
    let disk = DiskImage::open(&image.path, Access::Write).unwrap();
    let moved = image.path.with_extension("moved");
    fs::rename(&image.path, &moved).unwrap();
    std::os::unix::fs::symlink(&other.path, &image.path).unwrap();
    let number = disk.volumes.iter().position(|volume| disk.mounts(volume)).unwrap();
    let opened = disk.target(&disk.volumes[number]).unwrap();
    let point = opened.target.mount.as_ref().unwrap().point.clone();
    fs::write(point.join("file"), "content").unwrap();
    // Nobody else can use it as long as it is mounted.
    drop(disk);
    let refused = open_image(&moved, Access::Write).map(drop).unwrap_err();
    assert!(matches!(refused, ImageError::InUse { .. }), "{refused}");
    opened.close().unwrap();
    assert!(other.hash() == before, "the image was changed that has the name");
    fs::remove_file(&image.path).unwrap();
    fs::rename(&moved, &image.path).unwrap();
    let mount = image.mount(Access::Read).unwrap();
    assert_eq!(fs::read_to_string(mount.point().join("file")).unwrap(), "content");
    close(mount);
    image.check();
}

#[test]
fn loop_a_mount_that_somebody_uses_is_out_of_sight_at_once_and_ends_with_its_user() {
    let image = Image::with(&small());
    let mount = image.mount(Access::Write).unwrap();
    let user = File::create(mount.point().join("file")).unwrap();
    let busy = mount.close().unwrap_err().to_string();
    assert!(busy.contains("it goes as soon as the program ends that uses it"), "{busy}");
    assert!(image.mounts().is_empty());
    assert_eq!(devices_on(&image.path).len(), 1);
    drop(user);
    wait_for("the end of the mount", || devices_on(&image.path).is_empty());
    image.nothing_is_left();
    image.check();
}

#[test]
fn loop_a_loop_device_is_the_range_it_was_made_of_and_ends_when_it_is_dropped() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..64 * 512).map(|at| (at / 512) as u8).collect();
    fs::write(file.path(), &content).unwrap();
    let open = File::options().read(true).write(true).open(file.path()).unwrap();
    let attach = |start: u64, sectors: u64, read_only| {
        LoopDevice::attach(&open, Bytes(start * 512), Bytes(sectors * 512), read_only)
    };
    let device = attach(8, 16, true).unwrap();
    assert_eq!(fs::read(device.path()).unwrap(), content[8 * 512..24 * 512]);
    assert!(!can_be_written(device.path()));
    let second = attach(40, 24, false).unwrap();
    assert_ne!(device.path(), second.path());
    second.file().write_all_at(&[0xee; 512], 0).unwrap();
    second.file().sync_all().unwrap();
    let mut expected = content.clone();
    expected[40 * 512..41 * 512].fill(0xee);
    assert!(fs::read(file.path()).unwrap() == expected);
    assert_eq!(attach(41, 24, true).unwrap_err(), longrun_sys::Errno::INVAL, "it reaches beyond the file");
    // Whoever looks at all block devices at this moment has the refused one open, and it ends with its last user.
    wait_for("the end of the refused device", || devices_on(file.path()).len() == 2);
    // Many at the same time: each gets one of its own.
    let made = std::thread::scope(|scope| {
        let attach = &attach;
        let started: Vec<_> = (0..8).map(|_| scope.spawn(move || attach(0, 64, true).unwrap())).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(devices_on(file.path()).len(), 10);
    drop((device, second, made));
    wait_for("the end of the devices", || devices_on(file.path()).is_empty());
}

/// Not a test of its own: what [`Child`] runs in another process.
#[test]
fn loop_child_that_is_killed() {
    bench::be_the_child();
}
