//! Jobs of the service on real volumes, which needs root: what they do, how they end, and what they leave behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

#[path = "loop_jobs/by_command.rs"]
mod by_command;
#[path = "loop_jobs/clones.rs"]
mod clones;
mod common;
#[path = "loop_jobs/passes.rs"]
mod passes;
#[path = "common/service.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod service;

use common::{LONGRUN, check, longrun};
use longrun_lab::oracle::{compare, dump, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec, write_in_pieces};
use longrun_layout::Bytes;
use serde_json::{Value, json};
use service::{PATIENCE, Service, of};
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A volume whose files are fragmented.
fn aged(spec: &VolumeSpec) -> LoopVolume {
    let volume = LoopVolume::create(spec).unwrap();
    let directory = volume.mount_point();
    check(&longrun([OsStr::new("fragment"), "--volume".as_ref(), directory.as_os_str()]), 0, "");
    longrun_lab::tool::run("sync", ["-f".as_ref(), directory.as_os_str()]).unwrap();
    volume
}

/// A volume with room, and some files in many fragments: a pass can put all of them together.
fn in_pieces(spec: &VolumeSpec) -> LoopVolume {
    let volume = LoopVolume::create(spec).unwrap();
    for (number, pieces) in (0..5u8).zip([9, 33, 64, 2, 17]) {
        let file = volume.mount_point().join(format!("file-{number}"));
        let content: Vec<u8> = (0..pieces << 17).map(|at| (at % 251) as u8 ^ number).collect();
        write_in_pieces(volume.kind(), &file, &content, Bytes(128 << 10), 1).unwrap();
    }
    longrun_lab::tool::run("sync", ["-f".as_ref(), volume.mount_point().as_os_str()]).unwrap();
    volume
}

fn ext4(mebibytes: u64) -> VolumeSpec {
    VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"])
}

/// Free space in bytes.
fn free(mount: &Path) -> u64 {
    let directory = std::fs::File::open(mount).unwrap();
    longrun_sys::sync_volume(&directory).unwrap();
    let capacity = longrun_sys::capacity(&directory).unwrap();
    capacity.block_size.to_bytes(capacity.free).0
}

/// A service that looks after `volume` alone, and the id that it gives it. Nothing is mended: what happens is a job's doing.
fn serve(volume: &LoopVolume, settings: &str) -> (Service, String) {
    serve_by(&[], volume, settings)
}

fn serve_by(by: &[String], volume: &LoopVolume, settings: &str) -> (Service, String) {
    let mount = volume.mount_point();
    let mut service = Service::start_by(by, std::slice::from_ref(&mount));
    configure(&service, &mount, settings);
    service.wait(|status| of(status, &mount).is_some_and(|volume| volume["mending"] == false));
    let status = service.wait(|status| of(status, &mount).is_some_and(|volume| volume["prevention"] == true));
    let id = of(&status, &mount).unwrap()["id"].as_str().unwrap().to_owned();
    (service, id)
}

/// Changes the settings of the volume at `mount`.
fn configure(service: &Service, mount: &Path, settings: &str) {
    let text = service::only(&[mount.to_owned()]) + "mending = false\nscan_interval = \"0s\"\n" + settings;
    std::fs::write(service.path("longrun.toml"), text).unwrap();
    service.signal("HUP");
}

/// One request with a body.
fn order(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, Value) {
    service::send(socket, method, path, &body.to_string()).unwrap()
}

fn start(service: &Service, request: &Value) -> u64 {
    let (code, job) = order(&service.path("socket"), "POST", "/v1/jobs", request);
    assert_eq!(code, 202, "{job:#}");
    assert!(job["state"] == "waiting" && job["by"] == "operator", "{job:#}");
    job["id"].as_u64().unwrap()
}

/// Waits until the job is as `wanted`.
#[track_caller]
fn wait(service: &Service, id: u64, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE * 4;
    loop {
        let (code, job) = service.ask("GET", &format!("/v1/jobs/{id}"));
        assert_eq!(code, 200, "{job:#}");
        if wanted(&job) {
            return job;
        }
        assert!(Instant::now() < until, "it never came to that: {job:#}\n{}", service.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a job did and left, and what the service says of it.
fn report(service: &Service, job: u64) -> String {
    let (_, report) = service.ask("GET", &format!("/v1/jobs/{job}/report"));
    format!("{report:#}\n{}", service.log())
}

fn has_ended(job: &Value) -> bool {
    ["finished", "failed", "cancelled"].iter().any(|state| job["state"] == *state)
}

fn kinds(service: &Service) -> Vec<String> {
    let (_, events) = service.ask("GET", "/v1/events");
    let events = events["events"].as_array().unwrap();
    events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// The process of a job is a child of the service.
fn processes(service: &Service) -> Vec<String> {
    let id = service.child.id();
    let children = format!("/proc/{id}/task");
    let tasks = std::fs::read_dir(children).unwrap().flatten();
    let all = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect::<String>();
    all.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn loop_a_job_optimizes_a_volume_and_changes_no_file() {
    for spec in [ext4(256), VolumeSpec::xfs(512), VolumeSpec::btrfs(512)] {
        let volume = in_pieces(&spec);
        let mount = volume.mount_point();
        let before = dump(&mount).unwrap();
        let (service, id) = serve(&volume, "");
        let dry = start(&service, &json!({"volume": id, "task": "optimize", "mode": "full", "dry_run": true}));
        let dry = wait(&service, dry, has_ended);
        assert_eq!((&dry["state"], &dry["moved_bytes"]), (&json!("finished"), &json!(0)), "{dry:#}");
        assert!(dry["after"]["excess"].as_u64() < dry["before"]["excess"].as_u64(), "{dry:#}");
        compare(&before, &dump(&mount).unwrap()).unwrap();
        let job = start(&service, &json!({"volume": id, "task": "optimize", "mode": "full"}));
        let done = wait(&service, job, has_ended);
        assert_eq!(done["state"], "finished", "{done:#}\n{}", service.log());
        assert_eq!(done["after"]["excess"], filefrag(&mount).unwrap().excess, "{done:#}");
        assert_eq!(done["after"]["excess"], 0, "{}", report(&service, job));
        assert!(done["moved_bytes"].as_u64() > Some(0) && done["progress"]["fraction"] == 1.0, "{done:#}");
        assert!(!done["started"].is_null() && !done["ended"].is_null() && done["reason"].is_null(), "{done:#}");
        let (code, report) = service.ask("GET", &format!("/v1/jobs/{job}/report"));
        assert_eq!((code, &report["status"], &report["report"]["bytes_moved"]), (200, &json!(0), &done["moved_bytes"]));
        assert!(report["text"].as_str().unwrap().contains("Result:"), "{report:#}");
        let looked = start(&service, &json!({"volume": id, "task": "analyze"}));
        let looked = wait(&service, looked, has_ended);
        assert_eq!((&looked["state"], &looked["before"]["excess"]), (&json!("finished"), &json!(0)), "{looked:#}");
        let told = kinds(&service);
        for kind in ["job-waiting", "job-running", "job-finished"] {
            assert_eq!(told.iter().filter(|told| *told == kind).count(), 3, "{kind}: {told:?}");
        }
        compare(&before, &dump(&mount).unwrap()).unwrap();
        service.stop("TERM");
        volume.check().unwrap();
    }
}

#[test]
fn loop_a_cancelled_job_and_one_of_a_service_that_is_killed_leave_nothing_behind() {
    let volume = aged(&ext4(1024));
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let free = || free(&mount);
    let free_before = free();
    let (mut service, id) = serve(&volume, "");
    let moves = |job: &Value| has_ended(job) || job["progress"]["phase"] == "moving";
    let request = json!({"volume": id, "task": "optimize", "mode": "full", "pace": "fast", "max_duty": "20%"});
    let job = start(&service, &request);
    let moving = wait(&service, job, moves);
    assert_eq!(moving["state"], "running", "{moving:#}");
    // The disk is in use.
    let (code, problem) = order(&service.path("socket"), "POST", "/v1/jobs", &json!({"volume": id, "task": "analyze"}));
    assert_eq!(code, 409, "{problem:#}");
    assert!(problem["error"].as_str().unwrap().contains("already uses this disk"), "{problem:#}");
    let (code, _) = service.ask("DELETE", &format!("/v1/jobs/{job}"));
    assert_eq!(code, 202);
    let over = wait(&service, job, has_ended);
    assert_eq!(over["state"], "cancelled", "{over:#}");
    assert_eq!(service.ask("DELETE", &format!("/v1/jobs/{job}")).0, 409);
    assert_eq!(processes(&service), [""; 0]);
    assert!(free() >= free_before, "{:?} {free_before:?}", free());
    compare(&before, &dump(&mount).unwrap()).unwrap();
    // The service dies in the middle of another one: its process stops in good order by itself.
    let job = start(&service, &request);
    let moving = wait(&service, job, moves);
    assert_eq!(moving["state"], "running", "{moving:#}");
    let left = processes(&service);
    assert_eq!(left.len(), 1);
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    let until = Instant::now() + PATIENCE;
    while Path::new("/proc").join(&left[0]).exists() {
        assert!(Instant::now() < until, "the process of the job stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(free() >= free_before, "{:?} {free_before:?}", free());
    compare(&before, &dump(&mount).unwrap()).unwrap();
    volume.unmount().unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_the_capabilities_and_the_memory_of_the_unit_are_enough_for_a_job() {
    let words = service::confined_as_the_unit();
    for spec in [ext4(256), VolumeSpec::xfs(512), VolumeSpec::btrfs(512)] {
        let volume = in_pieces(&spec);
        let before = dump(&volume.mount_point()).unwrap();
        let (service, id) = serve_by(&words, &volume, "");
        let job = start(&service, &json!({"volume": id, "task": "optimize", "mode": "full"}));
        let done = wait(&service, job, has_ended);
        let wanted = (&json!("finished"), &json!(0));
        assert_eq!((&done["state"], &done["after"]["excess"]), wanted, "{}", report(&service, job));
        compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        service.stop("TERM");
        volume.check().unwrap();
    }
}

#[test]
fn loop_requests_that_are_not_valid_or_not_permitted_start_nothing() {
    let volume = LoopVolume::create(&ext4(64)).unwrap();
    let (service, id) = serve(&volume, "");
    let socket = service.path("socket");
    let asked = |request: &Value| order(&socket, "POST", "/v1/jobs", request).0;
    assert_eq!(asked(&json!({"volume": "nothing", "task": "analyze"})), 404);
    assert_eq!(asked(&json!({"volume": id, "task": "format"})), 400);
    assert_eq!(asked(&json!({"volume": id, "task": "analyze", "colour": 3})), 400);
    assert_eq!(asked(&json!({"volume": id, "task": "optimize", "pace": "hasty"})), 400);
    assert_eq!(asked(&json!({"volume": id, "task": "optimize", "budget": 0})), 400);
    assert_eq!(service.ask("GET", "/v1/jobs/x").0, 404);
    assert_eq!(service.ask("DELETE", "/v1/jobs/77").0, 404);
    let as_viewer = |method: &str, path: &str| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "-H", "longrun-role: viewer"]);
        curl.args(["-d", &json!({"volume": id, "task": "analyze"}).to_string(), "--unix-socket"]).arg(&socket);
        String::from_utf8(curl.arg(format!("http://x{path}")).output().unwrap().stdout).unwrap()
    };
    assert_eq!(as_viewer("POST", "/v1/jobs"), "403");
    assert_eq!(as_viewer("DELETE", "/v1/jobs/1"), "403");
    assert_eq!(as_viewer("GET", "/v1/jobs"), "200");
    assert_eq!(service.ask("GET", "/v1/jobs"), (200, json!([])));
    // What the configuration disables stays untouched.
    configure(&service, &volume.mount_point(), "");
    let text = std::fs::read_to_string(service.path("longrun.toml")).unwrap();
    std::fs::write(service.path("longrun.toml"), text.replace("enabled = true", "enabled = false")).unwrap();
    service.signal("HUP");
    let until = Instant::now() + PATIENCE;
    while asked(&json!({"volume": id, "task": "optimize"})) != 409 {
        assert!(Instant::now() < until);
        for job in service.ask("GET", "/v1/jobs").1.as_array().unwrap() {
            service.ask("DELETE", &format!("/v1/jobs/{}", job["id"]));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    service.stop("TERM");
}

#[test]
fn loop_a_job_whose_process_is_killed_fails_and_the_service_goes_on() {
    let volume = aged(&ext4(512));
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let (service, id) = serve(&volume, "");
    let request = json!({"volume": id, "task": "optimize", "mode": "full", "max_duty": "10%"});
    let job = start(&service, &request);
    wait(&service, job, |job| has_ended(job) || job["progress"]["phase"] == "moving");
    let left = processes(&service);
    assert!(std::process::Command::new("kill").args(["-KILL", &left[0]]).status().unwrap().success());
    let over = wait(&service, job, has_ended);
    assert_eq!(over["state"], "failed", "{over:#}");
    assert!(over["reason"].as_str().unwrap().contains("signal 9"), "{over:#}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    // The next one does the rest.
    let job = start(&service, &json!({"volume": id, "task": "optimize", "mode": "full"}));
    let done = wait(&service, job, has_ended);
    assert_eq!(done["state"], "finished", "{done:#}");
    assert!(done["after"]["excess"].as_u64() < over_before(&done), "{done:#}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    service.stop("TERM");
    volume.check().unwrap();
}

fn over_before(job: &Value) -> Option<u64> {
    job["before"]["excess"].as_u64()
}

#[test]
fn loop_free_space_is_given_back_by_a_job() {
    let volume = aged(&ext4(256));
    let (service, id) = serve(&volume, "");
    let before = dump(&volume.mount_point()).unwrap();
    for dry_run in [true, false] {
        let job = start(&service, &json!({"volume": id, "task": "reclaim", "dry_run": dry_run, "consolidate": true}));
        let done = wait(&service, job, has_ended);
        assert_eq!(done["state"], "finished", "{done:#}");
        assert_eq!(done["summary"].is_null(), dry_run, "{done:#}");
    }
    compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    assert!(service.path("state/jobs").join("1.json").exists() && Path::new(LONGRUN).exists());
    service.stop("TERM");
    volume.check().unwrap();
}

#[test]
fn loop_a_job_that_needs_more_memory_than_it_may_take_ends_in_good_order() {
    let volume = aged(&ext4(256));
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&mount).unwrap());
    let device = longrun_sys::DeviceNumber::from_stat(device).to_string();
    let done = |memory: Option<u64>, device: &str, mode: &str| {
        let order = json!({"mount": mount, "device": device, "task": "optimize", "mode": mode, "at_most_efficient": false,
            "dry_run": false, "consolidate": false, "budget": null, "deadline": null, "pace": "fast", "max_duty": "100%",
            "min_progress": "0.5%", "memory": memory});
        let mut command = std::process::Command::new(LONGRUN);
        let mut child = command.arg("job").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Open until it has ended: otherwise that would end it.
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{order}").unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success());
        let end: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        end["end"].clone()
    };
    let refused = done(Some(1 << 20), &device, "full");
    assert!(refused["status"] == 3 && refused["error"].as_str().unwrap().contains("MemoryMax"), "{refused:#}");
    // Something else has been mounted there since.
    let elsewhere = done(None, "9:99", "full");
    assert!(
        elsewhere["status"] == 3 && elsewhere["error"].as_str().unwrap().contains("no longer mounted"),
        "{elsewhere:#}"
    );
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let enough = done(Some(4 << 30), &device, "full");
    assert!(enough["status"] == 0 && enough["after"]["excess"].as_u64() < over_before(&enough), "{enough:#}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    volume.check().unwrap();
}
