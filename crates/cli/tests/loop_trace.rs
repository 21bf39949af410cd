//! `longrun trace` on a real device: its totals at the end, what it writes, what it refuses, and two recordings compared.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{LONGRUN, check, longrun};
use longrun_lab::{LoopVolume, VolumeSpec};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Traces while `work` is done, and ends it by a signal.
fn trace(device: &Path, arguments: &[&str], work: impl FnOnce()) -> String {
    let mut child = Command::new(LONGRUN)
        .arg("trace")
        .arg(device)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("tracing loop"), "{said}");
    work();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    text
}

fn read(device: &Path, count: u32) {
    let (from, count) = (format!("if={}", device.display()), format!("count={count}"));
    let arguments = [&from, "of=/dev/null", "bs=16k", &count, "iflag=direct", "status=none"];
    assert!(Command::new("dd").args(arguments).status().unwrap().success());
}

#[test]
fn loop_a_trace_ends_with_its_totals_and_recordings_are_compared() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    volume.unmount().unwrap();
    let device = volume.device();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (before, after, page) = (path("before"), path("after"), path("page.html"));

    let json = trace(device, &["--json", "--save", &before, "--html", &page], || read(device, 20));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["version"].as_u64(), json["target"].as_str()), (Some(1), device.to_str()));
    assert_eq!(json["devices"][0]["all"]["reads"]["requests"], 20, "{json}");
    assert_eq!(json["devices"][0]["all"]["reads"]["sizes"]["buckets"][0]["upto"], 16384, "{json}");
    assert_eq!(json["missed"]["events"], 0, "{json}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("Longrun I/O trace") && !page.contains("<script"));
    let text = trace(device, &["--save", &after], || read(device, 10));
    assert!(text.contains("= 16 KiB") && text.contains("dd "), "{text}");

    let compared = longrun(["trace", "--compare", &before, &after, "--json"]);
    let compared: serde_json::Value = serde_json::from_slice(&compared.stdout).unwrap();
    let figures = compared["comparison"]["figures"].as_array().unwrap();
    let reads = figures.iter().find(|figure| figure["name"] == "reads").unwrap();
    assert_eq!((reads["before"].as_f64(), reads["after"].as_f64()), (Some(20.0), Some(10.0)));
    assert_eq!(reads["change_percent"].as_f64(), Some(-50.0));

    check(&longrun(["trace", "--compare", &before, "/proc/self/status"]), 3, "not a recording of a trace");
    check(&longrun(["trace", "/proc", "--duration", "1"]), 3, "it is not on a block device");
    check(&longrun(["trace", "/nonexistent", "--duration", "1"]), 2, "there is no such file");
}
