//! The sensors on real volumes: who fragments is told of, who does not is not, and by the right names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use common::{
    Aligned, Mode, fragments, grow_in_turn, grow_together, is_for_good_reason, scatter, signals_during,
    signals_until_silent, volume,
};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, tool};
use longrun_layout::Bytes;
use longrun_prevention::sensor::{Choice, Sensor, Settings, open, open_with};
use longrun_prevention::{FileKey, SensorKind, Signal, SignalKind, Watched};
use longrun_sys::{ByteRange, FileHandle, allocate};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The writers of these tests are threads of this process.
fn bpf() -> Arc<dyn Sensor> {
    let settings = Settings { own_writes: true, ..Settings::default() };
    let opened = open_with(Choice::Bpf, settings).unwrap();
    assert_eq!(opened.sensor.kind(), SensorKind::Bpf);
    assert!(opened.refused.is_none());
    opened.sensor
}

fn key(watched: &Watched, path: &Path) -> FileKey {
    FileKey { volume: watched.device, handle: FileHandle::of_file(File::open(path).unwrap()).unwrap() }
}

fn only(signals: &[Signal], key: FileKey) -> Vec<SignalKind> {
    signals.iter().filter(|signal| signal.file == key).map(|signal| signal.kind).collect()
}

/// What is told of armed files: whether they fragment beside that is not asked here.
fn of_armed(signals: &[Signal], key: FileKey) -> Vec<SignalKind> {
    let mut kinds = only(signals, key);
    kinds.retain(|kind| matches!(kind, SignalKind::HalfUsed { .. } | SignalKind::Closed));
    kinds
}

#[test]
fn loop_files_that_grow_together_past_the_cache_are_all_told_of_by_their_handles() {
    for kind in [FileSystemKind::Xfs, FileSystemKind::Btrfs] {
        let (volume, watched) = volume(kind, 1024);
        let sensor = bpf();
        sensor.watch(&watched).unwrap();
        let signals =
            signals_during(&*sensor, || grow_in_turn(&volume.mount_point(), 8, 16 * MIB, 64 << 10, Mode::Direct));
        let keys: Vec<FileKey> =
            (0..8).map(|writer| key(&watched, &volume.mount_point().join(format!("grow{writer}")))).collect();
        for key in &keys {
            let mut own: Vec<&Signal> = signals.iter().filter(|signal| signal.file == *key).collect();
            // Told of at the first piece already, to be looked at in the end.
            own.retain(|signal| !matches!(signal.kind, SignalKind::InPieces));
            // By doubling, and a few more when a second passes: never one for each of the 256 writes.
            assert!((1..40).contains(&own.len()), "{kind:?} {key:?}: {own:?}");
            let SignalKind::Fragmenting { allocations, bytes, end } = own[0].kind else { panic!("{:?}", own[0]) };
            assert_eq!((allocations, bytes), (2, Bytes(128 << 10)), "{kind:?}");
            assert!(end <= own[0].size && end <= Bytes(8 * MIB), "{kind:?}: {:?}", own[0]);
        }
        assert!(signals.iter().all(|signal| keys.contains(&signal.file)), "{kind:?}: {signals:?}");
        assert_eq!(sensor.lost(), 0);
    }
}

#[test]
fn loop_ext4_is_told_of_later_and_by_the_right_handle() {
    let (volume, watched) = volume(FileSystemKind::Ext4, 512);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let directory = volume.mount_point();
    let signals = signals_during(&*sensor, || grow_in_turn(&directory, 8, 16 * MIB, 64 << 10, Mode::Direct));
    assert!(!signals.is_empty());
    let mut told = 0;
    for writer in 0..8 {
        let path = directory.join(format!("grow{writer}"));
        let mut own = only(&signals, key(&watched, &path));
        told += own.len();
        assert_eq!(!own.is_empty(), fragments(&path) > 1, "{} pieces: {own:?}", fragments(&path));
        own.retain(|kind| !matches!(kind, SignalKind::InPieces));
        if let Some(first) = own.first() {
            assert!(matches!(first, SignalKind::Fragmenting { allocations: 4, .. }), "{own:?}");
        }
        assert_eq!(!own.is_empty(), fragments(&path) > 4, "{} pieces: {own:?}", fragments(&path));
    }
    assert_eq!(told, signals.len(), "{signals:?}");
}

#[test]
fn loop_files_of_a_subvolume_are_told_of_by_their_handles_and_closes_too() {
    let (volume, watched) = volume(FileSystemKind::Btrfs, 1024);
    let subvolume = volume.mount_point().join("sub");
    tool::run("btrfs", ["subvolume".as_ref(), "create".as_ref(), subvolume.as_os_str()]).unwrap();
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let signals = signals_during(&*sensor, || grow_in_turn(&subvolume, 4, 8 * MIB, 64 << 10, Mode::Direct));
    let keys: BTreeSet<FileKey> =
        (0..4).map(|writer| key(&watched, &subvolume.join(format!("grow{writer}")))).collect();
    let told: BTreeSet<FileKey> = signals.iter().map(|signal| signal.file).collect();
    assert_eq!(told, keys);
    half_used_and_closed(&*sensor, &watched, &subvolume, Mode::Direct);
}

#[test]
fn loop_writes_scattered_over_a_hole_are_told_of() {
    use FileSystemKind::{Btrfs, Xfs};
    for (kind, mode) in [(Xfs, Mode::Direct), (Btrfs, Mode::Direct), (Xfs, Mode::Synced), (Btrfs, Mode::Synced)] {
        let (volume, watched) = volume(kind, 512);
        let sensor = bpf();
        sensor.watch(&watched).unwrap();
        let path = volume.mount_point().join("sparse");
        let signals = signals_during(&*sensor, || scatter(&path, 128 * MIB, 64 << 10, mode));
        let mut told = only(&signals, key(&watched, &path));
        assert!(!told.is_empty(), "{kind:?} {mode:?}: {} pieces", fragments(&path));
        assert_eq!(told.len(), signals.len());
        told.retain(|kind| !matches!(kind, SignalKind::InPieces));
        assert!(
            matches!(told[0], SignalKind::Scattered { allocations: 4, bytes: Bytes(0x4_0000), .. }),
            "{kind:?} {mode:?}: {told:?}"
        );
        let windows: BTreeSet<u64> = told
            .iter()
            .filter_map(|kind| match kind {
                SignalKind::Scattered { at, .. } => Some(at.0 >> 24),
                _ => None,
            })
            .collect();
        assert_eq!(windows.len(), 8, "each 16 MiB of the file are told of, {kind:?} {mode:?}: {told:?}");
        // By doubling, for each part, and once more after each second.
        assert!(told.len() < 200, "{} of 2048 writes are told of", told.len());
    }
}

#[test]
fn loop_what_the_file_system_keeps_whole_is_not_told_of_as_growing_in_pieces() {
    for kind in FileSystemKind::ALL {
        let (volume, watched) = volume(kind, 1024);
        let sensor = bpf();
        sensor.watch(&watched).unwrap();
        let directory = volume.mount_point();
        let sync = || longrun_sys::sync_volume(File::open(&directory).unwrap()).unwrap();
        let silent = |what: &str, work: &(dyn Fn() + Sync)| {
            let mut signals = signals_during(&*sensor, || {
                work();
                sync();
            });
            signals.retain(|signal| !is_for_good_reason(&directory, signal));
            assert_eq!(signals, [], "{kind:?}: {what}");
        };
        silent("8 files through the cache", &|| grow_together(&directory, 8, 32 * MIB, 64 << 10, Mode::Buffered));
        let single = directory.join("single");
        fs::create_dir(&single).unwrap();
        silent("one file past the cache", &|| grow_together(&single, 1, 32 * MIB, 64 << 10, Mode::Direct));
        silent("many small files", &|| {
            for number in 0..500 {
                fs::write(directory.join(format!("small{number}")), [1; 20_000]).unwrap();
            }
        });
        let ready = directory.join("ready");
        silent("writes into preallocated space", &|| {
            let file = Mode::Direct.open(&ready);
            allocate(&file, ByteRange { start: Bytes(0), length: Bytes(32 * MIB) }).unwrap();
            scatter(&ready, 32 * MIB, 64 << 10, Mode::Direct);
        });
        silent("overwriting in random order", &|| {
            scatter(&single.join("grow0"), 32 * MIB, 64 << 10, Mode::Direct);
        });
    }
}

/// Hardly a free piece is longer than `length`, and between any two of them lies a file of that length.
fn free_space_in_pieces(volume: &LoopVolume, length: u64) {
    let directory = volume.mount_point();
    let sync = || longrun_sys::sync_volume(File::open(&directory).unwrap()).unwrap();
    // Full may show in that there is no space for another name.
    let filled = |name: &str, length| {
        let file = File::create(directory.join(name)).ok()?;
        allocate(&file, ByteRange { start: Bytes(0), length: Bytes(length) }).ok()
    };
    let fillers = (0..).take_while(|number| filled(&format!("filler{number}"), length).is_some()).count();
    sync();
    (0..fillers).step_by(2).for_each(|number| fs::remove_file(directory.join(format!("filler{number}"))).unwrap());
    sync();
    // What the file system kept back for itself until then.
    for length in [16 * length, 4 * length] {
        let is_whole = |name: String| filled(&name, length).is_some() && fragments(&directory.join(name)) == 1;
        let mut plugs = 0;
        while is_whole(format!("plug{length}-{plugs}")) {
            plugs += 1;
        }
    }
}

#[test]
fn loop_files_that_were_laid_in_pieces_in_one_go_are_told_of_and_whole_ones_are_not() {
    for kind in FileSystemKind::ALL {
        let (volume, watched) = volume(kind, 512);
        free_space_in_pieces(&volume, 256 << 10);
        let sensor = bpf();
        sensor.watch(&watched).unwrap();
        let path = |number: u64| volume.mount_point().join(format!("file{number}"));
        let sizes: Vec<u64> = [64, 200, 700, 1500, 6000].map(|kibibytes| kibibytes << 10).to_vec();
        let signals = signals_during(&*sensor, || {
            for (number, size) in (0..).zip(&sizes) {
                let mut file = File::create(path(number)).unwrap();
                file.write_all(Aligned::new(usize::try_from(*size).unwrap()).get()).unwrap();
                file.sync_all().unwrap();
            }
        });
        let mut in_pieces = Vec::new();
        for (number, size) in (0..).zip(&sizes) {
            let told = only(&signals, key(&watched, &path(number)));
            let heard = told.iter().any(|kind| matches!(kind, SignalKind::InPieces));
            let pieces = fragments(&path(number));
            assert_eq!(heard, pieces > 1, "{kind:?}: {size} bytes in {pieces} pieces: {told:?}");
            in_pieces.push(heard);
        }
        assert_eq!(in_pieces[3..], [true, true], "{kind:?}: the free space is not in pieces");
        assert!(in_pieces.contains(&false), "{kind:?}: no file is whole");
    }
}

/// XFS preallocates ahead of such files, each time twice as much, and each time somewhere else.
#[test]
fn loop_files_that_grow_together_through_the_cache_on_xfs_are_told_of() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 512);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let directory = volume.mount_point();
    let signals = signals_during(&*sensor, || grow_in_turn(&directory, 4, 4 * MIB, 16 << 10, Mode::Synced));
    for writer in 0..4 {
        let path = directory.join(format!("grow{writer}"));
        let told = only(&signals, key(&watched, &path));
        assert!(fragments(&path) > 2, "{told:?}");
        assert!(told.iter().any(|kind| matches!(kind, SignalKind::InPieces)), "{told:?}");
    }
}

/// Whoever hears of a file looks at it: a flood of them would cost more than it brings.
#[test]
fn loop_files_in_pieces_are_told_of_no_faster_than_anybody_can_look_at_them() {
    const FILES: usize = 3000;
    let (volume, watched) = volume(FileSystemKind::Xfs, 512);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let directory = volume.mount_point();
    let grow = |at: u64| {
        for number in 0..FILES {
            let file = Mode::Buffered.open(&directory.join(number.to_string()));
            file.write_all_at(&[1; 16 << 10], at).unwrap();
        }
        longrun_sys::sync_volume(File::open(&directory).unwrap()).unwrap();
    };
    // Each lies behind another by now, and goes on elsewhere.
    grow(0);
    let begin = Instant::now();
    let signals = signals_during(&*sensor, || grow(16 << 10));
    let most = 2000 + 200 * (begin.elapsed().as_secs() + 1);
    assert!(signals.len() > 1900, "{} of {FILES}", signals.len());
    assert!(signals.len() as u64 <= most, "{} in {:?}", signals.len(), begin.elapsed());
    assert_eq!(sensor.lost(), 0);
}

/// Each record moves the last block, which copy on write puts elsewhere whether there is a runway or not: with one, files
/// like these lay in more pieces (1023 each instead of 747).
#[test]
fn loop_logs_whose_last_block_moves_with_each_record_are_not_told_of_on_btrfs() {
    let (volume, watched) = volume(FileSystemKind::Btrfs, 1024);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let logs: Vec<File> =
        (0..4).map(|log| File::create(volume.mount_point().join(format!("log{log}"))).unwrap()).collect();
    let signals = signals_during(&*sensor, || {
        for record in 0..300 {
            for log in &logs {
                log.write_all_at(&[b'.'; 3000], record * 3000).unwrap();
                log.sync_data().unwrap();
            }
        }
    });
    assert!(signals.is_empty(), "{signals:?}");
}

#[test]
fn loop_executables_are_left_alone_and_so_is_what_is_not_watched() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 1024);
    let sensor = bpf();
    let directory = volume.mount_point();
    let grow = || grow_in_turn(&directory, 8, 4 * MIB, 64 << 10, Mode::Direct);
    assert_eq!(signals_during(&*sensor, grow), [], "not yet watched");
    sensor.watch(&watched).unwrap();
    for writer in 0..8 {
        let path = directory.join(format!("grow{writer}"));
        fs::write(&path, []).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(signals_during(&*sensor, grow), [], "executable");
    for writer in 0..8 {
        fs::remove_file(directory.join(format!("grow{writer}"))).unwrap();
    }
    assert!(!signals_during(&*sensor, grow).is_empty());
    sensor.unwatch(watched.device);
    for writer in 0..8 {
        fs::remove_file(directory.join(format!("grow{writer}"))).unwrap();
    }
    assert_eq!(signals_during(&*sensor, grow), [], "no longer watched");
    sensor.unwatch(watched.device);
}

/// Arms a file of 1 MiB, at half of that; writes it; closes it; twice; then disarmed.
fn half_used_and_closed(sensor: &dyn Sensor, watched: &Watched, directory: &Path, mode: Mode) {
    let path = directory.join(format!("armed-{mode:?}"));
    let mut file = Some(mode.open(&path));
    let key = key(watched, &path);
    let half = Bytes(MIB / 2);
    let write = |file: &File, at: u64| {
        file.write_all_at(Aligned::new(64 << 10).get(), at).unwrap();
        // On btrfs what is in the cache only is no use of the runway yet.
        file.sync_data().unwrap();
        of_armed(&signals_until_silent(sensor), key)
    };
    for round in 0..2 {
        let open = file.take().unwrap();
        // A size that no write changes: the second round overwrites.
        sensor.arm(&key, &open, half).unwrap();
        assert_eq!(write(&open, 0), [], "{mode:?} {round}: before the half");
        let told = write(&open, half.0);
        let end = Bytes(half.0 + (64 << 10));
        assert!(
            matches!(told[..], [SignalKind::HalfUsed { end: told }] if told > half && told <= end),
            "{mode:?} {round}: {told:?}"
        );
        assert_eq!(write(&open, half.0 + (128 << 10)), [], "{mode:?} {round}: only once");
        drop(open);
        assert_eq!(of_armed(&signals_until_silent(sensor), key), [SignalKind::Closed], "{mode:?} {round}");
        // Through the cache only what was clean is noticed; a truncated file has nothing in it.
        let open = mode.open(&path);
        open.set_len(0).unwrap();
        file = Some(open);
    }
    sensor.disarm(&key);
    let open = file.unwrap();
    assert_eq!(write(&open, half.0), [], "{mode:?}: disarmed");
    drop(open);
    assert_eq!(of_armed(&signals_until_silent(sensor), key), [], "{mode:?}: disarmed");
}

#[test]
fn loop_the_use_of_half_a_runway_is_told_once_and_each_close_until_disarmed() {
    for kind in FileSystemKind::ALL {
        let (volume, watched) = volume(kind, 512);
        let sensor = bpf();
        sensor.watch(&watched).unwrap();
        for mode in [Mode::Direct, Mode::Synced, Mode::Buffered] {
            half_used_and_closed(&*sensor, &watched, &volume.mount_point(), mode);
        }
        assert_eq!(sensor.lost(), 0);
    }
}

#[test]
fn loop_our_own_allocations_and_compressed_files_are_not_told_of() {
    let (xfs, watched) = volume(FileSystemKind::Xfs, 512);
    let sensor = open(Choice::Bpf).unwrap().sensor;
    sensor.watch(&watched).unwrap();
    let grow = |directory: &Path, mode| grow_in_turn(directory, 4, 2 * MIB, 64 << 10, mode);
    assert_eq!(signals_during(&*sensor, || grow(&xfs.mount_point(), Mode::Direct)), [], "by ourselves");

    let btrfs = LoopVolume::create(&VolumeSpec::btrfs(512).mount("compress-force=zstd")).unwrap();
    let sensor = bpf();
    sensor.watch(&common::watched(&btrfs)).unwrap();
    assert_eq!(signals_during(&*sensor, || grow(&btrfs.mount_point(), Mode::Synced)), [], "compressed");
}

#[test]
fn loop_waiting_ends_when_a_signal_comes() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 512);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    let begin = Instant::now();
    let mut told = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| grow_in_turn(&volume.mount_point(), 2, MIB, 64 << 10, Mode::Direct));
        while told == 0 {
            sensor.poll(Duration::from_secs(600), &mut |_| told += 1).unwrap();
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(300), "not woken, but timed out");
}

#[test]
fn loop_a_volume_mounted_by_a_subvolume_is_watched_by_bpf_and_refused_by_the_fallback_with_the_reason() {
    let (volume, _) = volume(FileSystemKind::Btrfs, 512);
    let subvolume = volume.mount_point().join("sub");
    tool::run("btrfs", ["subvolume".as_ref(), "create".as_ref(), subvolume.as_os_str()]).unwrap();
    volume.unmount().unwrap();
    let point = volume.mount_point();
    let arguments = ["-o".as_ref(), "subvol=sub".as_ref(), volume.device().as_os_str(), point.as_os_str()];
    tool::run("mount", arguments).unwrap();
    let watched = common::watched(&volume);
    let sensor = bpf();
    sensor.watch(&watched).unwrap();
    half_used_and_closed(&*sensor, &watched, &point, Mode::Direct);
    let error = open(Choice::Fanotify).unwrap().sensor.watch(&watched).unwrap_err().to_string();
    assert!(error.contains("subvolid=5"), "{error}");
}

#[test]
fn without_bpf_the_fallback_is_taken_and_says_why() {
    // No kernel makes so large a queue.
    let settings = Settings { queue: Bytes(u64::MAX), ..Settings::default() };
    let opened = open_with(Choice::Auto, settings).unwrap();
    assert_eq!(opened.sensor.kind(), SensorKind::Fanotify);
    let why = opened.refused.unwrap().to_string();
    assert!(why.contains("events") && why.contains("Invalid argument"), "{why}");
    assert!(open_with(Choice::Bpf, settings).is_err());
}

#[test]
fn loop_the_fallback_tells_of_growth_in_pieces_of_half_used_runways_and_of_closes() {
    for kind in FileSystemKind::ALL {
        let (volume, watched) = volume(kind, 512);
        let opened = open_with(Choice::Fanotify, Settings { own_writes: true, ..Settings::default() }).unwrap();
        assert!(opened.refused.is_none(), "it was asked for");
        let sensor = opened.sensor;
        assert_eq!(sensor.kind(), SensorKind::Fanotify);
        sensor.watch(&watched).unwrap();
        let directory = volume.mount_point();
        let whole = directory.join("whole");
        fs::create_dir(&whole).unwrap();
        let signals = signals_during(&*sensor, || grow_together(&whole, 1, 16 * MIB, 64 << 10, Mode::Direct));
        let pieces = fragments(&whole.join("grow0"));
        assert!(signals.is_empty() || pieces > 2, "{kind:?}, {pieces} pieces: {signals:?}");
        let signals = signals_during(&*sensor, || grow_in_turn(&directory, 4, 8 * MIB, 64 << 10, Mode::Direct));
        for writer in 0..4 {
            let path = directory.join(format!("grow{writer}"));
            let told = only(&signals, key(&watched, &path));
            assert!(
                kind == FileSystemKind::Ext4 || matches!(told[..], [SignalKind::Fragmenting { .. }, ..]),
                "{kind:?}: {told:?}"
            );
        }
        for mode in [Mode::Direct, Mode::Synced, Mode::Buffered] {
            half_used_and_closed(&*sensor, &watched, &directory, mode);
        }
    }
}

#[test]
fn loop_a_volume_with_armed_files_can_be_unmounted_and_files_that_are_gone_be_disarmed() {
    for choice in [Choice::Bpf, Choice::Fanotify] {
        for kind in FileSystemKind::ALL {
            let (volume, watched) = volume(kind, 512);
            let sensor = open(choice).unwrap().sensor;
            sensor.watch(&watched).unwrap();
            let mut keys = Vec::new();
            for name in ["one", "two"] {
                let path = volume.mount_point().join(name);
                let file = Mode::Buffered.open(&path);
                keys.push(key(&watched, &path));
                sensor.arm(keys.last().unwrap(), &file, Bytes(MIB)).unwrap();
            }
            fs::remove_file(volume.mount_point().join("one")).unwrap();
            tool::run("umount", [volume.mount_point()]).unwrap();
            keys.iter().for_each(|key| sensor.disarm(key));
            sensor.unwatch(watched.device);
            volume.mount().unwrap();
            sensor.watch(&common::watched(&volume)).unwrap();
        }
    }
}

#[test]
fn loop_a_full_queue_is_counted_and_survived() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 1024);
    let settings = Settings { own_writes: true, queue: Bytes(4096) };
    let sensor = open_with(Choice::Bpf, settings).unwrap().sensor;
    sensor.watch(&watched).unwrap();
    // Nobody fetches meanwhile.
    grow_in_turn(&volume.mount_point(), 64, MIB, 64 << 10, Mode::Direct);
    let lost = sensor.lost();
    assert!(lost > 0);
    let kept = signals_until_silent(&*sensor).len();
    assert!(kept > 10, "{kept}");
    let more = volume.mount_point().join("more");
    fs::create_dir(&more).unwrap();
    assert!(!signals_during(&*sensor, || grow_in_turn(&more, 2, 4 * MIB, 64 << 10, Mode::Direct)).is_empty());
    assert_eq!(sensor.lost(), lost);
}
