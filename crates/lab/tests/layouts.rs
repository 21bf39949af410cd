//! The benchmarks of layouts make the layouts that they name, count what using them costs the device, and leave nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_bench::copy::Copies;
use longrun_bench::install::{Install, Software, Source};
use longrun_bench::layouts::{Arrangement, LayoutSettings, Stage, Step};
use longrun_bench::oltp::{Oltp, OltpSettings};
use longrun_bench::reads::{ARRANGEMENTS, Reads};
use longrun_bench::{BenchError, Findings};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, longrun_binary};
use longrun_layout::Bytes;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Mounts anew before everything.
struct Remounted<'a>(&'a LoopVolume);

impl Stage for Remounted<'_> {
    fn making(&mut self, _: Step<'_>) {}

    fn begin(&mut self, _: Step<'_>) -> Result<(), BenchError> {
        self.0.remount().unwrap();
        Ok(())
    }
}

fn settings(files: u32, bytes: u64) -> LayoutSettings {
    LayoutSettings { program: longrun_binary().unwrap(), files, bytes: Bytes(bytes), iterations: 1, seed: 1 }
}

fn assert_nothing_is_left(volume: &LoopVolume) {
    let left = fs::read_dir(volume.mount_point()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(left.filter(|name| name != "lost+found").count(), 0, "{:?}", volume.kind());
}

#[test]
fn loop_the_files_of_bench_reads_lie_as_they_are_called_and_are_gone_afterwards() {
    // Elsewhere than on ext4 every piece is made durable by itself, which takes its time.
    for (kind, bytes) in [(FileSystemKind::Ext4, 2 << 20), (FileSystemKind::Xfs, 256 << 10)] {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let (stop, mut stage) = (AtomicBool::new(false), Remounted(&volume));
        let reads = Reads::prepare(&volume.mount_point(), settings(1, bytes), &stop, &mut stage).unwrap();
        let report = reads.measure(&mut stage).unwrap();
        let made = if kind == FileSystemKind::Ext4 { ARRANGEMENTS.len() } else { 3 };
        assert_eq!(report.lines.len(), made, "{kind:?}");
        for line in &report.lines {
            let pieces = match line.arrangement {
                Arrangement::Whole | Arrangement::Optimized(_) => 1,
                Arrangement::Fragments(piece) | Arrangement::Shuffled(piece) => bytes / piece.0,
            };
            // An allocator that is not told where may put two pieces together now and then.
            let least = if kind == FileSystemKind::Ext4 { pieces } else { pieces.div_ceil(4) };
            let most = if pieces == 1 { 2 } else { pieces + 1 };
            assert!((least..=most).contains(&line.fragments), "{kind:?} {}: {}", line.arrangement, line.fragments);
            assert!(line.reads.iter().all(|read| read.device.read_bytes.0 >= bytes), "{kind:?} {}", line.arrangement);
        }
        let requests = |wanted| report.lines.iter().find(|line| line.arrangement == wanted).unwrap().requests;
        let scattered = requests(Arrangement::Shuffled(Bytes(16 << 10)));
        assert!(scattered > 1.5 * requests(Arrangement::Whole), "{kind:?}: {scattered} requests");
        drop(reads);
        assert_nothing_is_left(&volume);
    }
}

#[test]
fn loop_bench_copy_copies_every_file_of_each_layout_from_the_device_and_removes_the_copies() {
    let (bytes, files) = (8 << 20, 16);
    let volume = LoopVolume::create(&VolumeSpec::ext4(512)).unwrap();
    let (stop, mut stage) = (AtomicBool::new(false), Remounted(&volume));
    let piece = Bytes(16 << 10);
    let copies = Copies::prepare(&volume.mount_point(), settings(files, bytes), piece, &stop, &mut stage).unwrap();
    let report = copies.measure(&mut stage).unwrap();
    let [whole, shuffled, optimized] = report.lines.as_slice() else { panic!("{:?}", report.lines) };
    assert_eq!(
        (whole.arrangement, shuffled.arrangement, optimized.arrangement),
        (Arrangement::Whole, Arrangement::Shuffled(piece), Arrangement::Optimized(piece))
    );
    assert_eq!((whole.fragments, shuffled.fragments), (16, 512));
    assert_eq!(optimized.fragments, 16);
    for line in &report.lines {
        let (read, copied) = (line.reads[0].device, line.copies[0].device);
        assert!(read.read_bytes.0 >= bytes && read.written_bytes.0 < bytes / 2, "{} {read:?}", line.arrangement);
        assert!(copied.read_bytes.0 >= bytes && copied.written_bytes.0 >= bytes, "{} {copied:?}", line.arrangement);
    }
    assert!(shuffled.read_requests > 2.0 * optimized.read_requests, "{report:?}");
    assert!(shuffled.copy_requests > optimized.copy_requests, "{report:?}");
    drop(copies);
    assert_nothing_is_left(&volume);
}

#[test]
fn loop_bench_oltp_measures_with_fio_and_leaves_the_files_where_they_lie() {
    let bytes = 8 << 20;
    let run = |kind, profiles: [&str; 3], fio: &Path| {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let (stop, mut stage) = (AtomicBool::new(false), Remounted(&volume));
        let profiles = profiles.iter().map(|name| name.parse().unwrap()).collect();
        let settings = OltpSettings { layout: settings(1, bytes), profiles, time: Duration::from_millis(300) };
        let report = Oltp::prepare(&volume.mount_point(), settings, fio, &stop, &mut stage)
            .and_then(|oltp| oltp.measure(&mut stage));
        assert_nothing_is_left(&volume);
        report
    };
    let profiles = ["file-server", "random-read-64k", "sequential-write-256k"];
    let report = run(FileSystemKind::Ext4, profiles, Path::new("fio")).unwrap();
    assert_eq!(report.lines.len(), 3);
    for line in &report.lines {
        assert!(line.before.requests_per_second > 0.0 && line.after.milliseconds > 0.0, "{line:?}");
    }
    let arrangement = |shuffled: bool| {
        report.fragments.iter().find(|(arrangement, ..)| matches!(arrangement, Arrangement::Shuffled(_)) == shuffled)
    };
    assert_eq!(arrangement(true).map(|(_, before, after)| (*before, *after)), Some((512, 512)));
    assert_eq!(arrangement(false).map(|(_, before, after)| (*before, *after)), Some((1, 1)));

    let report = run(FileSystemKind::Btrfs, profiles, Path::new("fio")).unwrap();
    assert_eq!((report.lines.len(), report.left_out.len()), (1, 2), "every write would get a new place");
    assert!(report.sentences().last().unwrap().contains("2 profiles that write were left out"));

    let error = run(FileSystemKind::Ext4, profiles, Path::new("/no/such/fio")).unwrap_err().to_string();
    assert!(error.contains("install the package fio"), "{error}");
}

/// Has nothing free but pieces of 64 KiB, half of the volume.
fn put_free_space_into_pieces(volume: &LoopVolume) {
    let directory = volume.mount_point().join("others");
    fs::create_dir(&directory).unwrap();
    let path = |number: u32| directory.join(number.to_string());
    let made = (0..).find(|number| fs::write(path(*number), vec![1; 64 << 10]).is_err()).unwrap();
    rustix::fs::sync();
    (0..made).step_by(2).for_each(|number| fs::remove_file(path(number)).unwrap());
    volume.remount().unwrap();
}

#[test]
fn loop_bench_install_counts_what_unpacking_asks_of_each_volume_and_removes_what_it_unpacked() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..40 {
        fs::write(tree.path().join(number.to_string()), vec![number; 700 << 10]).unwrap();
    }
    let stop = AtomicBool::new(false);
    let source = Source::Tree { path: tree.path().to_owned(), most: Bytes(1 << 30) };
    let software = Software::prepare(&source, &stop).unwrap();
    // Nothing of it is kept for root, who would find it in one piece.
    let volume = || LoopVolume::create(&VolumeSpec::ext4(480).mkfs(&["-b", "4096", "-m", "0"])).unwrap();
    let (aged, whole) = (volume(), volume());
    put_free_space_into_pieces(&aged);
    let (in_pieces, in_one) = (aged.mount_point(), whole.mount_point());
    let (mut first, mut second) = (Remounted(&aged), Remounted(&whole));

    let install = Install::prepare(&[&in_pieces, &in_one], &software, 2, &stop).unwrap();
    let report = install.by_turns([&mut first, &mut second]).unwrap();
    for side in [&report.aged, &report.optimized] {
        assert_eq!(side.runs.len(), 2);
        for run in &side.runs {
            assert_eq!((run.layout.files, run.layout.bytes), (40, Bytes(40 * (700 << 10))));
            assert!(run.device.written_bytes.0 >= 40 * (700 << 10), "durable: {run:?}");
            let traced = run.traced.unwrap();
            // The kernel skips an event while the program runs on that processor.
            assert!(traced.requests >= run.device.writes / 2 && traced.asked.unwrap() >= 36, "{traced:?}");
        }
    }
    let wasted = |side: &longrun_bench::install::Side| side.runs[0].traced.unwrap().wasted_seeks.unwrap();
    assert!(report.aged.space.pieces > report.optimized.space.pieces, "{report:?}");
    assert!(report.aged.runs[0].layout.excess_fragments > 100, "{report:?}");
    assert!(wasted(&report.aged) > 100 && wasted(&report.optimized) < 40, "{report:?}");
    assert!(report.requests.ratio < 0.9, "{report:?}");
    drop(install);
    assert_nothing_is_left(&whole);

    // One volume, before and after.
    let install = Install::prepare(&[&in_pieces], &software, 1, &stop).unwrap();
    let report = install.around_optimizing(&longrun_binary().unwrap(), &mut first).unwrap();
    assert!(report.aged.space.pieces > report.optimized.space.pieces, "{report:?}");
    assert!(wasted(&report.optimized) < wasted(&report.aged), "{report:?}");
    drop(install);
    let left = fs::read_dir(&in_pieces).unwrap().flatten().filter(|entry| entry.file_name() != "lost+found").count();
    assert_eq!(left, 1, "the files of others");
}
