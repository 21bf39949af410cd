//! Loop volumes that are watched, and writers that fragment files (or do not).
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each program uses a part; helpers may fail loudly")]

pub mod case;

use longrun_lab::{FileSystemKind, LoopVolume, Medium, VolumeSpec};
use longrun_layout::Bytes;
use longrun_prevention::sensor::Sensor;
use longrun_prevention::{Signal, SignalKind, Watched};
use longrun_sys::read_mounts;
use longrun_sys::{ByteRange, Mapping, OFlags, map_file};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A fresh volume, and how prevention sees it.
pub fn volume(kind: FileSystemKind, mebibytes: u64) -> (LoopVolume, Watched) {
    volume_on(Medium::of_this_run(), kind, mebibytes)
}

/// As [`volume`], on a device that says this of itself.
pub fn volume_on(medium: Medium, kind: FileSystemKind, mebibytes: u64) -> (LoopVolume, Watched) {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, mebibytes).on(medium)).unwrap();
    let watched = watched(&volume);
    (volume, watched)
}

/// How prevention sees a volume.
pub fn watched(volume: &LoopVolume) -> Watched {
    let mounts = read_mounts().unwrap();
    let mount = mounts.iter().find(|mount| mount.point == volume.mount_point()).unwrap();
    Watched::at(mount).unwrap()
}

/// How a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Past the cache.
    Direct,
    /// Through the cache, each write durable when it returns.
    Synced,
    /// Through the cache.
    Buffered,
}

impl Mode {
    /// Opens a file for it.
    pub fn open(self, path: &Path) -> File {
        let flags = match self {
            Self::Direct => OFlags::DIRECT.bits(),
            Self::Synced => OFlags::DSYNC.bits(),
            Self::Buffered => 0,
        };
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags.cast_signed())
            .open(path)
            .unwrap()
    }
}

/// A buffer whose content lies at a multiple of a page, as direct writes need.
pub struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Aligned {
    pub fn new(length: usize) -> Self {
        let bytes = vec![0x5a; length + 4096];
        let begin = bytes.as_ptr().align_offset(4096);
        Self { bytes, begin, length }
    }

    pub fn get(&self) -> &[u8] {
        &self.bytes[self.begin..][..self.length]
    }
}

/// `writers` files "grow0", "grow1", … that grow at the same time by `chunk` bytes a write, to `bytes` each.
pub fn grow_together(directory: &Path, writers: usize, bytes: u64, chunk: usize, mode: Mode) {
    let start = Barrier::new(writers);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let start = &start;
            scope.spawn(move || {
                let file = mode.open(&directory.join(format!("grow{writer}")));
                let buffer = Aligned::new(chunk);
                start.wait();
                for at in (0..bytes).step_by(chunk) {
                    file.write_all_at(buffer.get(), at).unwrap();
                }
            });
        }
    });
}

/// The same files, each written to in its turn: the worst case, and the same each time.
pub fn grow_in_turn(directory: &Path, writers: usize, bytes: u64, chunk: usize, mode: Mode) {
    let files: Vec<File> = (0..writers).map(|writer| mode.open(&directory.join(format!("grow{writer}")))).collect();
    let buffer = Aligned::new(chunk);
    for at in (0..bytes).step_by(chunk) {
        for file in &files {
            file.write_all_at(buffer.get(), at).unwrap();
        }
    }
}

/// In how many pieces a file lies.
pub fn fragments(path: &Path) -> u64 {
    fragments_of(&File::open(path).unwrap())
}

/// The same of an open file.
fn fragments_of(file: &File) -> u64 {
    let whole = ByteRange { start: Bytes(0), length: Bytes(u64::MAX) };
    let mut end = None;
    let mut fragments = 0;
    for extent in map_file(file, whole, Mapping::Synced).unwrap() {
        fragments += u64::from(end != Some(extent.physical));
        end = Some(Bytes(extent.physical.0 + extent.length.0));
    }
    fragments
}

/// Whether a file on the volume at `directory` was told of for good reason, whatever the file system should have made of it: what it
/// keeps whole depends on what else it does at that moment. A few pieces are no reason for a runway.
pub fn is_for_good_reason(directory: &Path, signal: &Signal) -> bool {
    match signal.kind {
        SignalKind::InPieces => true,
        SignalKind::Fragmenting { allocations, .. } => {
            let file = signal.file.handle.open(File::open(directory).unwrap(), OFlags::RDONLY).unwrap();
            fragments_of(&File::from(file)) >= u64::from(allocations)
        }
        _ => false,
    }
}

/// Chunks written in a random order, once each, to a file of `bytes` bytes that is one hole before.
pub fn scatter(path: &Path, bytes: u64, chunk: usize, mode: Mode) {
    let file = mode.open(path);
    file.set_len(bytes).unwrap();
    let mut order: Vec<u64> = (0..bytes / chunk as u64).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut order);
    let buffer = Aligned::new(chunk);
    for at in order {
        file.write_all_at(buffer.get(), at * chunk as u64).unwrap();
    }
}

/// What the sensor tells while `work` is done, and until it has been silent for a while after.
pub fn signals_during(sensor: &dyn Sensor, work: impl FnOnce() + Send) -> Vec<Signal> {
    let mut signals = Vec::new();
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            sensor.poll(Duration::from_millis(20), &mut |signal| signals.push(signal)).unwrap();
        }
        worker.join().unwrap();
    });
    signals.extend(signals_until_silent(sensor));
    signals
}

/// What the sensor still has to tell.
pub fn signals_until_silent(sensor: &dyn Sensor) -> Vec<Signal> {
    let mut signals = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(100) {
        let before = signals.len();
        sensor.poll(Duration::from_millis(20), &mut |signal| signals.push(signal)).unwrap();
        if signals.len() > before {
            last = Instant::now();
        }
    }
    signals
}
