//! The plug of the laboratory's devices: a test of crashes that loses nothing, or too much, proves nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use longrun_engine::Volume;
use longrun_engine::VolumeError;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use longrun_sys::AlignedBuffer;
use longrun_volume::Target;
use longrun_volume::btrfs::BtrfsVolume;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn loop_a_power_cut_keeps_what_was_flushed_and_loses_what_was_not() {
    for kind in FileSystemKind::ALL {
        let base = LoopVolume::create(&VolumeSpec::of(kind, 320)).unwrap();
        for name in ["flushed", "not flushed"] {
            fs::write(base.mount_point().join(name), [1; 1 << 20]).unwrap();
        }
        base.unmount().unwrap();
        let mut volume = base.copy_behind_cache("").unwrap();
        for (name, flushes) in [("flushed", true), ("not flushed", false)] {
            let path = volume.mount_point().join(name);
            let file: File = rustix::fs::open(path, OFlags::RDWR | OFlags::DIRECT, 0.into()).unwrap().into();
            let mut buffer = AlignedBuffer::new(1 << 20);
            buffer.prefix(1 << 20).fill(2);
            file.write_all_at(buffer.prefix(1 << 20), 0).unwrap();
            if flushes {
                file.sync_all().unwrap();
            }
        }
        volume.cut_power().unwrap();
        assert!(
            fs::write(volume.mount_point().join("after"), [3; 4096])
                .and_then(|()| { File::open(volume.mount_point().join("after"))?.sync_all() })
                .is_err(),
            "{kind:?}: without power nothing reaches the device"
        );
        volume.restore_power().unwrap();
        let read = |name: &str| fs::read(volume.mount_point().join(name)).unwrap();
        assert!(read("flushed") == [2; 1 << 20], "{kind:?}: what was flushed must be there");
        assert!(read("not flushed").contains(&1), "{kind:?}: the cache was not lost");
        volume.check().unwrap();
    }
}

/// A power cut in the middle of a pass was once told as success: btrfs had met the error at something else, had made itself
/// read-only, and each commit that followed had nothing to do.
#[test]
fn loop_a_btrfs_that_an_error_has_ended_does_not_commit() {
    let base = LoopVolume::create(&VolumeSpec::btrfs(320)).unwrap();
    base.unmount().unwrap();
    let mut volume = base.copy_behind_cache("").unwrap();
    let mount = volume.mount_point();
    let mut ours = BtrfsVolume::open(&Target::resolve(&mount).unwrap()).unwrap();
    ours.commit().unwrap();
    fs::write(mount.join("file"), vec![1; 1 << 20]).unwrap();
    volume.cut_power().unwrap();
    // Somebody else meets the error first, and is told.
    let others = File::open(&mount).unwrap();
    for _ in 0..3 {
        let _ = rustix::fs::syncfs(&others);
    }
    assert!(fs::write(mount.join("after"), [1]).is_err(), "btrfs goes on without its device");
    for _ in 0..3 {
        let committed = ours.commit();
        assert!(matches!(committed, Err(VolumeError::Barrier { .. })), "{committed:?}");
    }
    drop((ours, others));
    volume.restore_power().unwrap();
    volume.check().unwrap();
}
