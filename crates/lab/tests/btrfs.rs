//! Story: btrfs volumes are optimized while their files are shared with snapshots. Files come to lie in few pieces and the
//! free space too, nothing loses a byte, a time or its sharing, and no volume takes more space than before. What could not be
//! done so is left with its reason, or the volume is refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;
#[path = "common/several_devices.rs"]
mod several_devices;

use longrun_ageing::Recipe;
use longrun_lab::oracle::{btrfs_usage, compare, dump, excess_of, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use serde_json::Value;
use several_devices::SeveralDevices;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(900);

fn btrfs(arguments: &[&str]) {
    tool::run("btrfs", arguments).unwrap();
}

/// A file in pieces of 16 KiB: every other one is written first.
fn in_pieces(path: &Path, pieces: u64, seed: u8) {
    let file = File::create(path).unwrap();
    for round in [0, 1] {
        for piece in (round..pieces).step_by(2) {
            file.write_all_at(&vec![seed ^ piece as u8; 16 << 10], piece * (16 << 10)).unwrap();
            file.sync_all().unwrap();
        }
    }
}

fn report(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}

#[test]
fn loop_a_full_pass_on_an_aged_btrfs_puts_files_together_and_changes_no_file() {
    check_a_full_pass(640);
}

#[test]
fn campaign_a_full_pass_on_an_aged_btrfs_puts_files_together_and_changes_no_file() {
    check_a_full_pass(1280);
}

fn check_a_full_pass(mebibytes: u64) {
    let (volume, _) = LoopVolume::aged(&VolumeSpec::btrfs(mebibytes), Recipe::Churn, 11).unwrap();
    let mount = volume.mount_point();
    let (before, excess, used) =
        (dump(&mount).unwrap(), filefrag(&mount).unwrap().excess, btrfs_usage(&mount).unwrap().data);
    let finished = common::longrun("full").run(&mount, LIMIT).unwrap();
    volume.remount().unwrap();
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let (left, now) = (filefrag(&mount).unwrap().excess, btrfs_usage(&mount).unwrap().data);
    assert!(excess > 1000 && left * 10 <= excess, "{excess} before, {left} after\n{}", finished.stdout);
    assert!(now <= used, "{used} bytes before, {now} after");
    let told = report(&finished.stdout);
    // In how many pieces the free space ends is not asked: as full as this, with no chunk whose content fits beside the rest,
    // it is the allocator's choice, and was seen to go from 359 to 457 as well as down.
    assert!(told["bytes_moved"].as_u64().unwrap() <= told["before"]["used_bytes"].as_u64().unwrap() * 3, "{told:#}");
    volume.check().unwrap();
}

#[test]
fn campaign_a_btrfs_on_several_devices_is_optimized_like_one_on_a_single_device() {
    for (profile, devices, mebibytes) in [("raid1", 2, 640), ("single", 2, 384), ("raid10", 4, 384)] {
        let volume = SeveralDevices::create(profile, devices, mebibytes);
        let mount = volume.first.mount_point();
        longrun_ageing::age(&mount, Recipe::Churn, 11, &mut |_| ControlFlow::Continue(())).unwrap();
        volume.first.remount().unwrap();
        let (before, excess, used) =
            (dump(&mount).unwrap(), filefrag(&mount).unwrap().excess, btrfs_usage(&mount).unwrap().data);
        let finished = common::longrun("full").run(&mount, LIMIT).unwrap();
        volume.first.remount().unwrap();
        compare(&before, &dump(&mount).unwrap()).unwrap();
        let (left, now) = (filefrag(&mount).unwrap().excess, btrfs_usage(&mount).unwrap().data);
        // Where data goes btrfs decides; as full as these volumes are, 1059 of 10,173 were seen to be left.
        assert!(excess > 1000 && left * 8 <= excess, "{profile}: {excess} before, {left} after\n{}", finished.stdout);
        assert!(now <= used, "{profile}: {used} bytes before, {now} after");
        tool::run("btrfs", ["scrub", "start", "-B", mount.to_str().unwrap()]).unwrap();
        volume.first.check().unwrap();
    }
}

#[test]
fn loop_files_that_snapshots_share_are_put_together_with_them_and_take_no_space() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(640)).unwrap();
    let mount = volume.mount_point();
    let path = |name: &str| mount.join(name).to_str().unwrap().to_owned();
    btrfs(&["subvolume", "create", &path("live")]);
    for number in 0..20 {
        in_pieces(&mount.join(format!("live/file{number}")), 40, number);
    }
    for round in 0..3 {
        btrfs(&["subvolume", "snapshot", "-r", &path("live"), &path(&format!("snapshot{round}"))]);
        // A changing tree: some blocks of some files, and an end that is no whole block.
        for number in (round..20).step_by(4) {
            let file = File::options().write(true).open(mount.join(format!("live/file{number}"))).unwrap();
            file.write_all_at(&[round as u8; 5000], 77_000 * (round + 1)).unwrap();
            file.sync_all().unwrap();
        }
    }
    let clone = ["--reflink=always", &path("live/file19"), &path("live/clone")];
    tool::run("cp", clone).unwrap();
    volume.remount().unwrap();
    let (before, used) = (dump(&mount).unwrap(), btrfs_usage(&mount).unwrap().data);
    let excess = |name: &str| filefrag(&mount.join(name)).unwrap().excess;
    let (live, all) = (excess("live"), excess(""));
    let finished = common::longrun("full").run(&mount, LIMIT).unwrap();
    volume.remount().unwrap();
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let now = btrfs_usage(&mount).unwrap().data;
    assert!(now <= used, "{used} bytes before, {now} after\n{}", finished.stdout);
    assert!(excess("live") * 10 <= live && excess("") * 4 <= all, "{live}, {all} before\n{}", finished.stdout);
    volume.check().unwrap();
}

#[test]
fn loop_what_must_not_move_on_btrfs_stays_with_its_reason_and_what_is_written_in_place_moves_in_kind() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(640)).unwrap();
    let mount = volume.mount_point();
    File::create(mount.join("in-place")).unwrap();
    tool::run("chattr", ["+C".as_ref(), mount.join("in-place").as_os_str()]).unwrap();
    let file = File::options().write(true).open(mount.join("in-place")).unwrap();
    for piece in (0..40_u64).rev() {
        file.write_all_at(&[piece as u8; 16 << 10], piece * (16 << 10)).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    File::create(mount.join("compressed")).unwrap();
    tool::run("chattr", ["+c".as_ref(), mount.join("compressed").as_os_str()]).unwrap();
    let file = File::options().write(true).open(mount.join("compressed")).unwrap();
    for piece in (0..20_u64).rev() {
        file.write_all_at(&vec![piece as u8; 128 << 10], piece * (128 << 10)).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    in_pieces(&mount.join("immutable"), 30, 1);
    in_pieces(&mount.join("prepared"), 30, 2);
    let file = File::options().write(true).open(mount.join("prepared")).unwrap();
    longrun_sys::allocate(
        &file,
        longrun_sys::ByteRange { start: longrun_layout::Bytes(1 << 20), length: longrun_layout::Bytes(1 << 20) },
    )
    .unwrap();
    drop(file);
    tool::run("chattr", ["+i".as_ref(), mount.join("immutable").as_os_str()]).unwrap();
    volume.remount().unwrap();
    let before = dump(&mount).unwrap();
    let finished = common::longrun("full").run(&mount, LIMIT).unwrap();
    volume.remount().unwrap();
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let told = report(&finished.stdout);
    for reason in ["compressed", "immutable", "preallocated"] {
        let skipped = told["skipped"].as_array().unwrap().iter().find(|kind| kind["reason"] == reason);
        assert_eq!(skipped.and_then(|kind| kind["files"].as_u64()), Some(1), "{reason}: {told:#}");
    }
    assert_eq!(excess_of(&mount.join("in-place")).unwrap(), 0);
    tool::run("chattr", ["-i".as_ref(), mount.join("immutable").as_os_str()]).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_a_signal_ends_it_within_seconds_and_leaves_no_balance_behind() {
    let (volume, _) = LoopVolume::aged(&VolumeSpec::btrfs(512), Recipe::Churn, 12).unwrap();
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    for pause in [300, 900, 2000] {
        let mut running = common::longrun("full").start(&mount).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        running.terminate().unwrap();
        let asked = Instant::now();
        let finished = running.wait(LIMIT).unwrap();
        assert!(asked.elapsed() < Duration::from_secs(60), "it does not end");
        assert!(finished.status.code() == Some(130) || finished.status.success(), "{finished:?}");
        let status = std::process::Command::new("btrfs").args(["balance", "status"]).arg(&mount).output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("No balance found"), "{status}");
    }
    volume.remount().unwrap();
    compare(&before, &dump(&mount).unwrap()).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_chunks_with_trees_too_with_parity_or_of_two_kinds_are_refused_and_doubled_data_moves_with_its_copy() {
    let create = |options: &[&str]| LoopVolume::create(&VolumeSpec::btrfs(640).mkfs(options)).unwrap();
    let (mixed, parity) = (create(&["-M"]), SeveralDevices::create("raid5", 3, 256));
    let half = create(&["-d", "single"]);
    fs::write(half.mount_point().join("large"), vec![7; 200 << 20]).unwrap();
    // What is written after the conversion has begun goes into chunks of the new profile alone.
    rustix::fs::sync();
    let convert =
        ["balance", "start", "-f", "-dconvert=dup,limit=1", half.mount_point().to_str().unwrap()].map(str::to_owned);
    btrfs(&convert.each_ref().map(String::as_str));
    for (volume, reason) in
        [(&mixed, "--mixed"), (&parity.first, "RAID5"), (&half, "converted only in part (DUP, single")]
    {
        in_pieces(&volume.mount_point().join("file"), 20, 1);
        let before = dump(&volume.mount_point()).unwrap();
        let refused = common::longrun("full").start(&volume.mount_point()).unwrap().wait(LIMIT).unwrap();
        assert!(refused.status.code() == Some(3) && refused.stderr.contains(reason), "{refused:?}");
        compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    }
    let volume = create(&["-d", "dup", "-m", "dup"]);
    let mount = volume.mount_point();
    for number in 0..10 {
        in_pieces(&mount.join(format!("file{number}")), 40, number);
    }
    let (before, excess) = (dump(&mount).unwrap(), filefrag(&mount).unwrap().excess);
    let used = btrfs_usage(&mount).unwrap().data;
    common::longrun("full").run(&mount, LIMIT).unwrap();
    volume.remount().unwrap();
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let left = filefrag(&mount).unwrap().excess;
    assert!(excess > 100 && left * 20 <= excess, "{excess} before, {left} after");
    let now = btrfs_usage(&mount).unwrap().data;
    assert!(now <= used, "{used} bytes before, {now} after");
    volume.check().unwrap();
}

#[test]
fn loop_a_volume_that_somebody_else_works_on_is_refused() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(640)).unwrap();
    let mount = volume.mount_point();
    fs::write(mount.join("file"), vec![7; 64 << 20]).unwrap();
    let locked = longrun_sys::LockFile::new(File::open(&mount).unwrap());
    assert!(locked.set(longrun_sys::FlockOperation::LockExclusive).unwrap());
    let refused = common::longrun("full").start(&mount).unwrap().wait(LIMIT).unwrap();
    assert!(!refused.status.success() && refused.stderr.contains("working on this volume"), "{refused:?}");
    drop(locked);
    common::longrun("full").run(&mount, LIMIT).unwrap();
}
