//! Giving way to others on a real volume, which needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly, in its helpers too")]

#[path = "common/busy.rs"]
mod busy;
mod common;

use busy::Busy;
use common::{LONGRUN, check, longrun};
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A volume with a file of this size in pieces.
fn fragmented(mebibytes: u64, size: &str) -> LoopVolume {
    let volume = LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"])).unwrap();
    let file = volume.mount_point().join("file");
    let arguments = ["fragment".as_ref(), file.as_os_str(), "--size".as_ref(), size.as_ref()];
    check(&longrun(arguments.into_iter().chain(["--fragments".as_ref(), OsStr::new("64")])), 0, "");
    volume
}

fn optimize(volume: &LoopVolume, more: &[&str]) -> Output {
    let mount = volume.mount_point();
    longrun(["optimize".as_ref(), mount.as_os_str()].into_iter().chain(more.iter().map(OsStr::new)))
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&check(output, 0, "")).unwrap()
}

#[test]
fn loop_a_busy_user_of_the_device_goes_first_unless_in_haste() {
    let volume = fragmented(512, "24M");
    let before = dump(&volume.mount_point()).unwrap();
    {
        let _busy = Busy::on(volume.device());
        let kept = json(&optimize(&volume, &["--json", "--deadline", "3s"]));
        let governor = &kept["governor"];
        assert_eq!((&governor["pace"], &governor["observed"]), (&"invisible".into(), &"arrivals".into()), "{kept}");
        // At the very end the account may just have permitted a piece.
        assert!(governor["pausing"].is_null() || governor["pausing"] == "foreign", "{governor}");
        assert!(governor["pauses"].as_u64() >= Some(1), "{governor}");
        assert!(governor["foreign_bytes"].as_u64() > Some(1 << 20), "{governor}");
        let name = volume.device().file_name().unwrap().to_str().unwrap();
        assert!(governor["devices"].as_array().unwrap().contains(&name.into()), "{governor}");

        let fast = json(&optimize(&volume, &["--json", "--pace", "fast"]));
        let governor = (&fast["governor"]["observed"], &fast["governor"]["pauses"]);
        assert_eq!((&fast["stopped"], governor), (&Value::Null, (&"nothing".into(), &0.into())), "{fast}");
    }
    compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    volume.check().unwrap();
}

/// The account permits a share of the time of the other's requests. How many bytes that is depends on the device: on one in memory it was
/// 12 to 14 MiB in five of twelve runs, for 1.7 to 2.0 % of that time.
#[test]
fn campaign_a_busy_user_of_the_device_loses_at_most_3_percent() {
    let volume = fragmented(512, "24M");
    let _busy = Busy::on(volume.device());
    let kept = json(&optimize(&volume, &["--json", "--deadline", "3s"]));
    let governor = &kept["governor"];
    assert!(kept["stopped"] == "deadline" && governor["paused_seconds"].as_f64() > Some(1.0), "{kept}");
    let [charged, usual] = ["charged_seconds", "usual_seconds"].map(|name| governor["account"][name].as_f64().unwrap());
    assert!(charged <= usual * 0.03, "{kept}");
}

#[test]
fn loop_beside_a_few_reads_a_second_the_work_goes_on_and_the_account_is_told() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(512).mkfs(&["-b", "4096"])).unwrap();
    let files: Vec<_> = (0..32).map(|number| volume.mount_point().join(number.to_string())).collect();
    for file in &files {
        let arguments = ["fragment".as_ref(), file.as_os_str(), "--size".as_ref(), "6M".as_ref()];
        check(&longrun(arguments.into_iter().chain(["--fragments".as_ref(), OsStr::new("64")])), 0, "");
    }
    let before = dump(&volume.mount_point()).unwrap();
    let _reader = Busy::now_and_then(volume.device());
    // File by file, until a read came while one was moved: a fast device needs less time for a file than passes between two reads.
    let met = files.iter().any(|file| {
        let arguments =
            ["optimize".as_ref(), file.as_os_str(), "--json".as_ref(), "--deadline".as_ref(), "60s".as_ref()];
        let done = json(&longrun(arguments));
        let governor = &done["governor"];
        assert_eq!((&governor["pace"], &governor["observed"]), (&"invisible".into(), &"arrivals".into()), "{governor}");
        assert!(done["bytes_moved"].as_u64() > Some(1 << 20), "{done}");
        let counted = governor["account"]["requests"].as_u64() > Some(0);
        assert!(!counted || governor["other_program"] == "dd", "{governor}");
        counted
    });
    assert!(met, "no read was counted");
    compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_a_paused_run_can_be_stopped_and_gives_everything_back() {
    // On one of a single block group the run can give up before it is stopped; with a small file it can be done by then.
    let volume = fragmented(512, "160M");
    let free = || {
        let directory = fs::File::open(volume.mount_point()).unwrap();
        longrun_sys::sync_volume(&directory).unwrap();
        longrun_sys::capacity(&directory).unwrap().free
    };
    let before = free();
    let _busy = Busy::on(volume.device());
    let mut run = Command::new(LONGRUN);
    let run = run.arg("optimize").arg(volume.mount_point()).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    // By then it waits for the other one; if not, it is stopped at its work, which must go as well.
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(free(), before);
    volume.check().unwrap();
}

#[test]
fn loop_reading_a_volume_gives_way_when_it_is_told_to_and_so_does_a_dry_run() {
    let volume = fragmented(128, "24M");
    let mount = volume.mount_point();
    // So many that others are asked about more than once meanwhile.
    let many = mount.join("many");
    fs::create_dir(&many).unwrap();
    (0..8000).for_each(|number| fs::write(many.join(number.to_string()), "").unwrap());
    let _busy = Busy::on(volume.device());
    let analyze = |target: &Path, pace: &str| {
        let words = ["analyze".as_ref(), target.as_os_str(), "--json".as_ref(), "--pace".as_ref(), pace.as_ref()];
        json(&longrun(words))
    };
    // A directory is looked at file by file.
    for (target, method) in [(&mount, "scan"), (&many, "walk")] {
        let gave_way = analyze(target, "invisible");
        let governor = &gave_way["governor"];
        assert_eq!((&gave_way["method"], &governor["pace"]), (&method.into(), &"invisible".into()), "{gave_way}");
        assert!(governor["pauses"].as_u64() >= Some(1), "{method}: {governor}");
        assert!(analyze(target, "fast")["governor"].is_null());
    }
    let arguments = ["map".as_ref(), mount.as_os_str(), "--pace".as_ref(), "invisible".as_ref()];
    check(&longrun(arguments), 0, "");
    check(&optimize(&volume, &["--dry-run"]), 0, "");
}

/// What the machine itself says is read in a place that a test can make: battery, memory, the host.
#[test]
fn loop_on_battery_and_while_memory_is_short_nothing_is_moved() {
    let volume = fragmented(128, "24M");
    let mount = volume.mount_point();
    let signs = [
        (
            "battery",
            "sys/class/power_supply/BAT0/type",
            "Battery\n",
            "sys/class/power_supply/BAT0/status",
            "Discharging\n",
        ),
        ("memory", "proc/stat", "cpu  1 0 1 1000 0 0 0 0 0 0\n", "proc/pressure/memory", "full avg10=50.00 total=9\n"),
    ];
    for (why, one, says, other, and) in signs {
        let machine = tempfile::tempdir().unwrap();
        for (path, text) in [(one, says), (other, and)] {
            let path = machine.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut run = Command::new(LONGRUN);
        run.env("LONGRUN_MACHINE", machine.path()).arg("optimize").arg(&mount).args(["--json", "--deadline", "2s"]);
        let kept = json(&run.output().unwrap());
        assert_eq!((&kept["stopped"], &kept["governor"]["pausing"]), (&"deadline".into(), &why.into()), "{kept}");
        assert_eq!(kept["bytes_moved"], 0, "{kept}");
    }
}
