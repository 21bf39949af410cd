//! Mending single files on real volumes of all three file systems.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail loudly, as tests do")]

#[path = "mend/bench.rs"]
mod bench;

use bench::{Bench, content};
use longrun_engine::{Observer, Permission, Turn, Unobserved};
use longrun_engine::{SkipReason, VolumeError};
use longrun_lab::oracle::{compare, dump, excess_of};
use longrun_lab::{FileSystemKind, VolumeSpec, drop_caches, tool};
use longrun_layout::Bytes;
use longrun_sys::{FileHandle, Mapping, Shutdown, shutdown};
use longrun_volume::Target;
use longrun_volume::mend::{Limits, MendError, NotMended};
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Permits everything, a piece at a time, and counts.
#[derive(Default)]
struct InTurns {
    asked: u64,
}

impl Observer for InTurns {
    fn permission(&mut self, _next: Bytes) -> Permission {
        self.asked += 1;
        Permission::Go
    }

    fn turn(&self) -> Turn {
        Turn { pieces: 1, bytes: Bytes(1 << 20) }
    }
}

#[test]
fn loop_a_fragmented_file_becomes_whole_and_nothing_else_about_it_changes() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        // Whole blocks, an unaligned end, a large one, and one that ends in a hole.
        for (name, bytes) in [("even", 1 << 20), ("odd", (1 << 20) + 123), ("large", 40 << 20), ("tail", 3 << 20)] {
            bench.fragmented(name, bytes, if bytes > 4 << 20 { 512 } else { 32 });
        }
        OpenOptions::new().write(true).open(bench.path("tail")).unwrap().set_len(9 << 20).unwrap();
        let odd = bench.path("odd");
        tool::run("setfattr", ["-n", "user.mark", "-v", "kept", odd.to_str().unwrap()]).unwrap();
        tool::run("setcap", ["cap_net_raw+ep", odd.to_str().unwrap()]).unwrap();
        tool::run("chmod", ["4755", odd.to_str().unwrap()]).unwrap();
        let before = dump(&bench.volume.mount_point()).unwrap();
        for name in ["even", "odd", "large", "tail"] {
            let excess = excess_of(&bench.path(name)).unwrap();
            assert!(excess > 10, "{kind:?} {name}: {excess}");
            let mut in_turns = InTurns::default();
            let mended = bench.try_mend(name, Limits::NONE, &mut in_turns).unwrap();
            assert_eq!((mended.before, mended.after), (excess, 0), "{kind:?} {name}: {mended:?}");
            // Pieces that touch on the device are read by one request; a part of 1 MiB alone would be asked for twice.
            assert!(in_turns.asked > 5, "{kind:?} {name}: asked {} times", in_turns.asked);
            assert_eq!(excess_of(&bench.path(name)).unwrap(), 0, "{kind:?} {name}");
            let again = bench.mend(name).unwrap();
            assert_eq!((again.before, again.moved), (0, Bytes(0)), "{kind:?} {name}: nothing left to do");
        }
        drop_caches().unwrap();
        compare(&before, &dump(&bench.volume.mount_point()).unwrap()).unwrap();
        bench.volume.remount().unwrap();
        compare(&before, &dump(&bench.volume.mount_point()).unwrap()).unwrap();
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_short_fragments_come_together_beside_long_ones_that_stay_where_they_are() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        let short = 3 << 18;
        bench.few_pieces("file", &[20 << 20, 1 << 18, 1 << 18, 1 << 18, 18 << 20]);
        let (path, before) = (bench.path("file"), dump(&bench.path("file")).unwrap());
        let places =
            || longrun_sys::map_file(File::open(&path).unwrap(), bench.range(0, 20 << 20), Mapping::AsIs).unwrap();
        let (was, excess) = (places(), excess_of(&path).unwrap());
        let limits = Limits { worth: Bytes(4 << 20), ..Limits::NONE };
        let mended = bench.try_mend("file", limits, &mut Unobserved).unwrap();
        assert_eq!((mended.before, mended.after), (excess, excess - 2), "{kind:?}: {mended:?}");
        assert_eq!((excess_of(&path).unwrap(), mended.moved), (mended.after, Bytes(short)), "{kind:?}");
        assert_eq!(places(), was, "{kind:?}: the long one moved");
        assert_eq!(bench.left_within("file", limits, &mut Unobserved), NotMended::WholeEnough, "{kind:?}");
        compare(&before, &dump(&path).unwrap()).unwrap();
        bench.volume.remount().unwrap();
        compare(&before, &dump(&path).unwrap()).unwrap();
        bench.volume.check().unwrap();
    }
}

/// Moving all of a file for one short fragment costs what the long one is long: where there is room beside that, it stays.
#[test]
fn loop_on_xfs_short_fragments_go_directly_beside_the_long_one_where_there_is_room() {
    // A short one in front of a long one, and behind it; with an end inside a block.
    for (name, lengths) in [("front", [65_536, (4 << 20) + 100]), ("back", [4 << 20, 65_536 + 100])] {
        let bench = Bench::new(FileSystemKind::Xfs);
        let path = bench.path(name);
        let (file, wedge) = (File::create(&path).unwrap(), File::create(bench.path("wedge")).unwrap());
        let mut at = 0;
        for (turn, length) in lengths.into_iter().enumerate() {
            longrun_sys::allocate(&file, bench.range(at, length)).unwrap();
            file.write_all_at(&content(usize::try_from(length).unwrap(), at), at).unwrap();
            file.sync_all().unwrap();
            at += length;
            if turn == 0 {
                longrun_sys::allocate(&wedge, bench.range(0, 1 << 20)).unwrap();
                wedge.sync_all().unwrap();
            }
        }
        assert_eq!(excess_of(&path).unwrap(), 1, "{name}");
        let (long, before) = (lengths.iter().max().unwrap() & !4095, dump(&path).unwrap());
        let inside = if name == "front" { bench.range(at & !4095, 4096) } else { bench.range(0, long) };
        let place = || longrun_sys::map_file(&file, inside, Mapping::AsIs).unwrap().last().unwrap().physical;
        let was = place();
        // Not removed: XFS frees the blocks of a removed file some time later.
        longrun_sys::punch(&wedge, bench.range(0, 1 << 20)).unwrap();
        longrun_sys::sync_volume(File::open(bench.volume.mount_point()).unwrap()).unwrap();
        let dear = Limits { price: Bytes(1), ..Limits::NONE };
        assert_eq!(bench.left_within(name, dear, &mut Unobserved), NotMended::Dear, "{name}");
        let mended = bench.try_mend(name, Limits { worth: Bytes(16 << 20), ..Limits::NONE }, &mut Unobserved).unwrap();
        let short = *lengths.iter().min().unwrap();
        assert_eq!((mended.before, mended.after, mended.moved), (1, 0, Bytes(short)), "{name}");
        assert_eq!((excess_of(&path).unwrap(), place()), (0, was), "{name}: the long one moved");
        drop((file, wedge));
        for _ in 0..2 {
            compare(&before, &dump(&path).unwrap()).unwrap();
            bench.volume.remount().unwrap();
        }
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_holes_and_preallocated_space_stay_what_they_are() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        let path = bench.path("sparse");
        bench.fragmented("sparse", 4 << 20, 16);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for hole in [0, 5, 17, 40] {
            longrun_sys::punch(&file, bench.range(hole * 65536, 65536)).unwrap();
        }
        // Preallocated inside.
        longrun_sys::allocate(&file, bench.range(17 * 65536, 65536)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let before = dump(&bench.volume.mount_point()).unwrap();
        let excess = excess_of(&path).unwrap();
        let mended = bench.mend("sparse").unwrap();
        // What was never written stays where it is, apart from the rest: on ext4 it moves along.
        let floor = if kind == FileSystemKind::Ext4 { 0 } else { 2 };
        assert!(mended.before == excess && mended.after <= floor, "{kind:?}: {mended:?}");
        assert_eq!(excess_of(&path).unwrap(), mended.after, "{kind:?}");
        drop_caches().unwrap();
        compare(&before, &dump(&bench.volume.mount_point()).unwrap()).unwrap();
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_what_others_share_or_must_not_move_is_left_with_its_reason() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        bench.fragmented("file", 1 << 20, 16);
        let mount = bench.volume.mount_point();
        if kind != FileSystemKind::Ext4 {
            bench.fragmented("shared", 1 << 20, 16);
            let arguments = ["--reflink=always", "shared", "clone"];
            let status = std::process::Command::new("cp").args(arguments).current_dir(&mount).status().unwrap();
            assert!(status.success());
            assert_eq!(bench.left("shared"), NotMended::Shared, "{kind:?}");
        }
        tool::run("chattr", ["+i", bench.path("file").to_str().unwrap()]).unwrap();
        let pinned = SkipReason::Pinned(longrun_layout::Pin::Immutable);
        assert_eq!(bench.left("file"), NotMended::Skipped(pinned), "{kind:?}");
        tool::run("chattr", ["-i", bench.path("file").to_str().unwrap()]).unwrap();
        let small = Limits { budget: Bytes(1 << 19), ..Limits::NONE };
        assert_eq!(bench.left_within("file", small, &mut Unobserved), NotMended::Budget, "{kind:?}");
        let handle = bench.handle("file");
        fs::remove_file(bench.path("file")).unwrap();
        let gone = bench.mend_handle(&handle, Limits::NONE, &mut Unobserved).unwrap_err();
        let vanished = NotMended::Skipped(SkipReason::Vanished);
        assert!(matches!(gone, MendError::Left { reason, .. } if reason == vanished), "{kind:?}: {gone}");
    }
}

#[test]
fn loop_a_handle_that_could_mean_any_file_opens_none() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        bench.fragmented("file", 1 << 20, 16);
        let handle = bench.handle("file");
        let mut bytes = handle.bytes().to_vec();
        let end = bytes.len();
        bytes[end - 4..].fill(0);
        let any = FileHandle::new(handle.kind(), &bytes).unwrap();
        let error = bench.mend_handle(&any, Limits::NONE, &mut Unobserved).unwrap_err();
        let vanished = NotMended::Skipped(SkipReason::Vanished);
        assert!(matches!(error, MendError::Left { reason, .. } if reason == vanished), "{kind:?}: {error}");
    }
}

#[test]
fn loop_compressed_and_inline_files_are_left_and_files_written_in_place_are_mended_in_kind() {
    let bench = Bench::of(&VolumeSpec::btrfs(320).mount("compress=zstd"));
    // Compressible, in pieces of one block's length after compression.
    let file = File::create(bench.path("compressed")).unwrap();
    for at in (0..64).rev() {
        file.write_all_at(&vec![at as u8; 32 << 10], at * (32 << 10)).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    assert_eq!(bench.left("compressed"), NotMended::Compressed);
    let before = fs::metadata(bench.path("compressed")).unwrap();
    assert!(before.is_file());

    // Made without compression and checksums.
    File::create(bench.path("in-place")).unwrap();
    tool::run("chattr", ["+C", bench.path("in-place").to_str().unwrap()]).unwrap();
    bench.write_shuffled("in-place", &content(1 << 20, 3), 16 << 10);
    let before = dump(&bench.volume.mount_point()).unwrap();
    let excess = excess_of(&bench.path("in-place")).unwrap();
    assert!(excess > 10, "{excess}");
    let mended = bench.mend("in-place").unwrap();
    assert_eq!(mended.after, 0, "{mended:?}");
    compare(&before, &dump(&bench.volume.mount_point()).unwrap()).unwrap();
    bench.volume.check().unwrap();
}

#[test]
fn loop_xfs_that_cannot_share_blocks_is_refused_before_anything_is_written() {
    let bench = Bench::of(&VolumeSpec::xfs(320).mkfs(&["-m", "reflink=0"]));
    bench.fragmented("file", 1 << 20, 16);
    let error = bench.try_mend("file", Limits::NONE, &mut Unobserved).unwrap_err().to_string();
    assert!(error.contains("without block sharing"), "{error}");
}

#[test]
fn loop_mending_takes_no_space_that_others_might_need() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        bench.fragmented("file", 24 << 20, 512);
        let before = excess_of(&bench.path("file")).unwrap();
        bench.fill_up_to(20 << 20);
        assert_eq!(bench.left("file"), NotMended::LowSpace, "{kind:?}");
        assert_eq!(excess_of(&bench.path("file")).unwrap(), before, "{kind:?}");
        bench.volume.check().unwrap();
    }
}

/// Has the volume filled by another thread as soon as work has begun, and does not permit more before that has met the end.
struct Greedy<'s, 'e> {
    scope: &'s std::thread::Scope<'s, 'e>,
    bench: &'e Bench,
    asked: u64,
    filler: Option<std::thread::ScopedJoinHandle<'s, u64>>,
}

impl Observer for Greedy<'_, '_> {
    fn permission(&mut self, _next: Bytes) -> Permission {
        self.asked += 1;
        if self.asked == 3 {
            let bench = self.bench;
            self.filler = Some(self.scope.spawn(move || bench.fill_up_to(0)));
        }
        match &self.filler {
            Some(filler) if !filler.is_finished() => Permission::Wait(Duration::from_secs(1)),
            _ => Permission::Go,
        }
    }
}

#[test]
fn loop_a_process_that_fills_the_volume_meanwhile_gets_what_it_would_have_got_alone() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        bench.fragmented("file", 24 << 20, 256);
        let before = dump(&bench.path("file")).unwrap();
        let filler = std::thread::scope(|scope| {
            let mut greedy = Greedy { scope, bench: &bench, asked: 0, filler: None };
            match bench.try_mend("file", Limits::NONE, &mut greedy) {
                // On ext4 what was moved by then stays moved.
                Err(MendError::Left { reason: NotMended::LowSpace, .. }) | Ok(_) => {}
                other => panic!("{kind:?}: {other:?}"),
            }
            greedy.filler.unwrap().join().unwrap()
        });
        compare(&before, &dump(&bench.path("file")).unwrap()).unwrap();
        bench.volume.remount().unwrap();
        fs::remove_file(bench.path("filler")).unwrap();
        bench.volume.remount().unwrap();
        let alone = bench.fill_up_to(0);
        // To the 1 MiB by which the filler proceeds, and as much that file systems keep in odd places.
        assert!(filler + (2 << 20) >= alone, "{kind:?}: {filler} beside mending, {alone} alone");
        bench.volume.check().unwrap();
    }
}

/// Stops after so many questions.
struct Stopper {
    after: u64,
    asked: AtomicU64,
}

impl Observer for Stopper {
    fn cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.after
    }
}

#[test]
fn loop_a_mending_stopped_anywhere_leaves_no_more_fragments_than_it_found() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        for after in [0, 1, 2, 5, 9, 17, 30, 41, 42, 43, 44, 45, 50, 60] {
            bench.few_pieces("file", &[20 << 20, 1 << 20, 18 << 20, 65536, 65536]);
            let path = bench.path("file");
            let (before, was) = (excess_of(&path).unwrap(), dump(&path).unwrap());
            let mut stopper = Stopper { after, asked: AtomicU64::new(0) };
            let _ = bench.try_mend("file", Limits::NONE, &mut stopper);
            let now = excess_of(&path).unwrap();
            assert!(now <= before, "{kind:?}, stopped after {after} questions: {before} excess fragments, now {now}");
            compare(&was, &dump(&path).unwrap()).unwrap();
            fs::remove_file(&path).unwrap();
        }
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_another_optimizer_at_work_is_left_alone() {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        bench.fragmented("file", 1 << 20, 16);
        let root = longrun_sys::LockFile::new(File::open(bench.volume.mount_point()).unwrap());
        assert!(root.set(longrun_sys::FlockOperation::NonBlockingLockExclusive).unwrap());
        assert_eq!(bench.left("file"), NotMended::OtherOptimizer, "{kind:?}");
        drop(root);
        assert_eq!(bench.mend("file").unwrap().after, 0, "{kind:?}");
    }
}

/// Opens the volume for optimizing when the mending begins.
struct OptimizerComes {
    target: Target,
    opening: Option<JoinHandle<Result<(), VolumeError>>>,
}

impl Observer for OptimizerComes {
    fn permission(&mut self, _next: Bytes) -> Permission {
        if self.opening.is_none() {
            let target = self.target.clone();
            self.opening = Some(std::thread::spawn(move || longrun_volume::open(&target).map(drop)));
            // For it to meet the mending, not its end.
            std::thread::sleep(Duration::from_millis(300));
        }
        Permission::Go
    }
}

#[test]
fn loop_an_optimizer_waits_for_the_file_that_is_being_mended() {
    for kind in [FileSystemKind::Ext4, FileSystemKind::Xfs] {
        let bench = Bench::new(kind);
        bench.fragmented("file", 1 << 20, 16);
        let target = Target::resolve(&bench.volume.mount_point()).unwrap();
        let mut comes = OptimizerComes { target, opening: None };
        let mended = bench.try_mend("file", Limits::NONE, &mut comes).unwrap();
        assert_eq!(mended.after, 0, "{kind:?}");
        comes.opening.unwrap().join().unwrap().unwrap();
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_a_file_that_is_written_all_the_time_keeps_every_byte() {
    write_all_the_time(7..9);
}

#[test]
fn campaign_a_file_that_is_written_all_the_time_keeps_every_byte() {
    write_all_the_time(9..20);
}

fn write_all_the_time(seeds: Range<u64>) {
    for kind in FileSystemKind::ALL {
        let bench = Bench::new(kind);
        // A file that was made whole stays so on XFS: several have their turn.
        for seed in seeds.clone() {
            bench.torture(seed, 30);
        }
        bench.volume.check().unwrap();
    }
}

#[test]
fn loop_a_crash_during_mendings_changes_no_file() {
    for kind in FileSystemKind::ALL {
        // So long a commit interval that only our own barriers commit.
        let bench = match kind {
            FileSystemKind::Xfs => Bench::of(&VolumeSpec::xfs(512)),
            other => Bench::of(&VolumeSpec::of(other, 512).mkfs(bench::blocks(other)).mount("commit=300")),
        };
        for round in 0..3 {
            let names: Vec<String> = (0..8).map(|n| format!("r{round}-{n}")).collect();
            for (n, name) in names.iter().enumerate() {
                bench.fragmented(name, 600_000 + n * 333_333, 16);
            }
            bench.volume.remount().unwrap();
            let before = dump(&bench.volume.mount_point()).unwrap();
            let (stop, mut crashed) = (AtomicBool::new(false), None);
            std::thread::scope(|scope| {
                // Somebody takes at once what is given back, and writes to it.
                let (stop, bench) = (&stop, &bench);
                let writer = scope.spawn(move || {
                    let scratch = bench.volume.mount_point().join("scratch");
                    while !stop.load(Ordering::Relaxed) {
                        let _ = fs::write(&scratch, vec![0xEE; 3 << 20]);
                        let _ = File::open(&scratch).and_then(|file| file.sync_data());
                        let _ = fs::remove_file(&scratch);
                    }
                });
                let enough = 3 + round * 2;
                let outcome = names.iter().take(enough).try_for_each(|name| match bench.mend(name) {
                    // The scratch file is in the way, now and then.
                    Ok(_) | Err(MendError::Left { reason: NotMended::NoGain, .. }) => Ok(()),
                    Err(other) => Err(other),
                });
                if kind == FileSystemKind::Btrfs {
                    // It knows no shutdown: what is on the device when nobody writes is what a power cut leaves.
                    stop.store(true, Ordering::Relaxed);
                    writer.join().unwrap();
                    crashed = Some(bench.volume.crashed_copy().unwrap());
                } else {
                    let root = File::open(bench.volume.mount_point()).unwrap();
                    shutdown(&root, Shutdown::NoLogFlush).unwrap();
                    stop.store(true, Ordering::Relaxed);
                }
                outcome.unwrap();
            });
            let volume = crashed.as_ref().unwrap_or(&bench.volume);
            if crashed.is_none() {
                volume.remount().unwrap();
            }
            let mut now = dump(&volume.mount_point()).unwrap();
            let mut before = before;
            // The scratch file is none of ours, and changed the times of the root directory.
            for tree in [&mut before, &mut now] {
                tree.retain(|path, _| !path.as_os_str().is_empty() && path.as_os_str() != "scratch");
            }
            compare(&before, &now).unwrap_or_else(|error| panic!("{kind:?}, round {round}: {error}"));
            volume.check().unwrap();
            let _ = fs::remove_file(bench.path("scratch"));
        }
    }
}
