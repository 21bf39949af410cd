//! The laboratory itself, on real loop volumes: what the other tests build on.

use longrun_ageing::{Recipe, age, fragment_file};
use longrun_lab::oracle::{bytes_beyond_end, compare, dump, e2freefrag, excess_of, filefrag, free_space};
use longrun_lab::{FileSystemKind, LoopVolume, Medium, VolumeSpec, tool};
use longrun_layout::Bytes;
use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn loop_an_aged_volume_is_fragmented_and_sound_and_its_copy_is_the_same() {
    let (volume, summary) = LoopVolume::aged(&VolumeSpec::ext4(256), Recipe::Aged, 42).unwrap();
    assert!(summary.files > 50, "{summary:?}");
    let before = dump(&volume.mount_point()).unwrap();
    let fragments = filefrag(&volume.mount_point()).unwrap();
    assert!(fragments.excess > 20, "{fragments:?}");
    volume.check().unwrap();
    let free = e2freefrag(volume.device()).unwrap();
    assert!(free.pieces > 20, "{free:?}");

    let copy = volume.copy("").unwrap();
    compare(&before, &dump(&copy.mount_point()).unwrap()).unwrap();
    assert_eq!(e2freefrag(copy.device()).unwrap(), free);
    assert_eq!(filefrag(&copy.mount_point()).unwrap().excess, fragments.excess);
}

/// Programs in mount name spaces of their own keep copies of all mounts that were there when they began.
#[test]
fn loop_a_checker_sees_a_file_system_only_when_it_has_left_its_device() {
    let volume = LoopVolume::create(&VolumeSpec::xfs(320)).unwrap();
    for number in 0..200 {
        fs::write(volume.mount_point().join(format!("file{number}")), [1; 100_000]).unwrap();
    }
    let sync = || tool::run("sync", ["--file-system".as_ref(), volume.mount_point().as_os_str()]).unwrap();
    // Now the log has what is not in its place.
    sync();
    for number in 0..100 {
        fs::remove_file(volume.mount_point().join(format!("file{number}"))).unwrap();
    }
    sync();
    let mut keeper = Command::new("unshare");
    keeper.args(["--mount", "sh", "-c", "echo; exec sleep 2"]).stdout(Stdio::piped());
    let mut keeper = keeper.spawn().unwrap();
    // It says so when it has its copies.
    keeper.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let checked = volume.check();
    keeper.wait().unwrap();
    checked.unwrap();
}

/// Every test on a medium that the file system does not know of would be a test on the other.
#[test]
fn loop_file_systems_see_the_medium_that_was_asked_for() {
    for (medium, groups) in [(Medium::Rotating, "4"), (Medium::SolidState, "0")] {
        let volume = LoopVolume::create(&VolumeSpec::ext4(64).on(medium)).unwrap();
        let name = volume.device().file_name().unwrap();
        let knob = Path::new("/sys/fs/ext4").join(name).join("mb_max_linear_groups");
        assert_eq!(fs::read_to_string(knob).unwrap().trim(), groups, "{medium:?}");
        // A copy has a device of its own.
        let copy = volume.copy("").unwrap();
        let name = copy.device().file_name().unwrap();
        let knob = Path::new("/sys/fs/ext4").join(name).join("mb_max_linear_groups");
        assert_eq!(fs::read_to_string(knob).unwrap().trim(), groups, "a copy, {medium:?}");

        let volume = LoopVolume::create(&VolumeSpec::btrfs(256).on(medium)).unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.contains(volume.mount_point().to_str().unwrap())).unwrap();
        assert_eq!(mount.contains(",ssd,"), medium == Medium::SolidState, "{mount}");
    }
}

#[test]
fn loop_nothing_stays_behind() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    let (device, image) = (volume.device().to_owned(), volume.image());
    assert!(volume.traffic().unwrap().written > 0);
    drop(volume);
    assert!(!image.exists());
    // Another process may attach the device again at once, and a process that opens it briefly keeps it attached until it closes it.
    let backing = Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file");
    let until = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&backing).is_ok_and(|path| path.starts_with(image.to_str().unwrap())) {
        assert!(Instant::now() < until, "{} stays attached", device.display());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn loop_a_file_lies_in_exactly_the_fragments_asked_for_and_keeps_its_content() {
    // With blocks smaller than a page, every exchange that cuts a page costs a commit: fewer fragments there.
    for (block_size, many) in [("1024", 40), ("4096", 1000)] {
        let volume = LoopVolume::create(&VolumeSpec::ext4(256).mkfs(&["-b", block_size])).unwrap();
        let path = volume.mount_point().join("file");
        let mut content = vec![0; (4 << 20) + 17];
        longrun_ageing::fill_block(&mut content, 1, 2, 3);
        fs::write(&path, &content).unwrap();
        let before = dump(&volume.mount_point()).unwrap();
        for fragments in [many, 1, 7, many / 2] {
            let made = fragment_file(&path, fragments).unwrap();
            assert_eq!(made.fragments_after, fragments, "block size {block_size}");
            let seen = filefrag(&volume.mount_point()).unwrap();
            assert_eq!(seen.excess + 1, fragments, "block size {block_size}");
        }
        let error = fragment_file(&path, 30_000).unwrap_err().to_string();
        assert!(error.contains("cannot have 30000 fragments"), "{error}");
        volume.remount().unwrap();
        compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        volume.check().unwrap();
    }
}

#[test]
fn loop_ageing_refuses_what_it_cannot_do_and_stops_when_asked() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    let mount = volume.mount_point();
    let error = age(&mount, Recipe::Office, 1, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(error.to_string().starts_with("interrupted"), "{error}");
    let error = age(&mount, Recipe::Office, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    fs::write(mount.join("full"), vec![1; 40 << 20]).unwrap();
    let error = age(&mount, Recipe::Office, 2, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("use a larger or emptier volume"), "{error}");
}

#[test]
fn loop_volumes_of_every_kind_are_made_copied_checked_and_judged() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 320)).unwrap();
        let mount = volume.mount_point();
        let told = tool::run("stat", ["--file-system", "--format=%T", &mount.to_string_lossy()]).unwrap();
        assert!(told.contains(&kind.name()[..3]), "{kind:?}: {told}");
        fs::write(mount.join("file"), vec![7; 100_000]).unwrap();
        fs::write(mount.join("allocated"), [1]).unwrap();
        let allocated = fs::File::options().write(true).open(mount.join("allocated")).unwrap();
        let block = longrun_sys::capacity(&allocated).unwrap().block_size.bytes();
        longrun_sys::allocate(&allocated, range(0, 1 << 20)).unwrap();
        drop(allocated);
        assert_eq!(bytes_beyond_end(&mount.join("file")).unwrap(), 0, "{kind:?}");
        assert_eq!(bytes_beyond_end(&mount.join("allocated")).unwrap(), (1 << 20) - u64::from(block), "{kind:?}");
        let content: Vec<u8> = (0..300_001_u32).map(|n| n as u8).collect();
        longrun_lab::write_in_pieces(kind, &mount.join("pieces"), &content, Bytes(16 << 10), 1).unwrap();
        assert!(excess_of(&mount.join("pieces")).unwrap() > 4, "{kind:?}");
        assert!(fs::read(mount.join("pieces")).unwrap() == content, "{kind:?}");
        assert_eq!(excess_of(&mount.join("file")).unwrap(), 0, "{kind:?}");

        let before = dump(&mount).unwrap();
        volume.check().unwrap();
        let free = free_space(&volume).unwrap();
        assert!((1..50).contains(&free.pieces) && free.largest_bytes <= free.free_blocks * 4096, "{kind:?}: {free:?}");
        assert!(kind == FileSystemKind::Btrfs || free.free_blocks * 4096 > 200 << 20, "{kind:?}: {free:?}");
        // Of a btrfs only one of the copies and the original may be mounted.
        assert_eq!(volume.copy("").is_err(), kind == FileSystemKind::Btrfs, "{kind:?}");
        volume.unmount().unwrap();
        let copy = volume.copy("").unwrap();
        compare(&before, &dump(&copy.mount_point()).unwrap()).unwrap();
        assert_eq!(free_space(&copy).unwrap(), free, "{kind:?}");
        copy.check().unwrap();
        drop(copy);
        volume.mount().unwrap();
        assert!(volume.traffic().unwrap().written > 0);
    }
}

#[test]
fn loop_a_damaged_volume_of_any_kind_is_not_called_clean() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 320)).unwrap();
        fs::write(volume.mount_point().join("file"), vec![7; 100_000]).unwrap();
        volume.unmount().unwrap();
        volume.check().unwrap();
        // Of each the first mebibytes hold what the rest is found by; the superblock alone is kept.
        let image = fs::OpenOptions::new().write(true).open(volume.device()).unwrap();
        let from = if kind == FileSystemKind::Btrfs { 20 << 20 } else { 8192 };
        image.write_all_at(&vec![0xA5; 24 << 20], from).unwrap();
        image.sync_all().unwrap();
        assert!(volume.check().is_err(), "{kind:?}");
    }
}

#[test]
fn loop_a_device_that_somebody_looks_at_is_checked_when_he_has_done() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(256)).unwrap();
    volume.unmount().unwrap();
    let exclusively = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let looking = fs::File::options().read(true).custom_flags(exclusively).open(volume.device()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(1));
            drop(looking);
        });
        volume.check().unwrap();
    });
}

fn range(start: u64, length: u64) -> longrun_sys::ByteRange {
    longrun_sys::ByteRange { start: Bytes(start), length: Bytes(length) }
}
