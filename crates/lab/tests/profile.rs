//! Profiles of modelled disks: the gradient of a hard disk is found, beside others at work too, and no other disk has one; the
//! command measures block devices, keeps what it found, and refuses what has no places.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_engine::Unobserved;
use longrun_lab::disk::model::{Access, Device, Nanos, Request};
use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::longrun_binary;
use longrun_layout::Bytes;
use longrun_profile::{Fastest, Reads, measure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use std::{fs, io};

const SIZE: Bytes = Bytes(512 << 20);
/// How often each model is measured.
const RUNS: u64 = 100;

/// A modelled disk in virtual time, which others use as well.
struct Shared {
    device: Device,
    now: Nanos,
    /// When the next request of others comes.
    next: Nanos,
    /// The mean time between two of them.
    each: Option<Nanos>,
    random: fastrand::Rng,
    id: u64,
}

impl Shared {
    fn new(model: DiskModel, others_a_second: u64, seed: u64) -> Self {
        let each = (others_a_second > 0).then(|| Nanos::each_of(others_a_second));
        let random = fastrand::Rng::with_seed(seed);
        let mut shared =
            Self { device: model.device(SIZE, seed), now: Nanos(0), next: Nanos(u64::MAX), each, random, id: 0 };
        shared.others_come();
        shared
    }

    /// Decides when the next request of others comes after now.
    fn others_come(&mut self) {
        let wait = self.each.map(|each| each.0 as f64 * -(1.0 - self.random.f64()).ln());
        self.next = wait.map_or(Nanos(u64::MAX), |wait| self.now + Nanos(wait as u64));
    }

    fn submit(&mut self, at: Bytes, length: Bytes) -> u64 {
        self.id += 1;
        self.device.submit(self.now, Request { id: self.id, access: Access::Read, at, length });
        self.id
    }
}

impl Reads for Shared {
    fn bytes(&self) -> Bytes {
        SIZE
    }

    fn read(&mut self, at: Bytes, length: Bytes) -> io::Result<Duration> {
        let (begun, own) = (self.now, self.submit(at, length));
        loop {
            let due = self.device.due().unwrap();
            if self.next < due {
                self.now = self.now.max(self.next);
                let at = self.random.u64(0..SIZE.0 / 4096 - 16) * 4096;
                self.submit(Bytes(at), Bytes(16 << 10));
                self.others_come();
                continue;
            }
            self.now = self.now.max(due);
            if let Some(done) = self.device.take_done(due).iter().find(|done| done.id == own) {
                return Ok(Duration::from_nanos(done.at.since(begun).0));
            }
        }
    }
}

#[test]
fn the_gradient_of_a_hard_disk_is_always_found_and_none_on_others_whatever_else_happens_there() {
    // A quarter to a half of what each of them can do.
    for (name, others) in [("hdd", 30), ("ssd", 2000), ("san", 150), ("cloud", 1000)] {
        let model = DiskModel::by_name(name).unwrap();
        for load in [0, others] {
            let found = (0..RUNS).filter(|seed| {
                let mut disk = Shared::new(model, load, *seed);
                let profile = measure(&mut disk, name, *seed, &mut Unobserved).unwrap();
                match profile.verdict.gradient {
                    Some(Fastest::End) => panic!("{name} beside {load}: {:?}", profile.verdict),
                    Some(Fastest::Beginning) => true,
                    None => false,
                }
            });
            let expected = if name == "hdd" { RUNS } else { 0 };
            assert_eq!(found.count() as u64, expected, "{name} beside {load} requests a second");
        }
    }
}

fn profile(device: &Path, state: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(longrun_binary().unwrap());
    command.args(["profile", "--json", "--pace", "fast", "--state"]).arg(state).args(more).arg(device);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn loop_the_command_finds_the_gradient_of_a_modelled_hard_disk_and_keeps_it() {
    let disk = ModelledDisk::start(DiskModel::by_name("hdd").unwrap(), 1, &[SIZE]).unwrap();
    let state = tempfile::tempdir().unwrap();
    let device = disk.device(0).unwrap();
    let page = state.path().join("page.html");
    let before = disk.statistics().unwrap();
    let found = json(&profile(device, state.path(), &["--html", page.to_str().unwrap()]));
    let done = disk.statistics().unwrap().since(before);
    let measured = &found["devices"][0];
    assert_eq!(measured["verdict"]["gradient"], "beginning", "{found}");
    assert_eq!(measured["from_before"], false);
    assert_eq!(done.writes.requests, 0, "it only reads");
    assert!(done.reads.bytes >= (3 * 16 * 9) << 20, "{}: not past the page cache", done.reads.bytes);
    let first = measured["places"][0]["speeds"].as_array().unwrap().len();
    assert!((3..=9).contains(&first));
    assert_eq!(fs::read_to_string(&page).unwrap().matches("class=\"part0\"").count(), 16);

    let before = disk.statistics().unwrap();
    let again = json(&profile(device, state.path(), &[]));
    assert_eq!(again["devices"][0]["from_before"], true, "kept");
    assert_eq!(again["devices"][0]["verdict"], measured["verdict"]);
    assert!(disk.statistics().unwrap().since(before).reads.bytes < 1 << 20, "nothing is measured");
}

#[test]
fn loop_a_virtual_disk_is_refused_unless_asked_for() {
    let disk = ModelledDisk::start(DiskModel::by_name("cloud").unwrap(), 1, &[SIZE]).unwrap();
    let state = tempfile::tempdir().unwrap();
    let device = disk.device(0).unwrap();
    let refused = profile(device, state.path(), &[]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("no fast and slow places") && text.contains("--any-disk"), "{text}");
    let found = json(&profile(device, state.path(), &["--any-disk"]));
    assert_eq!(found["devices"][0]["verdict"]["gradient"], Value::Null, "{found}");
}
