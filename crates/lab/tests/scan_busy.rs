//! Scans of a volume that others change all the time: records seen half-written must never pass for damage.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use longrun_engine::{NoProgress, VolumeError};
use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_layout::{FileId, Pin, VolumeLayout};
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Creates, appends, truncates, renames and deletes until told to stop; small appends in turn make extent trees deep.
fn churn(root: &Path, seed: u64, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let own = root.join(format!("writer {seed}"));
    fs::create_dir(&own).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let path = own.join(format!("{}", random.u32(0..300)));
        match random.u32(0..10) {
            0..5 => {
                let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
                file.write_all(&vec![1; random.usize(1..30_000)]).unwrap();
                if random.u32(0..4) == 0 {
                    file.sync_data().unwrap();
                }
            }
            5 => drop(OpenOptions::new().write(true).open(&path).map(|f| f.set_len(random.u64(0..10_000)))),
            6 => drop(fs::rename(&path, own.join(format!("renamed {}", random.u32(0..300))))),
            7 => {
                let directory = own.join(format!("directory {}", random.u32(0..30)));
                match fs::create_dir(&directory) {
                    Ok(()) => (0..40).for_each(|i| drop(File::create(directory.join(format!("in it {i}"))))),
                    Err(_) => fs::remove_dir_all(&directory).unwrap(),
                }
            }
            _ => drop(fs::remove_file(&path)),
        }
    }
}

/// Scans again and again, for so long, while three writers are at work.
fn beside_writers<T, E: Display>(root: &Path, time: Duration, mut scan: impl FnMut() -> Result<T, E>) -> Vec<T> {
    let (stop, mut scans) = (AtomicBool::new(false), Vec::new());
    let failed = std::thread::scope(|scope| {
        for seed in 0..3 {
            let stop = &stop;
            scope.spawn(move || churn(root, seed, stop));
        }
        let started = Instant::now();
        let mut failed = None;
        while started.elapsed() < time && failed.is_none() {
            match scan() {
                Ok(done) => scans.push(done),
                Err(error) => failed = Some(error),
            }
        }
        stop.store(true, Ordering::Relaxed);
        failed
    });
    if let Some(error) = failed {
        panic!("after {} scans: {error}", scans.len());
    }
    scans
}

/// Which files are pinned for being damaged, and how many for having changed.
fn pinned(layout: &VolumeLayout) -> (Vec<FileId>, usize) {
    let changed = layout.files().filter(|file| file.record.pin == Some(Pin::Changed)).count();
    (layout.contradicting().map(|file| file.id()).collect(), changed)
}

#[test]
fn loop_a_busy_volume_is_never_called_damaged() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(512).mkfs(&["-b", "1024"])).unwrap();
    let root = volume.mount_point();
    let handle = File::open(&root).unwrap();
    let scans = beside_writers(&root, Duration::from_secs(12), || {
        let mut reader = Ext4Reader::open(volume.device(), Access::Live)?;
        let options = ScanOptions { free_space: FreeSpace::Kernel(handle.as_fd()), directories: true, offline: false };
        let scan = reader.scan(options, &NoProgress)?;
        let worst = scan.layout.most_fragmented(20);
        let inodes: Vec<_> = worst.iter().filter_map(|f| scan.layout.file(f.file)).map(|f| f.record.inode).collect();
        reader.paths_of(&scan, &inodes)?;
        // The bitmaps on the device change with their descriptors: the pair, too, may be seen half-changed.
        reader.scan(ScanOptions { free_space: FreeSpace::Bitmaps, directories: false, offline: false }, &NoProgress)?;
        Ok::<_, VolumeError>(pinned(&scan.layout))
    });
    let changed: usize = scans.iter().map(|(_, changed)| changed).sum();
    eprintln!("{} pairs of scans, {changed} files that had changed", scans.len());
    assert!(scans.len() > 5);
    assert!(scans.iter().all(|(damaged, _)| damaged.is_empty()), "{scans:?}");
    drop(handle);
    volume.check().unwrap();
}

#[test]
fn loop_files_of_a_busy_xfs_have_changed_and_are_not_damaged() {
    let volume = LoopVolume::create(&VolumeSpec::xfs(512)).unwrap();
    let root = volume.mount_point();
    let handle = File::open(&root).unwrap();
    let scans = beside_writers(&root, Duration::from_secs(5), || {
        longrun_volume::xfs::scan::scan(&handle, &root, &NoProgress).map(|scan| pinned(&scan.layout))
    });
    let changed: usize = scans.iter().map(|(_, changed)| changed).sum();
    eprintln!("{} scans, {changed} files that had changed", scans.len());
    assert!(scans.len() > 5);
    assert!(scans.iter().all(|(damaged, _)| damaged.is_empty()), "{scans:?}");
    drop(handle);
    volume.check().unwrap();
}
