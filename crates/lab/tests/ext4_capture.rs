//! Capture under every setting of ext4's allocator. On a device that does not rotate the kernel no longer tries the group of the
//! goal first: captures asked for the same blocks thousands of times, got them nowhere, and a run moved 1 MiB a second.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "mover/bench.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bench;

use bench::{free, open};
use longrun_ageing::Recipe;
use longrun_engine::{Placed, Volume};
use longrun_lab::{LoopVolume, Medium, VolumeSpec, tool};
use longrun_layout::{Blocks, Extent, ExtentSet};
use longrun_volume::ext4::Ext4Volume;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Enough groups that the allocator searches them in the optimized way.
const MEBIBYTES: u64 = 2048;

/// What a capture may change for a moment.
const SETTINGS: [&str; 3] = ["mb_stream_req", "mb_max_linear_groups", "mb_group_prealloc"];

fn setting(volume: &LoopVolume, name: &str) -> PathBuf {
    PathBuf::from("/sys/fs/ext4").join(volume.device().file_name().unwrap()).join(name)
}

fn settings(volume: &LoopVolume) -> [Option<String>; 3] {
    SETTINGS.map(|name| fs::read_to_string(setting(volume, name)).ok())
}

/// Every second file of many is deleted: free runs of a few blocks, by hundreds.
fn furnish(volume: &LoopVolume) {
    for number in 0..1200 {
        let bytes = vec![number as u8; 4096 * (1 + number * 7 % 13)];
        fs::write(volume.mount_point().join(format!("f{number}")), bytes).unwrap();
    }
    // Without this nothing would have a place yet.
    rustix::fs::sync();
    for number in (0..1200).step_by(2) {
        fs::remove_file(volume.mount_point().join(format!("f{number}"))).unwrap();
    }
}

/// Small runs, single blocks in the middle of free space, and a part of every group, those included that nothing was ever
/// written to.
fn chosen(free: &ExtentSet) -> ExtentSet {
    let small = free.iter().filter(|run| run.length.0 <= 13).take(3000);
    let large = free.iter().filter(|run| run.length.0 > 4000);
    let parts = large.flat_map(|run| {
        let at = |share: u64, length| Extent::new(run.start.0 + run.length.0 * share / 10, length);
        [at(2, 1), at(3, 16), at(5, 100), at(7, 333)]
    });
    small.chain(parts).collect()
}

/// Captures what `chosen` says; how many of so many blocks it got, and for how many system calls.
fn capture(moved: &mut Ext4Volume) -> (u64, u64, u64) {
    let wanted = chosen(&free(moved));
    let before = moved.capture_calls();
    let got = moved.capture(&wanted).unwrap();
    assert!(got.iter().all(|extent| wanted.covers(extent)), "only what was wanted is kept");
    assert_eq!(moved.owned().unwrap(), got);
    (got.total().0, wanted.total().0, moved.capture_calls() - before)
}

/// What mkfs is told, the mount options, and a setting of the allocator that somebody has changed.
type Case = (&'static [&'static str], &'static str, Option<(&'static str, &'static str)>);

const CASES: [Case; 9] = [
    (&[], "", None),
    (&[], "mb_optimize_scan=0", None),
    (&[], "mb_optimize_scan=1", None),
    (&[], "stripe=16", None),
    (&["-E", "stride=4,stripe_width=12"], "", None),
    (&["-E", "lazy_itable_init=0,lazy_journal_init=0"], "discard", None),
    (&["-E", "lazy_itable_init=1,lazy_journal_init=1"], "noauto_da_alloc", None),
    (&["-g", "8192"], "mb_optimize_scan=1", Some(("mb_group_prealloc", "0"))),
    (&[], "", Some(("mb_max_linear_groups", "0"))),
];

#[test]
fn loop_capture_gets_what_is_free_whatever_the_allocator_is_set_to() {
    for (mkfs, mount, changed) in CASES {
        for medium in Medium::ALL {
            let spec = VolumeSpec::ext4(MEBIBYTES).mkfs(&[mkfs, &["-b", "4096"]].concat()).mount(mount).on(medium);
            let volume = LoopVolume::create(&spec).unwrap();
            if let Some((name, value)) = changed {
                fs::write(setting(&volume, name), value).unwrap();
            }
            let before = settings(&volume);
            furnish(&volume);
            let mut moved = open(&volume);
            let (got, wanted, calls) = capture(&mut moved);
            let case = format!("{mkfs:?} {mount} {changed:?} {medium:?}: {got} of {wanted} blocks, {calls} calls");
            assert!(wanted > 3000 && got * 100 >= wanted * 99, "{case}");
            assert!(calls < wanted * 2, "{case}");
            assert_eq!(settings(&volume), before, "{case}");
            drop(moved);
            volume.check().unwrap();
        }
    }
}

/// Shows a value of a setting that is not the kernel's, and takes what is written to it: while this lives nobody can change it.
struct Pretended(PathBuf, #[expect(dead_code, reason = "what is shown")] tempfile::NamedTempFile);

impl Pretended {
    fn new(setting: PathBuf, value: &str) -> Self {
        let shown = tempfile::NamedTempFile::new().unwrap();
        fs::write(shown.path(), value).unwrap();
        tool::run("mount", ["--bind".as_ref(), shown.path(), &*setting]).unwrap();
        Self(setting, shown)
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        tool::run("umount", [&self.0]).unwrap();
    }
}

/// The kernel does not follow goals, and says that it does: that is learned soon.
#[test]
fn loop_a_capture_whose_goals_are_not_followed_gives_up_after_a_bounded_number_of_calls() {
    let spec = VolumeSpec::ext4(MEBIBYTES).mkfs(&["-b", "4096"]).mount("mb_optimize_scan=1").on(Medium::SolidState);
    let (volume, _) = LoopVolume::aged(&spec, Recipe::Server, 3).unwrap();
    let mut moved = open(&volume);
    let pretended = ["mb_stream_req", "mb_max_linear_groups"].map(|name| Pretended::new(setting(&volume, name), "4"));
    let (got, wanted, calls) = capture(&mut moved);
    drop(pretended);
    // Without goals most cannot be had; what can takes few calls each, what cannot a bounded number for each group.
    assert!(got * 2 < wanted, "{got} of {wanted} blocks: goals were followed");
    assert!(calls < 1000 + got * 4, "{got} of {wanted} blocks took {calls} calls");
    // Without it the same blocks can be had.
    let owned = moved.owned().unwrap();
    moved.release(&owned).unwrap();
    moved.commit().unwrap();
    let (got, wanted, _) = capture(&mut moved);
    assert!(got * 100 >= wanted * 99, "{got} of {wanted}");
    drop(moved);
    volume.check().unwrap();
}

/// On a small volume less may be held than what the allocator hands out before the wanted blocks. Half of the free space was called out
/// of reach there, round after round. Later goals were counted from blocks that had been given back on the way: a whole group of wanted
/// ones was given up now and then. The same came of commits in the middle of a capture: what they make free was not expected.
#[test]
fn loop_a_capture_with_little_room_gets_to_what_lies_behind_more_than_that_whoever_commits() {
    let spec = VolumeSpec::ext4(256).mkfs(&["-b", "4096"]);
    let (volume, _) = LoopVolume::aged(&spec, Recipe::Aged, 42).unwrap();
    let mut moved = open(&volume);
    let all: Vec<Extent> = free(&mut moved).iter().collect();
    for at_once in 1..=8 {
        assert_captured(&mut moved, &all, at_once);
        let (done, root) = (AtomicBool::new(false), fs::File::open(volume.mount_point()).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    rustix::fs::syncfs(&root).unwrap();
                    thread::sleep(Duration::from_micros(300));
                }
            });
            let captured = panic::catch_unwind(AssertUnwindSafe(|| assert_captured(&mut moved, &all, at_once)));
            done.store(true, Ordering::SeqCst);
            captured.unwrap();
        });
    }
    drop(moved);
    volume.check().unwrap();
}

/// Captures the beginnings of all these pieces, so many at once, and gives them back each time.
fn assert_captured(moved: &mut Ext4Volume, all: &[Extent], at_once: usize) {
    let (mut got, mut asked) = (0, 0);
    // The last pieces of the volume first: what lies in front of them is free, too.
    for pieces in all.rchunks(at_once) {
        let wanted: ExtentSet =
            pieces.iter().map(|piece| Extent { length: piece.length.min(Blocks(200)), ..*piece }).collect();
        asked += wanted.total().0;
        got += moved.capture(&wanted).unwrap().total().0;
        let owned = moved.owned().unwrap();
        moved.release(&owned).unwrap();
        moved.commit().unwrap();
    }
    assert!(got * 100 >= asked * 97, "{got} of {asked}, {at_once} pieces at once");
}
