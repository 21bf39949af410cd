//! What somebody preallocates himself behind the end of a file that has, or had, a runway: it stays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod common;

use common::case::{Case, eventually, for_all, start};
use common::watched;
use longrun_lab::{FileSystemKind, LoopVolume, bytes_beyond_the_end};
use longrun_layout::Bytes;
use longrun_prevention::policy::Settings;
use longrun_prevention::{FileKey, Happening, SignalKind, Swept};
use longrun_sys::ByteRange;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn preallocate(file: &File, start: u64, length: u64) {
    longrun_sys::allocate(file, ByteRange { start: Bytes(start), length: Bytes(length) }).unwrap();
}

/// Closes the file, and waits until prevention has done with it.
fn close(case: &Case, file: File, key: FileKey) {
    case.notes.0.lock().unwrap().clear();
    drop(file);
    case.told.tell(key, MIB, SignalKind::Closed);
    case.happens(|happening| matches!(happening, Happening::Settled { .. }));
}

fn open(case: &Case) -> File {
    File::options().append(true).open(case.path("file")).unwrap()
}

#[test]
fn loop_what_the_owner_preallocates_over_a_runway_stays_at_the_close() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, key) = case.growing("file");
        case.granted();
        preallocate(&file, MIB, 64 * MIB);
        close(&case, file, key);
        assert_eq!(bytes_beyond_the_end(&case.path("file")).unwrap(), 64 * MIB, "{kind:?}");
        // Nor does it get another runway, or lose anything at the end.
        case.told.tell_of_growth(key, MIB);
        case.happens(|happening| matches!(happening, Happening::Left { .. }));
        drop(case.prevention.stop());
        let path = case.volume.mount_point().join("file");
        assert_eq!(bytes_beyond_the_end(&path).unwrap(), 64 * MIB, "{kind:?}");
    });
}

#[test]
fn loop_what_the_owner_preallocates_far_behind_a_runway_stays_and_the_runway_goes() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, key) = case.growing("file");
        case.granted();
        preallocate(&file, 256 * MIB, 8 * MIB);
        close(&case, file, key);
        let beyond = bytes_beyond_the_end(&case.path("file")).unwrap();
        if kind == FileSystemKind::Ext4 {
            // It can only give back all or nothing.
            assert!(beyond > 8 * MIB, "{beyond}");
        } else {
            assert_eq!(beyond, 8 * MIB, "{kind:?}");
        }
    });
}

#[test]
fn loop_what_the_owner_preallocates_when_the_runway_is_gone_stays_too() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, key) = case.growing("file");
        case.granted();
        close(&case, file, key);
        assert_eq!(bytes_beyond_the_end(&case.path("file")).unwrap(), 0, "{kind:?}");
        let file = open(&case);
        preallocate(&file, MIB, 8 * MIB);
        drop(file);
        case.told.tell(key, MIB, SignalKind::Closed);
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(case.prevention.stop());
        let path = case.volume.mount_point().join("file");
        assert_eq!(bytes_beyond_the_end(&path).unwrap(), 8 * MIB, "{kind:?}");
    });
}

/// 20 MiB that a program had preallocated were freed: a clone has the UUID of its origin, and its files have the same handles.
#[test]
fn loop_a_runway_of_one_volume_is_not_taken_from_its_clone() {
    for_all(|kind| {
        let (volume, state) = Case::ended_with_open_file(kind);
        let Some(clone) = volume.mounted_clone().unwrap() else {
            println!("skipped on {kind:?}: this kernel does not mount a clone beside its origin");
            return;
        };
        let beyond = |volume: &LoopVolume| bytes_beyond_the_end(&volume.mount_point().join("open")).unwrap();
        let preallocated = beyond(&clone);
        assert!(preallocated >= 4 * MIB && preallocated == beyond(&volume), "{kind:?}");
        let (_, _, prevention) = start(state.path(), Duration::from_millis(50));
        let watch = |volume: &LoopVolume| prevention.watch(&watched(volume), Settings::default()).unwrap();
        assert_eq!(watch(&clone), Swept::default(), "{kind:?}");
        assert_eq!(watch(&volume).settled, 1, "{kind:?}");
        drop(prevention.stop());
        assert_eq!((beyond(&clone), beyond(&volume)), (preallocated, 0), "{kind:?}");
    });
}

#[test]
fn loop_what_xfs_preallocates_itself_for_a_file_that_had_a_runway_goes() {
    let case = Case::new(FileSystemKind::Xfs);
    let (file, key) = case.growing("file");
    case.granted();
    close(&case, file, key);
    let mut file = open(&case);
    for _ in 0..40 {
        file.write_all(&[7; 1 << 20]).unwrap();
    }
    // Otherwise the test proves nothing: XFS preallocates, and keeps it in a file that a runway has marked.
    file.sync_all().unwrap();
    drop(file);
    assert!(bytes_beyond_the_end(&case.path("file")).unwrap() > MIB);
    case.told.tell(key, 41 * MIB, SignalKind::Closed);
    eventually(|| (bytes_beyond_the_end(&case.path("file")).unwrap() == 0).then_some(()));
    assert_eq!(case.path("file").metadata().unwrap().len(), 41 * MIB);
}
