//! Story: while free space is held for the optimizer, another process writes until the volume is full. It must get what
//! it would have got without us, and on a machine that has time for the guard without being refused before: processes do
//! not try again when they hear ENOSPC.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_ageing::Recipe;
use longrun_lab::{Filling, FullReport, LoopVolume, Optimizer, VolumeSpec, fill_beside};
use std::ops::Range;
use std::time::Duration;

/// Of the same kind, until one is not refused early.
const ATTEMPTS: u32 = 10;

fn check(volume: &LoopVolume, optimizer: &Optimizer, milliseconds: u64, filling: Filling) -> FullReport {
    let report = fill_beside(volume, optimizer, Duration::from_millis(milliseconds), filling).unwrap();
    eprintln!("{filling:?} after {milliseconds} ms: {report:?}");
    // How many blocks the map of the filler itself takes is never quite the same.
    assert!(report.beside.in_the_end.abs_diff(report.alone.in_the_end) < 1 << 20, "space was withheld: {report:?}");
    report
}

fn aged(seed: u64) -> LoopVolume {
    LoopVolume::aged(&VolumeSpec::ext4(512).mkfs(&["-b", "4096"]), Recipe::Aged, seed).unwrap().0
}

#[test]
fn loop_a_process_that_fills_the_volume_gets_all_the_space_that_was_free() {
    let (volume, optimizer) = (aged(3), common::longrun("full"));
    for filling in [Filling::Steady, Filling::Preallocation] {
        check(&volume, &optimizer, 200, filling);
    }
}

/// How early a filler is refused is a race between it and the guard: on a disk in memory every second preallocation is refused 3 to 30 % before
/// the end, and others on a machine that has no time for the guard. Without the guard every attempt is.
#[test]
fn campaign_a_process_that_fills_the_volume_is_not_refused_before_it_is_full() {
    let (volume, optimizer) = (aged(3), common::longrun("full"));
    let mut met = 0;
    for milliseconds in [100, 400] {
        for filling in [Filling::Steady, Filling::Burst, Filling::Preallocation] {
            let early = |report: &FullReport| report.beside.at_once * 100 < report.alone.at_once * 98;
            let mut reports = (0..ATTEMPTS).map(|_| check(&volume, &optimizer, milliseconds, filling));
            let report = reports.find(|report| !early(report)).expect("refused too early, each time");
            met += u32::from(report.optimizer_was_running);
        }
    }
    assert!(met > 0, "the optimizer had always ended before: the test proves nothing");
}

/// Nine tenths full: what a pass gives back on the way counts as free, but cannot be had before the next commit. One pass in eight ended with
/// ENOSPC when a hole found no block for the tree of our own file. Which one depends on how the kernel had laid out the volume.
fn check_passes(seeds: Range<u64>) {
    let optimizer = common::longrun("full");
    for seed in seeds {
        let volume = aged(seed);
        let finished = optimizer.run(&volume.mount_point(), Duration::from_secs(600)).unwrap();
        assert!(finished.status.success(), "seed {seed}: {finished:?}");
        volume.check().unwrap();
    }
}

#[test]
fn loop_passes_on_nearly_full_volumes_do_not_run_out_of_space_themselves() {
    check_passes(5..7);
}

#[test]
fn campaign_passes_on_nearly_full_volumes_do_not_run_out_of_space_themselves() {
    check_passes(7..17);
}

#[test]
fn loop_a_process_that_fills_an_xfs_volume_gets_all_the_space_that_was_free() {
    let (volume, _) = LoopVolume::aged(&VolumeSpec::xfs(512), Recipe::Churn, 3).unwrap();
    check(&volume, &common::longrun("full"), 200, Filling::Steady);
}

fn fill_btrfs(volume: &LoopVolume, milliseconds: u64) -> FullReport {
    let after = Duration::from_millis(milliseconds);
    let report = fill_beside(volume, &common::longrun("full"), after, Filling::Steady).unwrap();
    eprintln!("after {milliseconds} ms: {report:?}");
    // How much of the space metadata gets in the end is never quite the same.
    assert!(report.beside.in_the_end * 100 >= report.alone.in_the_end * 97, "space was withheld: {report:?}");
    report
}

#[test]
fn campaign_a_process_that_fills_a_volume_at_other_moments_gets_all_the_space_that_was_free() {
    let (xfs, _) = LoopVolume::aged(&VolumeSpec::xfs(512), Recipe::Churn, 3).unwrap();
    let (btrfs, _) = LoopVolume::aged(&VolumeSpec::btrfs(512), Recipe::Server, 3).unwrap();
    let optimizer = common::longrun("full");
    let fill_xfs = |milliseconds| {
        let met = |filling| check(&xfs, &optimizer, milliseconds, filling).optimizer_was_running;
        met(Filling::Steady) || met(Filling::Burst)
    };
    let met_xfs = [100, 400].map(fill_xfs).contains(&true);
    let met_btrfs =
        [200, 1000].map(|milliseconds| fill_btrfs(&btrfs, milliseconds).optimizer_was_running).contains(&true);
    assert!(met_xfs && met_btrfs, "the optimizer had always ended before: the test proves nothing");
}
