//! Story: somebody presses Ctrl-C in the middle of a benchmark, or the machine's out-of-memory killer strikes. No mount, no
//! loop device and no image may stay, at the latest when the laboratory is started again.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The laboratory at work in `base`, with a volume mounted there.
fn start(base: &Path) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_longrun-lab"))
        .args(["torture", "--optimizer", "e4defrag", "--mebibytes", "512", "--seconds", "600"])
        .env("LONGRUN_LAB_DIR", base)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !mentions("/proc/self/mountinfo", base) {
        assert!(Instant::now() < deadline, "nothing was mounted within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn mentions(table: &str, base: &Path) -> bool {
    fs::read_to_string(table).unwrap().contains(&*base.to_string_lossy())
}

fn loop_devices() -> String {
    String::from_utf8(Command::new("losetup").arg("--list").output().unwrap().stdout).unwrap()
}

fn assert_nothing_is_left(base: &Path) {
    assert!(!mentions("/proc/self/mountinfo", base), "a mount was left");
    // The kernel takes a device down when the last of the dead process's files is closed: a moment after its end.
    let deadline = Instant::now() + Duration::from_secs(10);
    while loop_devices().contains(&*base.to_string_lossy()) {
        assert!(Instant::now() < deadline, "a loop device was left");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_dir(base).unwrap().count(), 0, "files were left");
}

#[test]
fn loop_a_signal_takes_everything_down() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let base = tempfile::tempdir().unwrap();
        let mut child = start(base.path());
        std::thread::sleep(Duration::from_millis(700));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_nothing_is_left(base.path());
    }
}

#[test]
fn loop_what_a_killed_run_left_is_swept_at_the_next_start() {
    let base = tempfile::tempdir().unwrap();
    let stranger = base.path().join("longrun-lab-but-not-ours");
    fs::create_dir(&stranger).unwrap();
    let mut child = start(base.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(mentions("/proc/self/mountinfo", base.path()), "the test proves nothing: no mount was left");

    let status = Command::new(env!("CARGO_BIN_EXE_longrun-lab"))
        .args(["full", "--filesystem", "ext4", "--optimizer", "e4defrag", "--mebibytes", "64"])
        .env("LONGRUN_LAB_DIR", base.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    fs::remove_dir(&stranger).unwrap();
    assert_nothing_is_left(base.path());
}
