//! Story: an optimizer that moves every file of a volume is cut off by power failures and kill −9. Every byte, every
//! attribute and every free block must be there afterwards. The long form is `longrun-lab crash --runs 100`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests may fail loudly, and tell their figures"
)]

mod common;

use longrun_lab::{CrashSettings, FileSystemKind, crash};

/// Cuts off a few passes, wherever they are by then: nothing may be lost.
fn short(kind: FileSystemKind, mode: &str, (runs, seed): (u64, u64), mebibytes: u64) {
    let settings = CrashSettings { kind, runs, seed, mebibytes };
    crash(&settings, &common::longrun(mode), &mut |run| println!("{run:?}")).unwrap();
}

#[test]
fn loop_crashes_change_no_file_and_lose_no_space() {
    short(FileSystemKind::Ext4, "full", (2, 1), 256);
}

#[test]
fn campaign_crashes_of_an_efficient_pass_change_no_file_and_lose_no_space() {
    short(FileSystemKind::Ext4, "efficient", (2, 101), 256);
}

#[test]
fn loop_crashes_on_xfs_change_no_file_and_lose_no_space() {
    short(FileSystemKind::Xfs, "full", (2, 1), 320);
}

#[test]
fn loop_crashes_on_btrfs_change_no_file_and_unshare_nothing() {
    short(FileSystemKind::Btrfs, "full", (1, 5), 400);
}

/// Cuts off passes with further seeds until enough of them were at work: when a pass ends depends on what else the machine does, and a cut
/// after its end proves nothing.
#[track_caller]
fn check_crashes(kind: FileSystemKind, (runs, at_work): (u64, u64), seed: u64, mebibytes: u64) {
    const ROUNDS: u64 = 4;
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let settings = CrashSettings { kind, runs, seed: seed + 1000 * round, mebibytes };
        crash(&settings, &common::longrun("full"), &mut |run| interrupted += u64::from(run.interrupted)).unwrap();
        if interrupted >= at_work {
            return;
        }
    }
    panic!("only {interrupted} of {} runs were cut off at work: the test proves little", runs * ROUNDS);
}

#[test]
fn campaign_crashes_at_work_change_no_file_and_lose_no_space() {
    check_crashes(FileSystemKind::Ext4, (6, 3), 1, 256);
    check_crashes(FileSystemKind::Xfs, (6, 3), 1, 320);
    check_crashes(FileSystemKind::Btrfs, (3, 1), 5, 400);
}

/// Placing is nearly all that is left to do there, and every cut comes after it began: files have to lie elsewhere afterwards.
#[track_caller]
fn check_crashes_of_placing(kind: FileSystemKind, mebibytes: u64) {
    const ROUNDS: u64 = 4;
    let (mut interrupted, mut placed) = (0, 0);
    // As above: when placing ends depends on what else the machine does.
    for round in 0..ROUNDS {
        let settings = CrashSettings { kind, runs: 8, seed: 301 + 1000 * round, mebibytes };
        crash(&settings, &common::placing("files"), &mut |run| {
            println!("{run:?}");
            interrupted += u64::from(run.interrupted);
            // The pass before placing may move one or two again.
            placed += u64::from(run.interrupted && run.placed >= 10);
        })
        .unwrap();
        if interrupted >= 3 && placed >= 1 {
            return;
        }
    }
    panic!("{interrupted} cut off at work, {placed} of them with files placed: the test proves little");
}

#[test]
fn campaign_crashes_while_files_are_placed_by_heat_change_no_file_and_lose_no_space() {
    check_crashes_of_placing(FileSystemKind::Ext4, 512);
}

#[test]
fn campaign_crashes_while_files_are_placed_by_heat_on_xfs_change_no_file_and_lose_no_space() {
    check_crashes_of_placing(FileSystemKind::Xfs, 512);
}
