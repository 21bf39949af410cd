//! `longrun prevent` on real volumes: its end, its refusals, and what a kill −9 leaves.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{LONGRUN, check, longrun};
use longrun_lab::oracle::used_space;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, bytes_beyond_the_end};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts it, and waits until it is at work.
fn prevent(
    mount_point: &Path,
    state: &Path,
    more: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>, serde_json::Value) {
    let mut child = Command::new(LONGRUN)
        .arg("prevent")
        .arg(mount_point)
        .args(["--json", "--state"])
        .arg(state)
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, output, serde_json::from_str(&line).unwrap())
}

fn end(mut child: Child, mut output: impl std::io::Read) -> serde_json::Value {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    serde_json::from_str(&text).unwrap()
}

/// Six writers at once, past the cache, each its own file.
fn writers(mount_point: &Path) -> Child {
    let script =
        "for n in 1 2 3 4 5 6; do dd if=/dev/zero of=$0/$n bs=64k count=300 oflag=direct status=none & done; wait";
    Command::new("sh").args(["-c", script]).arg(mount_point).spawn().unwrap()
}

#[test]
fn loop_prevent_ends_well_when_it_is_told_to_and_refuses_what_it_cannot_do() {
    let volume = LoopVolume::create(&VolumeSpec::xfs(2048)).unwrap();
    let state = tempfile::tempdir().unwrap();
    let point = volume.mount_point();
    let (child, output, ready) = prevent(&point, state.path(), &[]);
    assert_eq!(ready["volumes"][0]["filesystem"], "xfs");
    let state_argument = state.path().to_str().unwrap();
    check(&longrun(["prevent", point.to_str().unwrap(), "--state", state_argument]), 3, "another longrun");
    check(&longrun(["prevent", "/proc", "--state", state_argument]), 3, "ext4, XFS and btrfs are supported");
    check(&longrun(["prevent", "/nonexistent"]), 2, "there is no such file or directory");
    check(&longrun(["prevent", point.join("..").to_str().unwrap()]), 2, "nothing is mounted there");
    assert!(writers(&point).wait().unwrap().success());
    let totals = end(child, output);
    assert!(totals["last"]["volumes"][0]["grants"].as_u64().unwrap() > 0, "{totals}");
    assert_eq!(totals["given_back"]["left_files"], 0, "{totals}");
    for name in 1..=6 {
        assert_eq!(bytes_beyond_the_end(&point.join(name.to_string())).unwrap(), 0, "{name}");
    }
}

#[test]
fn loop_what_a_kill_leaves_is_given_back_at_the_next_start() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 4096)).unwrap();
        let state = tempfile::tempdir().unwrap();
        let point = volume.mount_point();
        let before = used_space(&volume).unwrap();
        for run in [60, 180, 400] {
            let (mut child, _output, _) = prevent(&point, state.path(), &[]);
            let mut writing = writers(&point);
            std::thread::sleep(Duration::from_millis(run));
            child.kill().unwrap();
            child.wait().unwrap();
            writing.wait().unwrap();
            let (child, output, _) = prevent(&point, state.path(), &[]);
            let left = used_space(&volume).unwrap().0 - before.0;
            let bytes: u64 = (1..=6).map(|name| std::fs::metadata(point.join(name.to_string())).unwrap().len()).sum();
            assert!(left <= bytes + bytes * 3 / 100, "{kind:?}, after {run} ms: {left} used for {bytes}");
            for name in 1..=6 {
                let path = point.join(name.to_string());
                assert_eq!(bytes_beyond_the_end(&path).unwrap(), 0, "{kind:?}, after {run} ms: {name}");
                std::fs::remove_file(path).unwrap();
            }
            end(child, output);
        }
        volume.check().unwrap();
    }
}

#[test]
fn loop_hints_are_given_to_a_directory_when_that_is_wanted_and_taken_back_when_that_is() {
    let volume = LoopVolume::create(&VolumeSpec::xfs(2048)).unwrap();
    let state = tempfile::tempdir().unwrap();
    let directory = volume.mount_point().join("video");
    std::fs::create_dir(&directory).unwrap();
    let hint = || longrun_sys::inherited_size_hint(std::fs::File::open(&directory).unwrap()).unwrap();
    let (child, output, _) = prevent(&volume.mount_point(), state.path(), &["--xfs-hint"]);
    for _ in 0..20 {
        if hint().is_some() {
            break;
        }
        assert!(writers(&directory).wait().unwrap().success());
        // Files are judged when they have been closed for a while.
        std::thread::sleep(Duration::from_millis(800));
        (1..=6).for_each(|name| std::fs::remove_file(directory.join(name.to_string())).unwrap());
    }
    end(child, output);
    assert!(hint().is_some());
    let point = volume.mount_point();
    let undo = longrun([
        "prevent",
        point.to_str().unwrap(),
        "--state",
        state.path().to_str().unwrap(),
        "--undo-hints",
        "--json",
    ]);
    assert_eq!(undo.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&undo.stdout).unwrap();
    assert_eq!((told[0]["restored"].as_u64(), hint()), (Some(1), None), "{told}");
}
