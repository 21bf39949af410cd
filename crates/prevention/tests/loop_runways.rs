//! Runways on real volumes of each file system: given, remembered, and given back without harm.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod common;

use common::case::{Case, Notes, eventually, for_all, start};
use common::volume;
use longrun_lab::oracle::used_space;
use longrun_lab::{
    FileSystemKind, LoopVolume, TrimTortureSettings, VolumeSpec, bytes_beyond_the_end, trim_torture, write_in_pieces,
};
use longrun_layout::Bytes;
use longrun_prevention::policy::Settings;
use longrun_prevention::{FileKey, Happening, NoRunway, Options, Prevention, SignalKind, Watched};
use longrun_sys::{ByteRange, Errno, FileHandle, Mapping};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn loop_a_growing_file_gets_a_runway_and_gives_it_back_when_it_is_closed() {
    for_all(|kind| {
        let case = Case::new(kind);
        let before = used_space(&case.volume).unwrap();
        let (file, key) = case.growing("file");
        let Happening::Granted { path, range, .. } = case.granted() else { panic!() };
        assert_eq!(path, Some(case.path("file")));
        assert!(range.start.0 >= 1 << 20 && range.length.0 >= 4 << 20, "{kind:?}: {range:?}");
        assert!(bytes_beyond_the_end(&case.path("file")).unwrap() >= 4 << 20);
        assert!(!case.prevention.quiet(&key));
        drop(file);
        case.told.tell(key, 1 << 20, SignalKind::Closed);
        let Happening::Settled { given_back, .. } = case.happens(|h| matches!(h, Happening::Settled { .. })) else {
            panic!()
        };
        assert!(given_back.0 >= 4 << 20, "{kind:?}: {given_back:?}");
        assert_eq!(bytes_beyond_the_end(&case.path("file")).unwrap(), 0);
        assert_eq!(fs::read(case.path("file")).unwrap(), vec![7; 1 << 20]);
        let used = used_space(&case.volume).unwrap().0 - before.0;
        // What describes the file takes some blocks, too.
        assert!(used <= (1 << 20) + (128 << 10), "{kind:?}: {used} bytes");
        let snapshot = case.prevention.snapshot();
        let figures = &snapshot.volumes[0];
        assert_eq!((figures.runways, figures.held, figures.grants), (0, Bytes(0), 1), "{kind:?}");
    });
}

/// Behind as many writers as there are processors, an answer took 3 to 9 ms in place of 1: twenty more pieces a file.
#[test]
fn loop_who_answers_does_not_wait_behind_the_writers_for_a_processor() {
    let permitted = std::thread::spawn(|| longrun_sys::run_before_others().is_ok());
    if !permitted.join().unwrap() {
        println!("skipped: this system does not permit real-time priorities");
        return;
    }
    let _case = Case::new(FileSystemKind::Ext4);
    eventually(|| {
        let policies: Vec<(String, String)> = fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok())
            .filter_map(|stat| {
                let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
                // The 41st field of a thread's line; the 3rd is the first behind its name.
                Some((name.to_owned(), rest.split_whitespace().nth(38)?.to_owned()))
            })
            .filter(|(name, _)| name.starts_with("runway-"))
            .collect();
        // Those of other tests, which begin and end meanwhile, are among them.
        let senses = policies.iter().any(|(name, _)| name == "runway-sensor");
        (senses && policies.len() >= 10 && policies.iter().all(|(_, policy)| policy == "1")).then_some(())
    });
}

#[test]
fn loop_a_lost_close_is_made_up_for() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, _) = case.growing("file");
        case.granted();
        drop(file);
        // Nobody tells.
        case.happens(|happening| matches!(happening, Happening::Settled { .. }));
        assert_eq!(bytes_beyond_the_end(&case.path("file")).unwrap(), 0);
    });
}

#[test]
fn loop_giving_back_changes_no_time_of_modification() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, key) = case.growing("file");
        case.granted();
        // As cp and tar do: before the close.
        let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_times(fs::FileTimes::new().set_modified(set)).unwrap();
        let accessed = file.metadata().unwrap().accessed().unwrap();
        drop(file);
        case.told.tell(key, 1 << 20, SignalKind::Closed);
        case.happens(|happening| matches!(happening, Happening::Settled { given_back, .. } if given_back.0 > 0));
        let after = fs::metadata(case.path("file")).unwrap();
        assert_eq!(after.modified().unwrap(), set, "{kind:?}");
        assert_eq!(after.accessed().unwrap(), accessed, "{kind:?}");
    });
}

#[test]
fn loop_a_file_whose_times_were_set_gets_nothing_that_would_change_them() {
    for_all(|kind| {
        let case = Case::new(kind);
        let mut file = File::create_new(case.path("file")).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        // A moment ago only: that it is recent proves nothing.
        let set = SystemTime::now() - Duration::from_secs(3);
        file.set_times(fs::FileTimes::new().set_modified(set)).unwrap();
        let before = file.metadata().unwrap();
        case.told.tell_of_growth(case.key(&file), 1 << 20);
        if kind == FileSystemKind::Xfs {
            // Through its handle no time changes: neither this one nor that of the last change.
            case.granted();
            assert_eq!(file.metadata().unwrap().ctime_nsec(), before.ctime_nsec());
        } else {
            let left = case.happens(|happening| matches!(happening, Happening::Left { .. }));
            assert!(matches!(left, Happening::Left { reason: NoRunway::TimesSet, .. }), "{kind:?}: {left:?}");
        }
        assert_eq!(file.metadata().unwrap().modified().unwrap(), set, "{kind:?}");
    });
}

#[test]
fn loop_files_that_must_not_be_touched_are_left_alone() {
    for_all(|kind| {
        let case = Case::new(kind);
        let left = |name: &str, file: &File| {
            case.notes.0.lock().unwrap().clear();
            case.told.tell_of_growth(case.key(file), 1 << 20);
            let Happening::Left { reason, .. } = case.happens(|h| matches!(h, Happening::Left { .. })) else {
                panic!()
            };
            assert_eq!(bytes_beyond_the_end(&case.path(name)).unwrap() >> 21, 0, "{kind:?}: {name}");
            reason
        };
        let file = File::create_new(case.path("program")).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(left("program", &file), NoRunway::Executable);
    });
}

#[test]
fn loop_what_somebody_preallocated_is_neither_added_to_nor_taken() {
    for_all(|kind| {
        let case = Case::new(kind);
        let mut file = File::create_new(case.path("file")).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        longrun_sys::allocate(&file, ByteRange { start: Bytes(1 << 20), length: Bytes(8 << 20) }).unwrap();
        case.told.tell_of_growth(case.key(&file), 1 << 20);
        case.happens(|happening| matches!(happening, Happening::Left { .. }));
        let key = case.key(&file);
        drop(file);
        case.told.tell(key, 1 << 20, SignalKind::Closed);
        std::thread::sleep(Duration::from_millis(200));
        drop(case.prevention.stop());
        let path = case.volume.mount_point().join("file");
        assert_eq!(bytes_beyond_the_end(&path).unwrap(), 8 << 20, "{kind:?}");
    });
}

#[test]
fn loop_what_is_open_at_the_end_waits_in_the_journal_for_the_next_start() {
    for_all(|kind| {
        let (volume, state) = Case::ended_with_open_file(kind);
        // Mounted again, which counts as another volume for all but the journal.
        let path = volume.mount_point().join("open");
        assert!(bytes_beyond_the_end(&path).unwrap() >= 4 << 20);
        volume.remount().unwrap();
        let again = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let (_, _, prevention) = start(state.path(), Duration::from_millis(50));
        let swept = prevention.watch(&again, Settings::default()).unwrap();
        assert_eq!((swept.files, swept.settled, swept.open), (1, 1, 0), "{kind:?}: {swept:?}");
        assert!(swept.bytes.0 >= 4 << 20);
        assert_eq!(bytes_beyond_the_end(&path).unwrap(), 0);
    });
}

#[test]
fn loop_sparse_windows_give_back_what_was_not_written_and_keep_every_byte() {
    for kind in [FileSystemKind::Xfs, FileSystemKind::Btrfs] {
        let case = Case::new(kind);
        let file = File::options().read(true).write(true).create_new(true).open(case.path("sparse")).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[7; 64 << 10], 20 << 20).unwrap();
        file.sync_all().unwrap();
        let key = case.key(&file);
        let at = Bytes(20 << 20);
        let scattered = SignalKind::Scattered { at, allocations: 8, bytes: Bytes(8 << 14) };
        case.told.tell(key, 64 << 20, scattered);
        case.granted();
        // In memory only: by its map the place looks unwritten.
        file.write_all_at(&[9; 64 << 10], 30 << 20).unwrap();
        drop(file);
        case.told.tell(key, 64 << 20, SignalKind::Closed);
        let Happening::Settled { given_back, .. } = case.happens(|h| matches!(h, Happening::Settled { .. })) else {
            panic!()
        };
        assert!(given_back.0 >= 10 << 20, "{kind:?}: {given_back:?}");
        drop(case.prevention.stop());
        case.volume.remount().unwrap();
        let content = fs::read(case.volume.mount_point().join("sparse")).unwrap();
        let is = |at: usize, byte: u8| content[at..at + (64 << 10)].iter().all(|b| *b == byte);
        assert!(is(20 << 20, 7) && is(30 << 20, 9), "{kind:?}");
    }
}

#[test]
fn loop_under_pressure_closed_files_give_back_at_once_and_nothing_is_granted() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (held, _) = case.growing("held");
        case.granted();
        // Somebody fills the volume to the last byte.
        let filler = File::create_new(case.path("filler")).unwrap();
        let (mut at, mut step) = (0, 64 << 20);
        while step >= 1 << 20 {
            match longrun_sys::allocate(&filler, ByteRange { start: Bytes(at), length: Bytes(step) }) {
                Ok(()) => at += step,
                Err(_) => step /= 2,
            }
        }
        let (_other, _) = case.growing_if_possible("other");
        case.happens(|h| matches!(h, Happening::Left { reason: NoRunway::LowSpace, .. }));
        drop(held);
        // Nobody tells of the close; that space is short is reason enough.
        case.happens(|happening| matches!(happening, Happening::Yielded { .. }));
        assert_eq!(bytes_beyond_the_end(&case.path("held")).unwrap(), 0, "{kind:?}");
    });
}

#[test]
fn loop_a_watched_volume_can_be_unmounted() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, _) = case.growing("file");
        case.granted();
        drop(file);
        // The laboratory's own unmount tries again, for moments; here it has to work at once, or nearly so.
        let point = case.volume.mount_point();
        let unmounted = (0..3).any(|_| {
            let status = std::process::Command::new("umount").arg(&point).status().unwrap();
            std::thread::sleep(Duration::from_millis(if status.success() { 0 } else { 20 }));
            status.success()
        });
        assert!(unmounted, "{kind:?}");
        let back = case.prevention.unwatch(case.watched.device);
        assert!(back.left_files <= 1);
    });
}

#[test]
fn loop_short_torture_loses_no_byte() {
    for_all(|kind| {
        let report = trim_torture(&TrimTortureSettings { kind, appends: 2000, writers: 6, seed: 7 }).unwrap();
        assert!(report.grants > 20 && report.trims > 5, "{report:?}");
    });
}

/// Copies a program in a process of its own: a descriptor of ours could be inherited by what another test starts, and would
/// keep the file busy for reasons that are not prevention's.
fn copy_program(to: &Path, mode: &str) -> u64 {
    let copied = std::process::Command::new("install").args(["-m", mode, "/bin/true"]).arg(to).status().unwrap();
    assert!(copied.success());
    fs::metadata(to).unwrap().len()
}

fn executes(path: &Path) {
    let status = std::process::Command::new(path).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{}: {status:?}", path.display());
}

#[test]
fn loop_a_file_that_was_just_written_can_be_executed() {
    for_all(|kind| {
        let case = Case::new(kind);
        for number in 0..40 {
            let path = case.path(&format!("program{number}"));
            let size = copy_program(&path, "755");
            let key = case.key(&File::open(&path).unwrap());
            for _ in 0..4 {
                case.told.tell_of_growth(key, size);
                case.told.tell(key, size, SignalKind::Closed);
                executes(&path);
            }
        }
        assert_eq!(case.prevention.stop().last.volumes[0].grants, 0);
    });
}

#[test]
fn loop_a_file_that_was_made_executable_is_not_opened_while_it_is_new() {
    for_all(|kind| {
        let case = Case::new(kind);
        let path = case.path("program");
        let size = copy_program(&path, "644");
        let key = case.key(&File::open(&path).unwrap());
        // Held open for reading, so that the runway is there still when the mode changes.
        let held = File::open(&path).unwrap();
        if kind != FileSystemKind::Xfs {
            // A copy sets times: a write makes them new.
            let status = std::process::Command::new("sh").args(["-c", "cat /bin/true > \"$0\""]).arg(&path).status();
            assert!(status.unwrap().success());
        }
        case.told.tell_of_growth(key, size);
        case.granted();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        drop(held);
        case.told.tell(key, size, SignalKind::Closed);
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            executes(&path);
        }
        // Not forgotten: at the next start it is old enough.
        let totals = case.prevention.stop();
        assert_eq!(totals.given_back.left_files, 1, "{kind:?}: {totals:?}");
    });
}

#[test]
fn loop_whoever_does_not_want_to_wait_is_turned_away_for_one_moment_at_most() {
    for_all(|kind| {
        let case = Case::new(kind);
        let (file, key) = case.growing("file");
        case.granted();
        drop(file);
        case.told.tell(key, 1 << 20, SignalKind::Closed);
        let nonblock = longrun_sys::OFlags::NONBLOCK.bits().cast_signed();
        let open = || File::options().read(true).custom_flags(nonblock).open(case.path("file"));
        let mut moments = 0;
        for _ in 0..20_000 {
            if open().is_err() {
                moments += 1;
                eventually(|| open().ok());
            }
        }
        // One lease for one close, and one more if the first met an opener; without the table it would be thousands.
        assert!(moments <= 2, "{kind:?}: {moments}");
    });
}

#[test]
fn loop_a_file_that_was_laid_in_pieces_gets_nothing_and_is_told_of_once_it_is_quiet() {
    for_all(|kind| {
        let case = Case::new(kind);
        write_in_pieces(kind, &case.path("file"), &[7; 1 << 20], Bytes(64 << 10), 1).unwrap();
        let file = File::open(case.path("file")).unwrap();
        let in_pieces = longrun_sys::map_file(&file, ByteRange::ALL, Mapping::Synced).unwrap().len() as u64;
        case.told.tell(case.key(&file), 1 << 20, SignalKind::InPieces);
        let told = case.happens(|happening| matches!(happening, Happening::Fragmented { .. }));
        let expected =
            Happening::Fragmented { file: case.key(&file), path: Some(case.path("file")), excess: in_pieces - 1 };
        assert_eq!(told, expected, "{kind:?}");
        assert_eq!(*case.notes.0.lock().unwrap(), [expected], "{kind:?}: nothing else happened");
    });
}

#[test]
fn campaign_the_sensor_and_the_runways_together_keep_direct_writers_whole() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 1024);
    let before = used_space(&volume).unwrap();
    let state = tempfile::tempdir().unwrap();
    let prevention = Prevention::start(Options::new(state.path().to_owned()), Arc::new(Notes::default())).unwrap();
    prevention.watch(&watched, Settings::default()).unwrap();
    let path = |name: u64| volume.mount_point().join(name.to_string());
    // Of what this process writes itself, the sensor tells nothing.
    let writer = |name: u64| {
        let mut dd = std::process::Command::new("dd");
        dd.args(["bs=64k", "iflag=fullblock", "oflag=direct", "status=none"])
            .arg(format!("of={}", path(name).display()));
        (path(name), dd.stdin(std::process::Stdio::piped()).spawn().unwrap())
    };
    let mut writers: Vec<(PathBuf, std::process::Child)> = (1..=6).map(writer).collect();
    // The first MiB is written as fast as can be: what grows slowly is not told of. How soon the service comes then depends on how
    // busy the machine is: a writer without a runway waits a little, all of them a minute.
    let mut waits = 6000;
    for nth in 0..400 {
        for (path, dd) in &mut writers {
            dd.stdin.as_mut().unwrap().write_all(&[7; 64 << 10]).unwrap();
            for _ in 0..5 {
                if waits > 0 && nth >= 16 && bytes_beyond_the_end(path).unwrap() == 0 {
                    waits -= 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
    for (_, mut dd) in writers {
        drop(dd.stdin.take());
        assert!(dd.wait().unwrap().success());
    }
    let excess: usize = (1..=6)
        .map(|name| {
            let file = File::open(path(name)).unwrap();
            longrun_sys::map_file(&file, ByteRange::ALL, Mapping::Synced).unwrap().len() - 1
        })
        .sum();
    let totals = prevention.stop();
    assert!(totals.last.volumes[0].grants > 0, "{totals:?}");
    // Without prevention some hundreds each.
    assert!(excess < 200, "{excess} excess fragments: {totals:?}");
    let used = used_space(&volume).unwrap().0 - before.0;
    assert!(used <= 6 * 400 * (64 << 10) * 103 / 100, "{used} bytes");
    for name in 1..=6 {
        assert_eq!(bytes_beyond_the_end(&path(name)).unwrap(), 0, "{name}");
    }
}

/// The journal was written while its lock was held, and the history by the thread that watches the free space: all who asked how
/// things stand waited with them, the watchdog of the service too.
#[test]
fn loop_a_frozen_state_directory_holds_up_neither_status_nor_giving_back_nor_the_end() {
    let state = LoopVolume::create(&VolumeSpec::of(FileSystemKind::Ext4, 64)).unwrap();
    let (volume, watched) = volume(FileSystemKind::Xfs, 4096);
    let (told, notes, prevention) = start(&state.mount_point(), Duration::from_millis(50));
    prevention.watch(&watched, Settings::default()).unwrap();
    let file = |name: &str| {
        let file = File::create_new(volume.mount_point().join(name)).unwrap();
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let key = FileKey { volume: watched.device, handle: FileHandle::of_file(&file).unwrap() };
        told.tell_of_growth(key, 1 << 20);
        (file, key)
    };
    let happened = |what: fn(&Happening) -> bool| eventually(|| notes.0.lock().unwrap().iter().any(what).then_some(()));
    let (held, key) = file("held");
    happened(|happening| matches!(happening, Happening::Granted { .. }));
    let frozen = state.freeze().unwrap();
    // Refused after a while: that it has a runway cannot be remembered.
    let (_refused, _) = file("refused");
    drop(held);
    told.tell(key, 1 << 20, SignalKind::Closed);
    happened(|happening| matches!(happening, Happening::Settled { given_back, .. } if given_back.0 > 0));
    happened(|happening| matches!(happening, Happening::Left { reason: NoRunway::Refused, .. }));
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let trouble = prevention.snapshot().journal_trouble;
        sender.send((trouble, prevention.stop())).unwrap();
    });
    let (trouble, totals) = ended.recv_timeout(Duration::from_secs(300)).unwrap();
    assert!(trouble.is_some_and(|trouble| trouble.contains("does not respond")));
    assert_eq!(totals.last.volumes[0].grants, 1);
    drop(frozen);
}

/// ext4 gives back what lies behind the end only of files that can be written past the page cache. Through the cache, the call that
/// does it would make the file longer.
#[test]
fn loop_what_ext4_could_not_give_back_gets_no_runway_and_keeps_its_length() {
    let volume = LoopVolume::create(&VolumeSpec::of(FileSystemKind::Ext4, 4096).mount("data=journal")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let (told, notes, prevention) = start(state.path(), Duration::from_millis(50));
    let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
    prevention.watch(&watched, Settings::default()).unwrap();
    let file = File::create_new(volume.mount_point().join("file")).unwrap();
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let key = FileKey { volume: watched.device, handle: FileHandle::of_file(&file).unwrap() };
    told.tell_of_growth(key, 1 << 20);
    let left = |h: &Happening| if let Happening::Left { reason, .. } = h { Some(*reason) } else { None };
    let reason = eventually(|| notes.0.lock().unwrap().iter().find_map(left));
    assert_eq!(reason, NoRunway::Attributes);
    assert_eq!(longrun_sys::free_behind_end(&file, Bytes(1 << 20)), Err(Errno::OPNOTSUPP));
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
}
