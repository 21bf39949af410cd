//! Story: an XFS volume on which some files must not move: copies that share their blocks, an immutable file, one with
//! blocks that were preallocated inside. They stay, with their sharing; all others are put together, and none of them loses
//! a byte, a time or a hole. And volumes on which files cannot be moved safely are refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_ageing::Recipe;
use longrun_lab::oracle::{dump, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Where each extent of a file lies, as filefrag shows it.
fn places(file: &Path) -> String {
    tool::run("filefrag", [Path::new("-v"), file]).unwrap()
}

#[test]
fn loop_files_that_must_not_move_on_xfs_stay_and_the_others_lose_nothing() {
    let (volume, summary) = LoopVolume::aged(&VolumeSpec::xfs(512), Recipe::Churn, 5).unwrap();
    let mount = volume.mount_point();
    let sizes = |path: &Path| fs::metadata(path).unwrap().len();
    let mut files: Vec<_> = filefrag(&mount).unwrap().worst.into_keys().collect();
    files.sort_by_key(|path| sizes(path));
    let [.., immutable, original] = files.as_slice() else { panic!("too few files in pieces: {summary:?}") };
    let copy = mount.join("copy");
    tool::run("cp", ["--reflink=always".as_ref(), original.as_os_str(), copy.as_os_str()]).unwrap();
    let prepared = mount.join("prepared");
    tool::run("fallocate", ["-l", "1M", prepared.to_str().unwrap()]).unwrap();
    tool::run("chattr", ["+i".as_ref(), immutable.as_os_str()]).unwrap();
    let capable = mount.join("capable");
    fs::copy("/bin/true", &capable).unwrap();
    tool::run("setcap", ["cap_net_raw+ep", capable.to_str().unwrap()]).unwrap();
    volume.remount().unwrap();
    let (before, excess) = (dump(&mount).unwrap(), filefrag(&mount).unwrap().excess);
    let staying = [original.as_path(), copy.as_path(), immutable.as_path(), prepared.as_path()];
    let were = staying.map(places);
    let finished = common::longrun("full").run(&mount, LIMIT).unwrap();
    let skipped: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    volume.remount().unwrap();
    longrun_lab::oracle::compare(&before, &dump(&mount).unwrap()).unwrap();
    assert_eq!(staying.map(places), were, "{skipped:#}");
    let left: u64 = filefrag(&mount).unwrap().excess;
    let pinned: u64 = [&original, &immutable].map(|path| longrun_lab::oracle::excess_of(path).unwrap()).iter().sum();
    assert!(left <= 2 * pinned + excess / 20, "{excess} before, {left} after, {pinned} in files that must stay");
    tool::run("chattr", ["-i".as_ref(), immutable.as_os_str()]).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_xfs_without_sharing_is_refused_with_the_reason() {
    let volume = LoopVolume::create(&VolumeSpec::xfs(320).mkfs(&["-m", "reflink=0"])).unwrap();
    let refused = common::longrun("full").start(&volume.mount_point()).unwrap().wait(LIMIT).unwrap();
    assert!(!refused.status.success() && refused.stderr.contains("without reflink"), "{refused:?}");
}
