//! Story: an optimizer that moves every file of a volume is cut off by power failures and kill −9. Every byte, every
//! attribute and every free block must be there afterwards. The long form is `longrun-lab crash --runs 100`.

mod common;

use longrun_lab::{CrashSettings, FileSystemKind, crash};

#[test]
fn loop_crashes_change_no_file_and_lose_no_space() {
    let mut interrupted = 0;
    let settings = CrashSettings { kind: FileSystemKind::Ext4, runs: 6, seed: 1, mebibytes: 256 };
    crash(&settings, &common::longrun("full"), &mut |run| interrupted += u32::from(run.interrupted)).unwrap();
    assert!(
        interrupted >= 3,
        "only {interrupted} of {} runs were cut off at work: the test proves little",
        settings.runs
    );
}

#[test]
fn loop_crashes_of_an_efficient_pass_change_no_file_and_lose_no_space() {
    let settings = CrashSettings { kind: FileSystemKind::Ext4, runs: 2, seed: 101, mebibytes: 256 };
    crash(&settings, &common::longrun("efficient"), &mut |_| {}).unwrap();
}

#[test]
fn loop_crashes_on_xfs_change_no_file_and_lose_no_space() {
    let mut interrupted = 0;
    let settings = CrashSettings { kind: FileSystemKind::Xfs, runs: 6, seed: 1, mebibytes: 320 };
    crash(&settings, &common::longrun("full"), &mut |run| interrupted += u32::from(run.interrupted)).unwrap();
    assert!(
        interrupted >= 3,
        "only {interrupted} of {} runs were cut off at work: the test proves little",
        settings.runs
    );
}

#[test]
fn loop_crashes_on_btrfs_change_no_file_and_unshare_nothing() {
    let mut interrupted = 0;
    let settings = CrashSettings { kind: FileSystemKind::Btrfs, runs: 3, seed: 5, mebibytes: 400 };
    crash(&settings, &common::longrun("full"), &mut |run| interrupted += u32::from(run.interrupted)).unwrap();
    assert!(
        interrupted >= 1,
        "only {interrupted} of {} runs were cut off at work: the test proves little",
        settings.runs
    );
}
