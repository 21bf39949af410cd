//! `bench reads` makes the layouts that it names, and counts what reading them costs the device.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_bench::reads::{Lie, Reads, ReadsSettings};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, longrun_binary};
use longrun_layout::Bytes;
use std::fs;
use std::sync::atomic::AtomicBool;

#[test]
fn loop_the_files_of_bench_reads_lie_as_they_are_called_and_are_gone_afterwards() {
    common::build();
    // Elsewhere than on ext4 every piece is made durable by itself, which takes its time.
    for (kind, bytes) in [(FileSystemKind::Ext4, 2 << 20), (FileSystemKind::Xfs, 256 << 10)] {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let stop = AtomicBool::new(false);
        let settings =
            ReadsSettings { program: longrun_binary().unwrap(), bytes: Bytes(bytes), iterations: 1, seed: 1 };
        let reads = Reads::prepare(&volume.mount_point(), settings, &stop, &mut |_| {}).unwrap();
        let mut cold = || {
            volume.remount().unwrap();
            Ok(())
        };
        let report = reads.measure(&mut cold, &mut |_, _| {}).unwrap();
        let made = if kind == FileSystemKind::Ext4 { Lie::ALL.len() } else { 3 };
        assert_eq!(report.lines.len(), made, "{kind:?}");
        for line in &report.lines {
            let pieces = match line.lie {
                Lie::Whole | Lie::Optimized(_) => 1,
                Lie::Fragments(piece) | Lie::Shuffled(piece) => bytes / piece.0,
            };
            // An allocator that is not told where may put two pieces together now and then.
            let least = if kind == FileSystemKind::Ext4 { pieces } else { pieces.div_ceil(4) };
            let most = if pieces == 1 { 2 } else { pieces + 1 };
            assert!((least..=most).contains(&line.fragments), "{kind:?} {}: {}", line.lie, line.fragments);
            assert!(line.reads.iter().all(|read| read.device.read_bytes.0 >= bytes), "{kind:?} {}", line.lie);
        }
        let requests = |wanted| report.lines.iter().find(|line| line.lie == wanted).unwrap().requests;
        let scattered = requests(Lie::Shuffled(Bytes(16 << 10)));
        assert!(scattered > 1.5 * requests(Lie::Whole), "{kind:?}: {scattered} requests");
        drop(reads);
        let left = fs::read_dir(volume.mount_point()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name != "lost+found").count(), 0, "{kind:?}");
    }
}
