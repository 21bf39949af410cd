//! Known I/O on real loop devices is found exactly as it was done.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{KIB, device, direct, filled, read, trace, write};
use longrun_iotrace::{Asked, Options, Tracer};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Mapping, map_file};
use std::fs::File;
use std::path::Path;
use std::process::Command;

#[test]
fn loop_requests_are_counted_with_their_sizes_seeks_and_makers() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(256)).unwrap();
    volume.unmount().unwrap();
    let file = direct(volume.device());
    let options = Options { own: vec![std::process::id()], ..Options::default() };
    let recording = trace(volume.device(), options, || {
        (0..64).for_each(|nth| read(&file, (8 << 20) + nth * 16 * KIB, 16 * KIB));
        (0..32).for_each(|nth| read(&file, (64 << 20) + nth * 1024 * KIB, 4 * KIB));
        (0..10).for_each(|nth| write(&file, (16 << 20) + nth * 8 * KIB, 8 * KIB));
        file.sync_all().unwrap();
        // Somebody else's.
        let of = format!("if={}", volume.device().display());
        let dd =
            Command::new("dd").args([&of, "of=/dev/null", "bs=64k", "count=7", "iflag=direct", "status=none"]).status();
        assert!(dd.unwrap().success());
    });
    let [traced] = recording.devices.as_slice() else { panic!("{:?}", recording.devices) };
    let (all, ours) = (&traced.all, traced.ours.as_ref().unwrap());
    assert_eq!((all.reads.requests, all.reads.bytes), (103, 64 * 16384 + 32 * 4096 + 7 * 65536));
    assert_eq!(filled(&all.reads.sizes), [(Some(4096), 32), (Some(16384), 64), (Some(65536), 7)]);
    assert_eq!((ours.reads.requests, ours.writes.requests), (96, 10));
    assert_eq!((all.writes.requests, all.writes.bytes), (10, 10 * 8192));
    assert_eq!((all.reads.completed, all.reads.errors, all.reads.latency.total()), (103, 0, 103));
    // 63 follow the first; of the others each lies 1 MiB less 4 KiB behind the one before; then dd goes back to the start.
    assert_eq!((all.reads.distances, all.reads.sequential), (102, 63 + 6));
    let seeks = [(Some(-50_000), 1), (Some(0), 69), (Some(5000), 31), (Some(500_000), 1)];
    assert_eq!(filled(&all.reads.seeks), seeks);
    assert_eq!((all.writes.sequential, all.writes.distances), (9, 9));
    assert_eq!(all.writes.sequential_any, 9);
    assert!(all.flushes.requests >= 1, "{:?}", all.flushes);
    // One at a time.
    assert_eq!(filled(&all.reads.depths), [(Some(1), 103)]);
    assert_eq!(recording.missed, longrun_iotrace::Missed::default());
    let dd = recording.processes.iter().find(|process| process.name == "dd").unwrap();
    assert_eq!((dd.reads, dd.read_bytes, dd.ours), (7, 7 * 65536, false));
    assert_eq!(recording.asked.reads.requests, Some(0), "raw access is no file's");
    assert_eq!(recording.asked.reads.other_bytes, all.reads.bytes);
}

#[test]
fn loop_what_is_longer_than_the_device_takes_is_split_and_neighbours_are_merged() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(256)).unwrap();
    volume.unmount().unwrap();
    let name = volume.device().file_name().unwrap().to_str().unwrap();
    let limit = Path::new("/sys/block").join(name).join("queue/max_sectors_kb");
    std::fs::write(&limit, "64").unwrap();
    let file = direct(volume.device());
    let recording = trace(volume.device(), Options::default(), || read(&file, 0, 256 * KIB));
    let traced = recording.devices.first().unwrap();
    assert_eq!(filled(&traced.all.reads.sizes), [(Some(65536), 4)]);
    assert_eq!((traced.bios.queued, traced.bios.splits), (1, 3), "{:?}", traced.bios);
    // Dirtied page by page in the cache, written back by pages that are put together.
    let cached = File::options().write(true).open(volume.device()).unwrap();
    let recording = trace(volume.device(), Options::default(), || {
        use std::os::unix::fs::FileExt as _;
        cached.write_all_at(&vec![1; 128 * 1024], 1 << 20).unwrap();
        cached.sync_all().unwrap();
    });
    let traced = recording.devices.first().unwrap();
    let bios = traced.bios;
    let writes = traced.all.writes.requests;
    assert_eq!(traced.all.writes.bytes, 128 * KIB);
    let made = bios.queued + bios.splits - bios.back_merges - bios.front_merges - bios.request_merges;
    // The flush is a bio without data, and makes no write.
    assert_eq!(made, writes + 1, "{bios:?}");
}

/// A file in many fragments: its pieces were written from the end to the start, beside another, which ext4 sees through.
fn scattered(kind: FileSystemKind, directory: &Path) -> std::path::PathBuf {
    let (path, other) = (directory.join("scattered"), directory.join("other"));
    let (file, beside) = (direct(&path), direct(&other));
    for nth in (0..128).rev() {
        write(&file, nth * 32 * KIB, 32 * KIB);
        write(&beside, nth * 32 * KIB, 32 * KIB);
    }
    file.sync_all().unwrap();
    if kind == FileSystemKind::Ext4 {
        longrun_ageing::fragment_file(&path, 48).unwrap();
    }
    path
}

/// Physically contiguous ranges of a file: begin and end in the file.
fn runs(path: &Path) -> Vec<(u64, u64)> {
    let range = ByteRange { start: Bytes(0), length: Bytes(u64::MAX) };
    let extents = map_file(File::open(path).unwrap(), range, Mapping::Synced).unwrap();
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for extent in extents {
        let (begin, place, length) = (extent.logical.0, extent.physical.0, extent.length.0);
        match runs.last_mut() {
            Some((_, end, next)) if *end == begin && *next == place => (*end, *next) = (begin + length, place + length),
            _ => runs.push((begin, begin + length, place + length)),
        }
    }
    runs.into_iter().map(|(begin, end, _)| (begin, end)).collect()
}

#[test]
fn loop_wasted_seeks_are_the_pieces_that_the_map_of_the_file_shows() {
    const ONCE: u64 = 256 * KIB;
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let path = scattered(kind, &volume.mount_point());
        let (runs, size) = (runs(&path), 4096 * KIB);
        assert!(runs.len() > 20, "{kind:?}: {runs:?}");
        volume.remount().unwrap();
        // Each read needs as many pieces of the device as there are runs in its range.
        let in_range = |at: u64| runs.iter().filter(|(begin, end)| *begin < at + ONCE && *end > at).count() as u64;
        let pieces: Vec<u64> = (0..size / ONCE).map(|nth| in_range(nth * ONCE)).collect();
        let file = direct(&path);
        let Asked { reads, .. } = trace(volume.device(), Options::default(), || {
            (0..size / ONCE).for_each(|nth| read(&file, nth * ONCE, ONCE))
        })
        .asked;
        assert_eq!(reads.requests, Some(pieces.len() as u64), "{kind:?}: {reads:?}");
        assert_eq!(reads.wasted_seeks, Some(pieces.iter().map(|pieces| pieces - 1).sum()), "{kind:?}: {reads:?}");
        assert_eq!(reads.split, Some(pieces.iter().filter(|pieces| **pieces > 1).count() as u64), "{kind:?}");
        assert_eq!((reads.file_bytes, reads.direct_bytes), (size, size), "{kind:?}");

        // Through the page cache: all steps of the file are met, be it within one reading-ahead or between two.
        drop(file);
        volume.remount().unwrap();
        let recording = trace(volume.device(), Options::default(), || _ = std::fs::read(&path).unwrap());
        let reads = recording.asked.reads;
        assert_eq!(reads.breaks, runs.len() as u64 - 1, "{kind:?}: {reads:?}");
        assert_eq!((reads.file_bytes, reads.direct_bytes), (size, 0), "{kind:?}: {reads:?}");
        let (requests, wasted) = (reads.requests.unwrap(), reads.wasted_seeks.unwrap());
        assert!(requests > 0 && wasted > 0 && wasted <= reads.breaks, "{kind:?}: {reads:?}");
    }
}

/// XFS reads ahead in folios that are larger than the pieces of this file, so that most bios begin within one. Where they begin in the
/// file was once taken without what lies between that and the first page of the folio (before Linux 6.15 the kernel names only that one).
#[test]
fn loop_pieces_within_large_folios_are_found_where_they_are_in_the_file() {
    const PIECE: Bytes = Bytes(20 * KIB);
    let volume = LoopVolume::create(&VolumeSpec::xfs(512)).unwrap();
    let (path, content) = (volume.mount_point().join("pieces"), vec![7; 8 << 20]);
    write_in_pieces(FileSystemKind::Xfs, &path, &content, PIECE, 3).unwrap();
    let runs = runs(&path).len() as u64;
    let name = volume.device().file_name().unwrap().to_str().unwrap();
    std::fs::write(format!("/sys/block/{name}/queue/read_ahead_kb"), "4096").unwrap();
    volume.remount().unwrap();
    let recording = trace(volume.device(), Options::default(), || {
        assert_eq!(std::fs::read(&path).unwrap().len(), content.len());
    });
    let reads = recording.asked.reads;
    // A place that is wrong does not follow what was read before: that is no break, and a request of its own.
    assert_eq!((reads.breaks, reads.file_bytes), (runs - 1, content.len() as u64), "{reads:?}");
    let requests = reads.requests.unwrap();
    assert!(requests * 10 < runs, "{requests} requests for {runs} pieces: nothing was read ahead in large folios");
}

/// A partition of a loop device; it would outlive the image.
struct Part<'a>(&'a Path);

impl<'a> Part<'a> {
    fn add(device: &'a Path) -> Self {
        assert!(Command::new("addpart").arg(device).args(["1", "2048", "32768"]).status().unwrap().success());
        Self(device)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        _ = Command::new("delpart").arg(self.0).arg("1").status();
    }
}

#[test]
fn loop_a_partition_is_traced_at_its_disk() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    volume.unmount().unwrap();
    let device_path = volume.device();
    let name = device_path.file_name().unwrap().to_str().unwrap().to_owned();
    let _part = Part::add(device_path);
    let part = device_path.with_file_name(format!("{name}p1"));
    let stack = device(&part);
    assert_eq!(stack.lowest().iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    let tracer = Tracer::start("test", &[stack], Options::default()).unwrap();
    let file = direct(&part);
    (0..5).for_each(|nth| read(&file, nth * 64 * KIB, 64 * KIB));
    let recording = tracer.recording().unwrap();
    assert_eq!(recording.devices.first().unwrap().name, name);
    assert_eq!(recording.total().reads.requests, 5);
    assert!(
        recording.stack.iter().any(|layer| layer.kind == "partition" && layer.on == [name.clone()] && !layer.traced)
    );
    assert!(recording.stack.iter().any(|layer| layer.kind == "loop" && layer.traced));
    // Before the partition goes, which it does before the volume.
    drop(file);
}
