//! The unprivileged walk against the raw scan of the same volume.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "scan/tree.rs"]
mod tree;

use longrun_engine::{NoProgress, VolumeError};
use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use longrun_volume::walk::walk;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

#[test]
fn loop_a_walk_finds_the_same_fragments_as_the_scan() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(160).mkfs(&["-b", "4096"])).unwrap();
    tree::grow(&volume.mount_point(), 3, 80 << 20);
    let root = File::open(volume.mount_point()).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    let mut reader = Ext4Reader::open(volume.device(), Access::Live).unwrap();
    let options = ScanOptions { free_space: FreeSpace::Kernel(root.as_fd()), directories: true, offline: false };
    let scan = reader.scan(options, &NoProgress).unwrap();
    let figures = scan.layout.fragmentation();
    let walked = walk(&volume.mount_point(), 5, &NoProgress).unwrap();
    let symlinks = scan.layout.files().filter(|f| f.record.pin == Some(longrun_layout::Pin::Symlink)).count() as u64;
    assert_eq!((walked.files + symlinks, walked.directories), (figures.files, figures.directories));
    assert_eq!(walked.excess_fragments, figures.excess_fragments);
    assert_eq!(walked.fragmented_files, figures.fragmented_files);
    assert!(walked.excess_fragments > 20);
    assert_eq!((walked.unreadable, walked.unplaced_extents), (0, 0));
    let worst: Vec<u64> = scan.layout.most_fragmented(5).iter().map(|f| f.fragments).collect();
    assert_eq!(walked.most_fragmented.iter().map(|f| f.fragments).collect::<Vec<_>>(), worst);
    let one = walk(&volume.mount_point().join("log0"), 5, &NoProgress).unwrap();
    assert_eq!((one.files, one.directories), (1, 0));
    assert!(one.excess_fragments > 0);

    let delayed = volume.mount_point().join("not yet on the device");
    fs::write(&delayed, vec![1; 100_000]).unwrap();
    assert_eq!(walk(&delayed, 5, &NoProgress).unwrap().unplaced_extents, 1);
}

#[test]
fn loop_a_walk_stays_on_its_device_and_refuses_what_has_no_extents() {
    let outer = LoopVolume::create(&VolumeSpec::ext4(32)).unwrap();
    let inner = LoopVolume::create(&VolumeSpec::ext4(32)).unwrap();
    fs::write(inner.mount_point().join("file"), b"inner").unwrap();
    let below = outer.mount_point().join("below");
    fs::create_dir(&below).unwrap();
    longrun_lab::tool::run("mount", ["--bind".as_ref(), inner.mount_point().as_os_str(), below.as_os_str()]).unwrap();
    let walked = walk(&outer.mount_point(), 5, &NoProgress);
    longrun_lab::tool::run("umount", [&below]).unwrap();
    assert_eq!(walked.unwrap().files, 0);
    assert!(matches!(walk(Path::new("/proc/version"), 5, &NoProgress), Err(VolumeError::Unsupported { .. })));
    assert!(matches!(walk(Path::new("/dev/null"), 5, &NoProgress), Err(VolumeError::NotAVolume { .. })));
}
