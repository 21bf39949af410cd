//! Story: somebody presses Ctrl-C in the middle of a benchmark, or the machine's out-of-memory killer strikes. No mount, no
//! loop device and no image may stay, at the latest when the laboratory is started again.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TORTURE: [&str; 7] = ["torture", "--optimizer", "e4defrag", "--mebibytes", "512", "--seconds", "600"];
/// A slow disk with two clients, a volume on each.
const DISK: [&str; 9] = ["disk", "--model", "hdd", "--clients", "2", "--filesystem", "xfs", "--mebibytes", "512"];

/// The laboratory at work in `base`, with as many volumes mounted there.
fn start(base: &Path, arguments: &[&str], volumes: usize) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_longrun-lab"))
        .args(arguments)
        .env("LONGRUN_LAB_DIR", base)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while volumes_in(base).len() < volumes {
        assert!(Instant::now() < deadline, "nothing was mounted within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Where volumes are mounted below `base`.
fn volumes_in(base: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(base) && point.ends_with("mnt")).collect()
}

/// Keeps every volume below `base` busy until that fails, as it does when the volume goes.
fn keep_busy(base: &Path) -> Vec<std::thread::JoinHandle<()>> {
    let busy = |point: PathBuf| {
        std::thread::spawn(move || {
            let mut number = 0;
            while fs::write(point.join("busy"), vec![7; 4 << 20]).is_ok()
                && fs::File::open(point.join("busy")).and_then(|file| file.sync_all()).is_ok()
            {
                number += 1;
                assert!(number < 10_000, "the volume never goes");
            }
        })
    };
    volumes_in(base).into_iter().map(busy).collect()
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
        let mut child = start(base.path(), &TORTURE, 1);
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
    let mut child = start(base.path(), &TORTURE, 1);
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

#[test]
fn loop_a_signal_takes_a_busy_modelled_disk_down() {
    let base = tempfile::tempdir().unwrap();
    let mut child = start(base.path(), &DISK, 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_nothing_is_left(base.path());
}

#[test]
fn loop_nothing_hangs_when_the_owner_of_a_modelled_disk_is_killed_and_the_next_start_sweeps_it() {
    let base = tempfile::tempdir().unwrap();
    let mut child = start(base.path(), &DISK, 2);
    let busy = keep_busy(base.path());
    std::thread::sleep(Duration::from_millis(700));
    child.kill().unwrap();
    child.wait().unwrap();
    // What was under way fails, so that whoever waits for it can go on.
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(mentions("/proc/self/mountinfo", base.path()), "the test proves nothing: no mount was left");

    let left = volumes_in(base.path());
    let mut next = start(base.path(), &DISK, 2);
    let deadline = Instant::now() + Duration::from_secs(60);
    while volumes_in(base.path()).iter().any(|point| left.contains(point)) || volumes_in(base.path()).len() < 2 {
        assert!(Instant::now() < deadline, "what the killed one left was not swept");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&next), Signal::TERM).unwrap();
    assert_eq!(next.wait().unwrap().code(), Some(143));
    assert_nothing_is_left(base.path());
}
