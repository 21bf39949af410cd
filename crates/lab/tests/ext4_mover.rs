//! The primitives on a mounted ext4 volume: what they do to files, to free space, and to everybody else.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "mover/bench.rs"]
mod bench;

use bench::{allocator_setting, capture_run, free, fresh, id, move_file, open, size, write};
use longrun_engine::{MoveError, Placed, SkipReason, Volume, VolumeError};
use longrun_lab::oracle::{compare, dump, file_hash};
use longrun_lab::tool;
use longrun_layout::{Blocks, Extent, ExtentSet, FileId, LogicalBlock, Pin, count_fragments};
use longrun_sys::{Shutdown, shutdown};
use longrun_volume::Target;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// The physical ranges that filefrag tells, in blocks.
fn filefrag_ranges(path: &std::path::Path) -> Vec<(u64, u64)> {
    let text = tool::run("filefrag", [std::path::Path::new("-v"), path]).unwrap();
    let range = |line: &str| {
        let (from, to) = line.split(':').nth(2)?.split_once("..")?;
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    };
    text.lines().filter_map(range).collect()
}

#[test]
fn loop_a_file_lands_exactly_where_it_was_sent_and_is_otherwise_the_same() {
    let volume = fresh(256, &[]);
    let path = write(&volume, "file", 5_000_001);
    write(&volume, "other", 100_000);
    tool::run("setfattr", ["-n", "user.mark", "-v", "kept", path.to_str().unwrap()]).unwrap();
    volume.drop_caches().unwrap();
    let before = dump(&volume.mount_point()).unwrap();
    let mut moved = open(&volume);
    let runs = moved.map(id(&path)).unwrap();
    let target = capture_run(&mut moved, size(&runs).0);
    let vacated: ExtentSet = move_file(&mut moved, id(&path), target.start).into_iter().collect();
    assert_eq!(vacated, runs.iter().map(|run| run.extent()).collect::<ExtentSet>());
    assert_eq!(moved.owned().unwrap(), vacated);
    moved.commit().unwrap();
    assert_eq!(count_fragments(moved.map(id(&path)).unwrap().iter().copied()), 1);
    drop(moved);
    let ranges = filefrag_ranges(&path);
    assert_eq!(ranges.first().unwrap().0, target.start.0);
    assert_eq!(ranges.last().unwrap().1, target.end().0 - 1);
    volume.remount().unwrap();
    volume.drop_caches().unwrap();
    compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_blocks_smaller_than_a_page_are_refused() {
    for block_size in ["1024", "2048"] {
        let volume = fresh(256, &["-b", block_size]);
        let target = longrun_volume::Target::resolve(&volume.mount_point()).unwrap();
        let refused = longrun_volume::open(&target).err().unwrap().to_string();
        assert!(refused.contains(block_size), "{refused}");
    }
}

/// Every second file of many is deleted: free runs of a few blocks, by hundreds.
fn holes(volume: &longrun_lab::LoopVolume) {
    for i in 0..3000 {
        write_small(volume, i);
    }
    // Without this nothing would have a place yet.
    rustix::fs::sync();
    for i in (0..3000).step_by(2) {
        fs::remove_file(volume.mount_point().join(format!("f{i}"))).unwrap();
    }
}

fn write_small(volume: &longrun_lab::LoopVolume, number: usize) {
    let bytes = vec![number as u8; 4096 * (1 + number * 7 % 13)];
    fs::write(volume.mount_point().join(format!("f{number}")), bytes).unwrap();
}

#[test]
fn loop_capture_gets_scattered_small_runs_and_the_middle_of_a_large_one() {
    let volume = fresh(512, &[]);
    holes(&volume);
    let mut moved = open(&volume);
    let all = free(&mut moved);
    let largest = all.largest().unwrap();
    let middle = Extent::new(largest.start.0 + largest.length.0 / 3, largest.length.0 / 3);
    let mut small: Vec<Extent> = all.iter().filter(|e| e.length.0 <= 13).collect();
    assert!(small.len() > 500, "{}", small.len());
    fastrand::Rng::with_seed(1).shuffle(&mut small);
    for wanted in [small.into_iter().take(500).collect::<ExtentSet>(), [middle].into_iter().collect()] {
        let got = moved.capture(&wanted).unwrap();
        assert!(got.iter().all(|e| wanted.covers(e)), "only what was wanted is kept");
        assert_eq!(moved.owned().unwrap(), got);
        let rate = got.total().0 as f64 / wanted.total().0 as f64;
        assert!(rate >= 0.99, "{rate}");
        moved.release(&got).unwrap();
        assert!(moved.owned().unwrap().is_empty());
    }
    assert_eq!(allocator_setting(&volume), "16");
    drop(moved);
    volume.check().unwrap();
}

#[test]
fn loop_everything_free_is_captured_but_the_reserve_and_given_back_by_drop() {
    let volume = fresh(512, &["-m", "0"]);
    holes(&volume);
    let mut moved = open(&volume);
    let all = free(&mut moved);
    let unclaimed = moved.unclaimed().unwrap();
    let got = moved.capture(&all).unwrap();
    let left = moved.unclaimed().unwrap();
    // The reserve, and what the trees of the donors take.
    assert!(left <= Blocks(1100), "{left} of {unclaimed} left, {} captured", got.total());
    assert!(left >= Blocks(900), "{left}");
    drop(moved);
    let mut moved = open(&volume);
    // What the kernel had preallocated may be free now too.
    // For a moment, children that other tests fork in this process keep what we closed.
    let begun = Instant::now();
    let complete = |moved: &mut _| {
        let after = free(moved);
        all.iter().all(|e| after.covers(e))
    };
    while !complete(&mut moved) {
        assert!(begun.elapsed() < Duration::from_secs(60), "not everything was given back");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The hazard: blocks vacated by one exchange are written by another before the journal knows of the first. After a crash
/// the first file would have the second one's data. Behind a barrier it is harmless.
#[test]
fn loop_a_crash_after_a_barrier_leaves_both_files_intact() {
    let volume = fresh(128, &[]);
    let (a, b) = (write(&volume, "a", 1 << 20), write(&volume, "b", 1 << 20));
    let hashes = [&a, &b].map(|path| file_hash(File::open(path).unwrap()).unwrap());
    volume.drop_caches().unwrap();
    let mut moved = open(&volume);
    let target = capture_run(&mut moved, 256);
    let vacated = move_file(&mut moved, id(&a), target.start);
    moved.commit().unwrap();
    move_file(&mut moved, id(&b), vacated[0].start);
    // The data reaches the device, the mapping does not.
    let file = File::open(&b).unwrap();
    longrun_sys::wait_writeback(&file, longrun_sys::ByteRange::ALL).unwrap();
    shutdown(&file, Shutdown::NoLogFlush).unwrap();
    assert!(matches!(moved.commit(), Err(VolumeError::Barrier { .. })), "a volume that stopped has no barriers");
    drop((moved, file));
    volume.remount().unwrap();
    volume.drop_caches().unwrap();
    assert_eq!([&a, &b].map(|path| file_hash(File::open(path).unwrap()).unwrap()), hashes);
    volume.check().unwrap();
}

/// Killed in any case: a volume with a running program cannot be unmounted.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Taken out of use in any case, for the same reason.
struct Swapped(std::path::PathBuf);

impl Drop for Swapped {
    fn drop(&mut self) {
        tool::run("swapoff", [&self.0]).unwrap();
    }
}

fn skip_of(result: Result<longrun_engine::Exchanged, MoveError>) -> SkipReason {
    match result {
        Err(MoveError::Skip(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn loop_files_that_must_not_move_are_skipped_with_their_reason() {
    let volume = fresh(128, &[]);
    let names = ["immutable", "appended", "program", "former", "swap", "gone", "plain"];
    let [immutable, appended, program, former, swap, gone, plain] = names.map(|name| write(&volume, name, 64 << 10));
    tool::run("chattr", ["+i", immutable.to_str().unwrap()]).unwrap();
    tool::run("chattr", ["+a", appended.to_str().unwrap()]).unwrap();
    for path in [&program, &former] {
        tool::install("/bin/sleep".as_ref(), path).unwrap();
    }
    tool::run("mkswap", [&swap]).unwrap();
    // What the permissions say must not decide: see `former` too.
    fs::set_permissions(&swap, fs::Permissions::from_mode(0o700)).unwrap();
    rustix::fs::sync();
    let _running = [&program, &former].map(|path| Running(Command::new(path).arg("100").spawn().unwrap()));
    fs::set_permissions(&former, fs::Permissions::from_mode(0o600)).unwrap();
    tool::run("swapon", [&swap]).unwrap();
    let _swapped = Swapped(swap.clone());
    let gone_id = id(&gone);
    fs::remove_file(&gone).unwrap();
    let mut moved = open(&volume);
    let target = capture_run(&mut moved, 64);
    let owned = moved.owned().unwrap();
    let mut attempt = |file: FileId| moved.exchange(file, LogicalBlock(0), target.start, Blocks(4));
    let reasons = [
        skip_of(attempt(id(&immutable))),
        skip_of(attempt(id(&appended))),
        skip_of(attempt(id(&program))),
        skip_of(attempt(id(&former))),
        skip_of(attempt(id(&swap))),
        skip_of(attempt(gone_id)),
        skip_of(attempt(FileId { generation: 0, ..id(&plain) })),
        skip_of(attempt(FileId { generation: id(&plain).generation ^ 1, ..id(&plain) })),
    ];
    tool::run("chattr", ["-i", immutable.to_str().unwrap()]).unwrap();
    tool::run("chattr", ["-a", appended.to_str().unwrap()]).unwrap();
    let expected = [
        SkipReason::Pinned(Pin::Immutable),
        SkipReason::Pinned(Pin::Immutable),
        SkipReason::Executing,
        SkipReason::Busy,
        SkipReason::Pinned(Pin::Swap),
        SkipReason::Vanished,
        SkipReason::Vanished,
        SkipReason::Vanished,
    ];
    assert_eq!(reasons, expected);
    assert_eq!(moved.owned().unwrap(), owned, "a skipped file changes nothing");
    let nowhere = moved.exchange(id(&plain), LogicalBlock(0), target.end(), Blocks(4));
    assert_eq!(skip_of(nowhere), SkipReason::TargetTaken);
}

#[test]
fn loop_a_program_can_be_executed_again_and_again_while_it_is_moved() {
    let volume = fresh(256, &[]);
    let program = volume.mount_point().join("program");
    tool::install("/bin/true".as_ref(), &program).unwrap();
    rustix::fs::sync();
    let mut moved = open(&volume);
    let target = capture_run(&mut moved, 64);
    let mut places = [target.start, moved.map(id(&program)).unwrap()[0].physical];
    // Another process executes it: between fork and exec, a child of this one would itself hold the file open.
    let script = "n=0; r=0; while [ $n -lt 300 ]; do \"$0\" 2>/dev/null || r=$((r+1)); n=$((n+1)); done; echo $n $r";
    let users =
        Command::new("bash").arg("-c").arg(script).arg(&program).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut users = users;
    let mut exchanges = 0;
    while exchanges < 100 || users.try_wait().unwrap().is_none() {
        let blocks = size(&moved.map(id(&program)).unwrap());
        exchanges += 1;
        match moved.exchange(id(&program), LogicalBlock(0), places[0], blocks) {
            Ok(done) if done.blocks == blocks => places.swap(0, 1),
            Ok(_) | Err(MoveError::Skip(_)) => {}
            Err(error) => panic!("{error}"),
        }
        moved.commit().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = String::from_utf8(users.wait_with_output().unwrap().stdout).unwrap();
    let (runs, refused) = told.trim().split_once(' ').unwrap();
    let (runs, refused): (u32, u32) = (runs.parse().unwrap(), refused.parse().unwrap());
    // The kernel refuses to execute a file while it is open for writing: for the time of an exchange, this cannot be
    // helped.
    assert!(exchanges > 20 && runs > 100, "{exchanges} exchanges, {runs} executions");
    assert!(refused < exchanges, "{refused} of {runs} executions refused during {exchanges} exchanges");
}

/// Pages in large folios that somebody has mapped cannot be dropped; each block of them would force a commit.
#[test]
fn loop_a_mapped_file_is_left_alone_quickly_rather_than_locked_for_seconds() {
    let volume = fresh(256, &[]);
    let path = write(&volume, "mapped", 32 << 20);
    volume.drop_caches().unwrap();
    let mut reader = Command::new("python3")
        .arg("-c")
        .arg("import mmap,sys,time\nf=open(sys.argv[1],'rb')\nwhile f.read(1<<20): pass\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nsum(m[i] for i in range(0,len(m),4096))\nprint('ready',flush=True)\ntime.sleep(100)")
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(reader.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let mut moved = open(&volume);
    let target = capture_run(&mut moved, 8192);
    let before = commits(&volume);
    let result = moved.exchange(id(&path), LogicalBlock(0), target.start, Blocks(8192));
    let forced = commits(&volume) - before;
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(forced < 100, "{forced} commits for {result:?}");
}

/// How many transactions the journal has committed.
fn commits(volume: &longrun_lab::LoopVolume) -> u64 {
    let device = volume.device().file_name().unwrap().to_str().unwrap().to_owned();
    let journals = fs::read_dir("/proc/fs/jbd2").unwrap().flatten().map(|entry| entry.path());
    let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let journal = journals.into_iter().find(|path| name(path).starts_with(&format!("{device}-"))).unwrap();
    let info = fs::read_to_string(journal.join("info")).unwrap();
    info.split_whitespace().next().unwrap().parse().unwrap()
}

fn refusal(volume: &longrun_lab::LoopVolume) -> VolumeError {
    let target = Target::resolve(&volume.mount_point()).unwrap();
    match longrun_volume::open(&target) {
        Err(error) => error,
        Ok(_) => panic!("{target:?} was admitted"),
    }
}

#[test]
fn loop_volumes_that_cannot_be_optimized_safely_are_refused() {
    let specs: [(&[&str], &str, &str); 7] = [
        (&[], "ro", "mounted read-only"),
        (&[], "data=journal", "data=journal"),
        (&[], "data=writeback", "data=writeback"),
        (&["-O", "fast_commit"], "rw", "fast_commit"),
        (&["-O", "^has_journal"], "rw", "without a journal"),
        (&["-O", "bigalloc"], "rw", "bigalloc"),
        (&["-O", "^extent,^64bit"], "rw", "no extents"),
    ];
    for (mkfs, mount, words) in specs {
        let spec = longrun_lab::VolumeSpec::ext4(64).mkfs(&[mkfs, &["-b", "4096"]].concat()).mount(mount);
        let volume = longrun_lab::LoopVolume::create(&spec).unwrap();
        let message = refusal(&volume).to_string();
        assert!(message.contains(words), "{mkfs:?} {mount}: {message}");
    }
    let volume = fresh(64, &[]);
    tool::run("tune2fs", ["-o", "journal_data_writeback", volume.device().to_str().unwrap()]).unwrap();
    volume.remount().unwrap();
    let message = refusal(&volume).to_string();
    assert!(message.contains("data=writeback"), "{message}");
    // What is asked of the kernel on a mounted volume matters to nobody while it is not mounted.
    volume.unmount().unwrap();
    let target = Target::resolve(volume.device()).unwrap();
    drop(longrun_volume::open(&target).unwrap());
    volume.check().unwrap();
}

/// Its commits cannot be counted, and nothing was tested with it.
#[test]
fn loop_a_journal_on_a_device_of_its_own_is_refused() {
    let (journal, volume) = (fresh(64, &[]), fresh(64, &[]));
    journal.unmount().unwrap();
    volume.unmount().unwrap();
    let device = journal.device().to_str().unwrap();
    tool::run("mke2fs", ["-q", "-F", "-b", "4096", "-O", "journal_dev", device]).unwrap();
    let option = format!("device={device}");
    tool::run("mkfs.ext4", ["-q", "-F", "-b", "4096", "-J", &option, volume.device().to_str().unwrap()]).unwrap();
    volume.mount().unwrap();
    let message = refusal(&volume).to_string();
    assert!(message.contains("external journal"), "{message}");
}

#[test]
fn loop_a_second_optimizer_is_told_who_holds_the_volume() {
    let volume = fresh(64, &[]);
    let first = open(&volume);
    let message = refusal(&volume).to_string();
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    drop(first);
    drop(open(&volume));
}

/// Fills the volume while nearly all free space is ours; the filler must get all of it.
///
/// The kernel tries again three times, each after a commit. On a busy machine the guard can be later than the third try, and the filler is
/// refused before it has everything: a campaign measures how early. The filler gets the rest when it tries once more.
#[test]
fn loop_whoever_fills_the_volume_gets_all_the_space() {
    // How the space is taken: written with and without the page cache.
    for flag in ["nonblock", "direct"] {
        let volume = fresh(512, &["-m", "0"]);
        let mut moved = open(&volume);
        let all = free(&mut moved);
        let unclaimed = moved.unclaimed().unwrap();
        let got = moved.capture(&all).unwrap();
        assert!(got.total().0 * 10 > all.total().0 * 9);
        let path = volume.mount_point().join("filler");
        // Returns by how many bytes the file is shorter than what was free.
        let fill = || {
            let flags = format!("oflag={flag},append");
            let arguments = ["if=/dev/zero".into(), format!("of={}", path.display()), "bs=64k".into(), flags];
            let status = Command::new("dd").args(arguments).arg("conv=notrunc").status().unwrap();
            assert!(!status.success(), "it ends when the volume is full");
            (unclaimed.0 * 4096).saturating_sub(fs::metadata(&path).unwrap().len())
        };
        let (begun, mut short) = (Instant::now(), fill());
        // The tree of the file takes some blocks, and dd stops at the first request that does not fit as a whole.
        while short > 128 << 10 {
            let late = begun.elapsed() > Duration::from_secs(60);
            assert!(!late, "{short} of {unclaimed} blocks: bytes less than were free ({flag})");
            short = fill();
        }
        assert!(moved.owned().unwrap().is_empty(), "everything was given back");
        let plain = write_after(&volume);
        assert_eq!(
            skip_of(moved.exchange(plain, LogicalBlock(0), all.largest().unwrap().start, Blocks(1))),
            SkipReason::SpaceNeeded
        );
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"still in order", 0).unwrap();
        drop(moved);
        volume.check().unwrap();
    }
}

/// The guard looks less often while there is ample space, and far from the end there is no tripwire: one request for more than
/// we left must meet it all the same.
#[test]
fn loop_one_request_for_more_than_we_left_gets_all_the_space() {
    // Of the larger one more is left than is watched by a tripwire.
    for gibibytes in [8, 24] {
        // The kernel tries again three times, each after a commit. Where all processors have other work for that long, the guard
        // comes too late: not three times in succession.
        let refused: Vec<_> = (0..3).map_while(|_| one_request_for_more_than_we_left(gibibytes).err()).collect();
        assert!(refused.len() < 3, "{refused:?}");
    }
}

fn one_request_for_more_than_we_left(gibibytes: u64) -> anyhow::Result<()> {
    let volume = fresh(gibibytes << 10, &["-m", "0"]);
    let mut moved = open(&volume);
    let unclaimed = moved.unclaimed().unwrap();
    let mut wanted = ExtentSet::new();
    for extent in free(&mut moved).iter() {
        let room = (unclaimed.0 / 2).saturating_sub(wanted.total().0);
        wanted.insert(Extent::new(extent.start.0, extent.length.0.min(room)));
    }
    assert!(moved.capture(&wanted).unwrap().total().0 * 5 > unclaimed.0 * 2);
    // What was freed by capturing is committed by then: it would do what the tripwire does.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        longrun_sys::sync_volume(File::open(volume.mount_point()).unwrap()).unwrap();
    }
    let path = volume.mount_point().join("filler");
    let bytes = (unclaimed.0 - 8192) * 4096;
    tool::run("fallocate", ["-l", &bytes.to_string(), path.to_str().unwrap()])?;
    assert!(moved.owned().unwrap().is_empty(), "everything was given back");
    Ok(())
}

/// A small file on the full volume: room is made by shortening the filler.
fn write_after(volume: &longrun_lab::LoopVolume) -> FileId {
    let filler = OpenOptions::new().write(true).open(volume.mount_point().join("filler")).unwrap();
    let length = filler.metadata().unwrap().len();
    filler.set_len(length - (8 << 20)).unwrap();
    filler.sync_all().unwrap();
    id(&write(volume, "late", 8192))
}
