//! What runways leave behind, by the file system's own count of what is used.
//!
//! Ten files of 1 MiB that had had runways of 128 MiB each kept 1.28 GiB on btrfs for as long as they lived: an extent there is
//! freed with its last reference. Maps and `st_blocks`, which the tests asked, showed nothing of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]
#![allow(clippy::print_stdout, reason = "figures are told where a test measures them")]

mod common;

use common::case::{Case, Notes, eventually};
use common::{fragments, volume_on};
use longrun_lab::oracle::used_space;
use longrun_lab::{FileSystemKind, LoopVolume, Medium};
use longrun_layout::Bytes;
use longrun_prevention::policy::Settings;
use longrun_prevention::{Happening, Options, Prevention, SignalKind};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn everywhere(test: impl Fn(Medium, FileSystemKind)) {
    for medium in Medium::ALL {
        FileSystemKind::ALL.into_iter().for_each(|kind| test(medium, kind));
    }
}

/// What is used beyond what was, and beyond `bytes` of files, in percent of these.
fn left_behind(volume: &LoopVolume, before: Bytes, bytes: u64) -> f64 {
    let used = used_space(volume).unwrap();
    (used.0 as f64 - before.0 as f64 - bytes as f64) * 100.0 / bytes as f64
}

/// A file that gets its runway after `first` bytes, and is written on to `size` bytes in the same requests.
fn grown(case: &Case, name: &str, first: u64, size: u64, request: usize) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(case.path(name)).unwrap();
    let content = vec![7; request];
    let write = |from: u64, to: u64| {
        for at in (from..to).step_by(request) {
            let length = (to - at).min(request as u64) as usize;
            file.write_all_at(&content[..length], at).unwrap();
            file.sync_data().unwrap();
        }
    };
    write(0, first.min(size));
    case.notes.0.lock().unwrap().clear();
    case.told.tell_of_growth(case.key(&file), first.min(size));
    case.granted();
    write(first.min(size), size);
    file
}

fn settled(case: &Case, file: File) {
    let key = case.key(&file);
    drop(file);
    case.told.tell(key, 0, SignalKind::Closed);
    case.happens(|happening| matches!(happening, Happening::Settled { file, .. } if *file == key));
}

#[test]
fn loop_many_small_files_leave_nothing_behind_of_their_runways() {
    everywhere(|medium, kind| {
        let case = Case::on(medium, kind);
        let before = used_space(&case.volume).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut bytes = 0;
        for number in 0..24 {
            let size = rng.u64(300 << 10..3 << 20).next_multiple_of(4096);
            let request = [4096, 16 << 10, 64 << 10][number % 3];
            settled(&case, grown(&case, &number.to_string(), 256 << 10, size, request));
            bytes += size;
        }
        let left = left_behind(&case.volume, before, bytes);
        println!("{medium:?} {kind:?}: {left:.2} % of {bytes} bytes");
        assert!(left <= 3.0, "{medium:?} {kind:?}: {left:.2} % of {bytes} bytes");
    });
}

#[test]
fn loop_runways_that_were_half_used_leave_nothing_behind() {
    everywhere(|medium, kind| {
        let case = Case::on(medium, kind);
        let before = used_space(&case.volume).unwrap();
        let sizes = [5, 8, 9, 11].map(|mebibytes| mebibytes * MIB + 4096);
        for (number, size) in sizes.into_iter().enumerate() {
            settled(&case, grown(&case, &number.to_string(), MIB, size, 256 << 10));
        }
        let left = left_behind(&case.volume, before, sizes.iter().sum());
        println!("{medium:?} {kind:?}: {left:.2} %");
        assert!(left <= 3.0, "{medium:?} {kind:?}: {left:.2} %");
    });
}

#[test]
fn loop_what_a_service_that_ended_left_is_given_back_by_the_next_to_the_last_extent() {
    everywhere(|medium, kind| {
        let case = Case::on(medium, kind);
        let before = used_space(&case.volume).unwrap();
        let sizes = [1, 3, 2].map(|mebibytes| mebibytes * MIB);
        let files: Vec<File> = sizes
            .into_iter()
            .enumerate()
            .map(|(number, size)| grown(&case, &number.to_string(), 512 << 10, size, 64 << 10))
            .collect();
        let Case { prevention, state, volume, watched, .. } = case;
        let totals = prevention.stop();
        assert_eq!(totals.given_back.left_files, 3, "{medium:?} {kind:?}: {totals:?}");
        drop(files);
        let (_, _, prevention) = common::case::start(state.path(), std::time::Duration::from_millis(50));
        let swept = prevention.watch(&watched, Settings::default()).unwrap();
        assert_eq!(swept.settled, 3, "{medium:?} {kind:?}: {swept:?}");
        let left = left_behind(&volume, before, sizes.iter().sum());
        println!("{medium:?} {kind:?}: {left:.2} %");
        assert!(left <= 3.0, "{medium:?} {kind:?}: {left:.2} %");
        drop(prevention);
    });
}

#[test]
fn loop_windows_that_were_half_written_leave_nothing_behind() {
    for (medium, kind) in Medium::ALL.into_iter().flat_map(|m| [(m, FileSystemKind::Xfs), (m, FileSystemKind::Btrfs)]) {
        let case = Case::on(medium, kind);
        let before = used_space(&case.volume).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(case.path("sparse")).unwrap();
        // Too large to be taken for one that is written all over.
        file.set_len(256 * MIB).unwrap();
        let content = vec![7; 64 << 10];
        for window in 0..4 {
            let base = window * 16 * MIB;
            file.write_all_at(&content, base + 4 * MIB).unwrap();
            file.sync_data().unwrap();
            case.notes.0.lock().unwrap().clear();
            let scattered = SignalKind::Scattered { at: Bytes(base + 4 * MIB), allocations: 8, bytes: Bytes(8 << 16) };
            case.told.tell(case.key(&file), 256 * MIB, scattered);
            case.granted();
            // The first half of it.
            for at in (0..8 * MIB).step_by(64 << 10) {
                file.write_all_at(&content, base + at).unwrap();
            }
            file.sync_data().unwrap();
        }
        settled(&case, file);
        let bytes = fs::metadata(case.path("sparse")).unwrap().blocks() * 512;
        let left = left_behind(&case.volume, before, bytes);
        println!("{medium:?} {kind:?}: {left:.2} % of {bytes} bytes");
        assert!(bytes <= 36 * MIB && left <= 3.0, "{medium:?} {kind:?}: {left:.2} % of {bytes} bytes");
    }
}

/// Files of 16 to 256 KiB on half of the volume, and every other deleted.
fn put_free_space_in_pieces(point: &Path) {
    let mut rng = fastrand::Rng::with_seed(5);
    let content = vec![3; 256 << 10];
    let directory = point.join("pieces");
    fs::create_dir(&directory).unwrap();
    let sync = || longrun_sys::sync_volume(File::open(point).unwrap()).unwrap();
    (0..3600)
        .for_each(|file| fs::write(directory.join(file.to_string()), &content[..rng.usize(4..=64) * 4096]).unwrap());
    sync();
    (0..3600).step_by(2).for_each(|file| fs::remove_file(directory.join(file.to_string())).unwrap());
    sync();
}

#[test]
fn loop_where_the_free_space_is_in_pieces_files_leave_no_more_behind() {
    everywhere(|medium, kind| {
        let case = Case::sized(medium, kind, 1024);
        put_free_space_in_pieces(&case.volume.mount_point());
        let before = used_space(&case.volume).unwrap();
        let mut rng = fastrand::Rng::with_seed(4);
        let sizes: Vec<u64> = (0..12).map(|_| rng.u64(MIB..6 * MIB).next_multiple_of(512)).collect();
        for (number, size) in sizes.iter().enumerate() {
            settled(&case, grown(&case, &number.to_string(), 256 << 10, *size, 64 << 10));
        }
        let left = left_behind(&case.volume, before, sizes.iter().sum());
        let excess: u64 = (0..12).map(|file| fragments(&case.path(&file.to_string())) - 1).sum();
        println!("{medium:?} {kind:?}: {left:.2} %, {excess} excess");
        assert!(left <= 3.0, "{medium:?} {kind:?}: {left:.2} %");
        drop(case.prevention.stop());
        case.volume.remount().unwrap();
        for (number, size) in sizes.iter().enumerate() {
            let content = fs::read(case.volume.mount_point().join(number.to_string())).unwrap();
            assert!(content.len() as u64 == *size && content.iter().all(|byte| *byte == 7), "{kind:?}: {number}");
        }
    });
}

#[test]
fn loop_small_volumes_have_room_for_runways() {
    everywhere(|medium, kind| {
        for mebibytes in [256, 512, 1024, 8192] {
            if kind == FileSystemKind::Xfs && mebibytes < 300 {
                // Its mkfs makes none as small.
                continue;
            }
            let case = Case::sized(medium, kind, mebibytes);
            let (_file, key) = case.growing("file");
            case.happens(|happening| matches!(happening, Happening::Granted { .. } | Happening::Left { .. }));
            let granted = case.notes.0.lock().unwrap().iter().find_map(|happening| match happening {
                Happening::Granted { file, range, .. } if *file == key => Some(range.length),
                _ => None,
            });
            assert!(granted.is_some_and(|length| length.0 >= 7 * MIB), "{medium:?} {kind:?} {mebibytes}: {granted:?}");
        }
    });
}

fn btrfs(arguments: &[&str], paths: &[&Path]) {
    let status =
        Command::new("btrfs").args(arguments).args(paths).stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success(), "btrfs {arguments:?} {paths:?}");
}

#[test]
fn loop_a_snapshot_holds_of_a_runway_no_more_than_was_granted_and_gone_it_leaves_nothing_behind() {
    for medium in Medium::ALL {
        let case = Case::on(medium, FileSystemKind::Btrfs);
        let before = used_space(&case.volume).unwrap();
        let file = grown(&case, "file", MIB, 6 * MIB, 64 << 10);
        let snapshot = case.path("snapshot");
        btrfs(&["subvolume", "snapshot", "-r"], &[&case.volume.mount_point(), &snapshot]);
        let content = vec![8; 64 << 10];
        for at in (6 * MIB..12 * MIB).step_by(64 << 10) {
            file.write_all_at(&content, at).unwrap();
            file.sync_data().unwrap();
        }
        settled(&case, file);
        let with = used_space(&case.volume).unwrap().0 - before.0;
        // The runway of an unknown file, and what was written beside it since.
        assert!(with <= (12 + 16) * MIB, "{medium:?}: {with} bytes");
        btrfs(&["subvolume", "delete"], &[&snapshot]);
        let left = left_behind(&case.volume, before, 12 * MIB);
        println!("{medium:?}: {} MiB with the snapshot, {left:.2} % without", with / MIB);
        assert!(left <= 3.0, "{medium:?}: {left:.2} %");
        let read = fs::read(case.path("file")).unwrap();
        assert!(read[..6 << 20].iter().all(|byte| *byte == 7) && read[6 << 20..].iter().all(|byte| *byte == 8));
    }
}

/// Eight files that programs write past the cache at the same time: the sensor tells nothing of what its own process writes.
fn write_directly(directory: &Path, bytes: u64) {
    let count = format!("count={}", bytes >> 16);
    let writers = (0..8).map(|file| {
        let to = format!("of={}", directory.join(file.to_string()).display());
        Command::new("dd").args(["if=/dev/zero", "bs=64k", "oflag=direct", "status=none", &count, &to]).spawn().unwrap()
    });
    let writers: Vec<_> = writers.collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
}

/// The shipped service beside writers of its own: what it prevents, and what that costs.
#[test]
fn loop_direct_writers_are_kept_whole_and_leave_nothing_behind() {
    everywhere(|medium, kind| {
        for (rounds, bytes) in [(1, 64 * MIB), (5, 3 * MIB)] {
            let (volume, watched) = volume_on(medium, kind, 4096);
            let before = used_space(&volume).unwrap();
            let state = tempfile::tempdir().unwrap();
            let prevention =
                Prevention::start(Options::new(state.path().to_owned()), Arc::new(Notes::default())).unwrap();
            prevention.watch(&watched, Settings::default()).unwrap();
            let mut excess = 0;
            for round in 0..rounds {
                let directory = volume.mount_point().join(round.to_string());
                fs::create_dir(&directory).unwrap();
                write_directly(&directory, bytes);
                eventually(|| (prevention.snapshot().volumes[0].runways == 0).then_some(()));
                excess += (0..8).map(|file| fragments(&directory.join(file.to_string())) - 1).sum::<u64>();
            }
            let totals = prevention.stop();
            let left = left_behind(&volume, before, rounds * 8 * bytes);
            println!(
                "{medium:?} {kind:?} {} x {} MiB: {left:.2} % left behind, {excess} excess, {} grants, reaction {:?}",
                rounds * 8,
                bytes / MIB,
                totals.last.volumes[0].grants,
                (&totals.last.reaction, &totals.last.sensor, &totals.last.volumes[0].left)
            );
            assert!(left <= 3.0, "{medium:?} {kind:?}: {left:.2} %");
        }
    });
}
