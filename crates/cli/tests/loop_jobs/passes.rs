//! Passes that the schedule begins: their windows, pauses and restarts. No test waits for a time of day: the windows of the
//! configuration are changed instead.

use super::service::{PATIENCE, Service, daemon, of};
use super::{aged, configure, ext4, free, has_ended, processes, serve, wait};
use longrun_lab::oracle::{compare, dump, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// A window that is in effect.
const OPEN: &str = "pass = \"full\"\npass_windows = [\"daily 00:00-24:00\"]\n";

/// One that is not, whatever the time: it begins in three days.
fn closed() -> String {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let today = usize::try_from(jiff::Zoned::now().weekday().to_monday_zero_offset()).unwrap();
    format!("pass = \"full\"\npass_windows = [\"{} 00:00-01:00\"]\n", days[(today + 3) % 7])
}

/// The pass of the schedule, as soon as there is one.
#[track_caller]
fn pass(service: &Service) -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, jobs) = service.ask("GET", "/v1/jobs");
        if let Some(job) = jobs.as_array().unwrap().iter().find(|job| job["by"] == "schedule") {
            return job["id"].as_u64().unwrap();
        }
        assert!(Instant::now() < until, "no pass begins: {}", service.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn moves(job: &Value) -> bool {
    has_ended(job) || job["progress"]["phase"] == "moving"
}

#[test]
fn loop_a_pass_pauses_when_its_window_is_over_and_goes_on_in_the_next_one_and_after_a_restart() {
    let volume = aged(&ext4(1024));
    let mount = volume.mount_point();
    let (before, free_before) = (dump(&mount).unwrap(), free(&mount));
    let slow = "max_duty = \"20%\"\n";
    let (mut service, _) = serve(&volume, &(OPEN.to_owned() + slow));
    let job = pass(&service);
    assert_eq!(wait(&service, job, moves)["state"], "running");
    configure(&service, &mount, &closed());
    let paused = wait(&service, job, |job| has_ended(job) || job["state"] == "paused");
    assert_eq!(paused["state"], "paused", "{paused:#}");
    assert!(paused["reason"].as_str().unwrap().contains("pass_windows"), "{paused:#}");
    assert_eq!(processes(&service), [""; 0]);
    assert!(free(&mount) >= free_before, "{} {free_before}", free(&mount));
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let status = service.wait(|status| of(status, &mount).is_some_and(|volume| volume["pass"]["window_open"] == false));
    let shown = &of(&status, &mount).unwrap()["pass"];
    assert!(shown["job"] == job && shown["next_window"].as_str().is_some(), "{shown:#}");

    configure(&service, &mount, &(OPEN.to_owned() + slow));
    let again = wait(&service, job, moves);
    assert!(again["state"] == "running" && again["runs"] == 2, "{again:#}");
    // systemd ends the service like that.
    service.signal("TERM");
    assert!(service.child.wait().unwrap().success(), "{}", service.log());
    assert!(free(&mount) >= free_before, "{} {free_before}", free(&mount));
    configure_file(&service, &mount, OPEN);
    service.child = daemon(&[], service.directory.path()).spawn().unwrap();
    service.wait(|status| status["volumes"].is_array());
    let done = wait(&service, job, has_ended);
    assert_eq!((&done["state"], &done["by"]), (&Value::from("finished"), &Value::from("schedule")), "{done:#}");
    assert!(done["runs"].as_u64() >= Some(3) && done["after"]["excess"] == 0, "{done:#}");
    assert_eq!(filefrag(&mount).unwrap().excess, 0);
    assert!(done["before"]["excess"].as_u64() > Some(0) && done["moved_bytes"].as_u64() > Some(0), "{done:#}");
    // No other one begins in this window.
    let status =
        service.wait(|status| of(status, &mount).is_some_and(|volume| !volume["pass"]["last_ended"].is_null()));
    let waits = of(&status, &mount).unwrap()["pass"]["waits"].as_str().unwrap();
    assert!(waits.contains("12 hours"), "{waits}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    service.stop("TERM");
    volume.check().unwrap();
}

/// The same as [`configure`], while no service runs.
fn configure_file(service: &Service, mount: &Path, settings: &str) {
    let text = super::service::only(&[mount.to_owned()]) + "mending = false\nscan_interval = \"0s\"\n" + settings;
    std::fs::write(service.path("longrun.toml"), text).unwrap();
}

#[test]
fn loop_an_operator_pauses_a_pass_and_a_pass_that_is_no_longer_configured_is_cancelled() {
    let volume = aged(&ext4(1024));
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let slow = OPEN.to_owned() + "max_duty = \"10%\"\n";
    let (service, _) = serve(&volume, &slow);
    let job = pass(&service);
    assert_eq!(wait(&service, job, moves)["state"], "running");
    assert_eq!(service.ask("POST", "/v1/pause").0, 202);
    let paused = wait(&service, job, |job| has_ended(job) || job["state"] == "paused");
    assert!(paused["state"] == "paused" && paused["reason"].as_str().unwrap().contains("operator"), "{paused:#}");
    assert_eq!(service.ask("POST", "/v1/resume").0, 202);
    assert_eq!(wait(&service, job, moves)["state"], "running");
    let shown = super::longrun(["status".as_ref(), "--socket".as_ref(), service.path("socket").as_os_str()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("scheduled pass, running") && shown.contains("a window is in effect"), "{shown}");
    configure(&service, &mount, "pass = \"off\"\n");
    let over = wait(&service, job, has_ended);
    assert_eq!(over["state"], "cancelled", "{over:#}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    service.stop("TERM");
    volume.check().unwrap();
}

#[test]
fn loop_one_volume_after_the_other_and_nothing_is_done_where_nothing_pays() {
    let volumes = [aged(&ext4(256)), aged(&ext4(256)), LoopVolume::create(&VolumeSpec::ext4(128)).unwrap()];
    let mounts: Vec<_> = volumes.iter().map(LoopVolume::mount_point).collect();
    let before: Vec<_> = mounts.iter().map(|mount| dump(mount).unwrap()).collect();
    let mut service = Service::start(&[]);
    let rest = "mending = false\nscan_interval = \"0s\"\npass_budget = \"0\"\n";
    let rules: String =
        mounts.iter().map(|mount| format!("[[volume]]\nmount = {mount:?}\nenabled = true\n{rest}{OPEN}")).collect();
    std::fs::write(service.path("longrun.toml"), super::service::only(&[]) + &rules).unwrap();
    service.signal("HUP");
    service.wait(|status| mounts.iter().all(|mount| of(status, mount).is_some_and(|volume| volume["enabled"] == true)));
    let until = Instant::now() + PATIENCE * 4;
    let jobs = loop {
        let (_, jobs) = service.ask("GET", "/v1/jobs");
        let jobs = jobs.as_array().unwrap().clone();
        assert!(jobs.iter().filter(|job| job["state"] == "running").count() <= 1, "{jobs:#?}");
        assert!(processes(&service).len() <= 1);
        if jobs.len() == 3 && jobs.iter().all(has_ended) {
            break jobs;
        }
        assert!(Instant::now() < until, "{jobs:#?}\n{}", service.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    for (mount, before) in mounts.iter().zip(&before) {
        let job = jobs.iter().find(|job| job["mount"] == mount.to_str().unwrap()).unwrap();
        assert_eq!(job["state"], "finished", "{job:#}");
        compare(before, &dump(mount).unwrap()).unwrap();
        assert_eq!(filefrag(mount).unwrap().excess, 0, "{job:#}");
    }
    let empty = jobs.iter().find(|job| job["mount"] == mounts[2].to_str().unwrap()).unwrap();
    assert_eq!(
        (&empty["moved_bytes"], empty["summary"].as_str().unwrap().contains("nothing")),
        (&Value::from(0), true)
    );

    service.stop("TERM");
    volumes.iter().for_each(|volume| volume.check().unwrap());
}
