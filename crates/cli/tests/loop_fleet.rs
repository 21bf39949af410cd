//! A machine of a fleet on real volumes, which needs root: on storage that hosts share it works with permission, and stops when that ends. The
//! test says what the agent of the fleet would say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod common;
#[path = "common/growing.rs"]
mod growing;
#[path = "common/service.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod service;

use common::{check, longrun};
use growing::grow_beside_each_other;
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::{Value, json};
use service::{PATIENCE, Service, daemon, of, only, send};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

/// Obeys the fleet by `mode`; `settings` are those of the volume at `mount`, which belongs to the group `san`.
fn configure(service: &Service, mode: &str, mount: &Path, settings: &str) {
    let state = service.path("state");
    let head = format!("[service]\nfleet = {mode:?}\nstate_directory = {state:?}\n");
    let text = only(&[mount.to_owned()]).replace("[service]\n", &head) + "storage_group = \"san\"\n" + settings;
    fs::write(service.path("longrun.toml"), text).unwrap();
    service.signal("HUP");
}

fn fleet(service: &Service) -> Value {
    let (code, fleet) = service.ask("GET", "/v1/fleet");
    assert_eq!(code, 200, "{fleet:#}");
    fleet
}

/// Waits until this machine's part in the fleet is as `wanted`.
#[track_caller]
fn wait_fleet(service: &Service, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let fleet = fleet(service);
        if wanted(&fleet) {
            return fleet;
        }
        assert!(Instant::now() < until, "it never came to that: {fleet:#}\n{}", service.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn put(service: &Service, path: &str, body: &Value) -> (u16, Value) {
    send(&service.path("socket"), "PUT", path, &body.to_string()).unwrap()
}

/// Keeps in touch for long, and permits work on the group for `time` from now on.
fn permit(service: &Service, time: Duration) {
    let at = |time: Duration| u64::try_from((longrun_sys::since_boot() + time).as_nanos()).unwrap();
    let permission = json!({"in_touch_until": at(LONG), "groups": {"san": at(time)}});
    let (code, answer) = put(service, "/v1/fleet/permission", &permission);
    assert_eq!(code, 202, "{answer:#}");
}

fn mended(status: &Value, mount: &Path) -> u64 {
    of(status, mount).unwrap()["mended"]["files"].as_u64().unwrap()
}

#[test]
fn loop_files_on_shared_storage_are_mended_with_permission_only_or_as_alone_when_silence_means_that() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(1024).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    configure(&service, "rest", &mount, "");
    let rests = |status: &Value| {
        let why = of(status, &mount).and_then(|volume| volume["mending_rests"].as_str());
        why.is_some_and(|why| why.contains("permission of the fleet"))
    };
    service.wait(|status| rests(status) && of(status, &mount).is_some_and(|volume| volume["prevention"] == true));
    grow_beside_each_other(&mount, "first");
    let before = dump(&mount).unwrap();
    let part = wait_fleet(&service, |fleet| fleet["groups"][0]["wants"] == true);
    let group = &part["groups"][0];
    assert_eq!((&part["mode"], &part["in_touch"]), (&json!("rest"), &json!(false)), "{part:#}");
    assert_eq!((&group["name"], &group["source"]), (&json!("san"), &json!("configured")), "{part:#}");
    assert_eq!((&group["permitted"], &group["volumes"][0]), (&json!(false), &json!(mount)), "{part:#}");
    assert_eq!(mended(&service.wait(rests), &mount), 0, "it waits, and there is something to do");

    permit(&service, LONG);
    service.wait(|status| mended(status, &mount) > 0);
    wait_fleet(&service, |fleet| fleet["groups"][0]["wants"] == false && fleet["groups"][0]["moved_bytes"] != 0);
    compare(&before, &dump(&mount).unwrap()).unwrap();

    // It ends by the clock, with nobody saying so.
    permit(&service, Duration::from_millis(300));
    // A file that it was at work on when it ended is finished.
    let so_far = mended(&service.wait(|status| rests(status) && status["mending"]["at_work"] == false), &mount);
    grow_beside_each_other(&mount, "second");
    let part = wait_fleet(&service, |fleet| fleet["groups"][0]["wants"] == true);
    assert_eq!((&part["in_touch"], &part["groups"][0]["permitted"]), (&json!(true), &json!(false)), "{part:#}");
    assert_eq!(mended(&service.wait(rests), &mount), so_far);

    // In touch, and not permitted: nothing. Silent: as alone.
    configure(&service, "go-on", &mount, "");
    wait_fleet(&service, |fleet| fleet["mode"] == "go-on");
    assert_eq!(mended(&service.wait(rests), &mount), so_far);
    assert_eq!(put(&service, "/v1/fleet/permission", &json!({"in_touch_until": 0})).0, 202);
    service.wait(|status| mended(status, &mount) > so_far);
    service.stop("TERM");
    volume.unmount().unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_a_pass_at_work_pauses_when_its_permission_ends_and_goes_on_with_the_next_one() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(1024).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    check(&longrun([OsStr::new("fragment"), "--volume".as_ref(), mount.as_os_str()]), 0, "");
    longrun_lab::tool::run("sync", ["-f".as_ref(), mount.as_os_str()]).unwrap();
    let before = dump(&mount).unwrap();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let open = "pass = \"full\"\npass_windows = [\"daily 00:00-24:00\"]\nmax_duty = \"20%\"\n";
    let rest = "mending = false\nscan_interval = \"0s\"\n";
    configure(&service, "rest", &mount, &(rest.to_owned() + open));
    let wait = |wanted: &dyn Fn(&Value) -> bool| {
        let until = Instant::now() + PATIENCE * 4;
        loop {
            let (_, jobs) = service.ask("GET", "/v1/jobs");
            if let Some(job) = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| wanted(job))) {
                return job.clone();
            }
            assert!(Instant::now() < until, "it never came to that: {jobs:#}\n{}", service.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let waits = |job: &Value| job["reason"].as_str().is_some_and(|why| why.contains("permission of the fleet"));
    let first = wait(&waits);
    assert!(first["runs"] == 0 && first["by"] == "schedule", "{first:#}");
    wait_fleet(&service, |fleet| fleet["groups"][0]["wants"] == true);
    permit(&service, LONG);
    wait(&|job| job["progress"]["phase"] == "moving");
    permit(&service, Duration::from_millis(300));
    let paused = wait(&|job| job["state"] == "paused");
    assert!(waits(&paused) && paused["runs"] == 1, "{paused:#}");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    permit(&service, LONG);
    wait(&|job| job["state"] == "running" && job["runs"] == 2);
    let (code, _) = service.ask("DELETE", &format!("/v1/jobs/{}", first["id"]));
    assert_eq!(code, 202);
    wait(&|job| job["state"] == "cancelled");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    service.wait(|status| status["healthy"] == true);
    service.stop("TERM");
    volume.unmount().unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_a_policy_holds_where_the_file_says_nothing_and_over_a_restart_until_it_is_taken_back() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let policy = json!({"version": 3, "settings": "[defaults]\npace = \"balanced\"\nmending_budget = \"7GiB\"\n"});
    let (code, problem) = put(&service, "/v1/fleet/policy", &policy);
    assert_eq!(code, 409, "this machine obeys no fleet: {problem:#}");
    configure(&service, "rest", &mount, "");
    wait_fleet(&service, |fleet| fleet["mode"] == "rest");
    let budget = |service: &Service| {
        let (_, config) = service.ask("GET", "/v1/config");
        let mut volumes = config["volumes"].as_array().unwrap().iter();
        let own = volumes.find(|volume| volume["mount"] == mount.to_str().unwrap()).unwrap();
        (own["settings"]["mending_budget"].clone(), own["settings"]["pace"].clone())
    };
    let shown = || {
        let file = service.path("longrun.toml");
        check(&longrun(["config".as_ref(), "show".as_ref(), file.as_os_str()]), 0, "")
    };
    let default = budget(&service);
    assert_eq!(default.1, "fast");
    let (code, part) = put(&service, "/v1/fleet/policy", &policy);
    assert_eq!((code, &part["policy"]["version"], &part["policy"]["pinned"]), (200, &json!(3), &json!(["pace"])));
    assert_eq!(budget(&service), (json!("7GiB"), json!("fast")));
    let text = shown();
    assert!(text.contains("mending_budget = \"7GiB\"  # from version 3 of the fleet's policy\n"), "{text}");
    assert!(text.contains("pace = \"fast\"  # from the file, which pins it"), "{text}");
    assert!(text.contains("enabled = false  # from the file\n"), "{text}");
    for (settings, line) in [
        ("[defaults]\nstorage_group = \"mine\"\n", "line 2"),
        ("[defaults]\n\npace = \"hasty\"\n", "line 3"),
        ("[service]\nsocket = \"/tmp/x\"\n", "line 1"),
    ] {
        let (code, problem) = put(&service, "/v1/fleet/policy", &json!({"version": 4, "settings": settings}));
        assert!(code == 422 && problem["error"].as_str().unwrap().contains(line), "{code} {problem:#}");
    }
    let much = json!({"version": 4, "settings": "#".repeat(70_000)});
    assert_eq!(put(&service, "/v1/fleet/policy", &much).0, 413);
    assert_eq!(fleet(&service)["policy"]["version"], 3);

    service.signal("TERM");
    assert!(service.child.wait().unwrap().success(), "{}", service.log());
    service.child = daemon(&[], service.directory.path()).spawn().unwrap();
    service.wait(|status| of(status, &mount).is_some_and(|volume| volume["prevention"] == true));
    assert_eq!(budget(&service), (json!("7GiB"), json!("fast")));
    // A policy that does harm is taken back, whatever is wrong with the file.
    let file = service.path("longrun.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("this is no setting\n{text}")).unwrap();
    service.signal("HUP");
    service.wait(|status| status["healthy"] == false);
    assert_eq!(budget(&service), (json!("7GiB"), json!("fast")));
    assert_eq!(service.ask("DELETE", "/v1/fleet/policy").0, 200);
    assert_eq!((budget(&service), fleet(&service)["policy"].clone()), (default.clone(), Value::Null));
    service.wait(|status| status["healthy"] == false && of(status, &mount).is_some());
    fs::write(&file, text).unwrap();
    service.signal("HUP");
    service.wait(|status| status["healthy"] == true);
    assert_eq!(budget(&service), default);
    service.stop("TERM");
}

#[test]
fn loop_only_operators_and_the_agent_say_what_is_permitted() {
    let service = Service::start(&[]);
    fs::set_permissions(service.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let code = |by: &[&str], role: &str, method: &str, path: &str| {
        let words: Vec<&str> = by.iter().copied().chain(["curl"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]);
        command.args([
            "-H",
            role,
            "-d",
            "{\"in_touch_until\": 0, \"version\": 1, \"settings\": \"\"}",
            "--unix-socket",
        ]);
        let output = command.arg(service.path("socket")).arg(format!("http://x{path}")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    for (method, path) in [("PUT", "/v1/fleet/permission"), ("PUT", "/v1/fleet/policy"), ("DELETE", "/v1/fleet/policy")]
    {
        assert_eq!(code(&nobody, "accept: */*", method, path), "403", "{method} {path} by nobody");
        assert_eq!(code(&[], "longrun-role: viewer", method, path), "403", "{method} {path} by a viewer");
    }
    assert_eq!(code(&nobody, "accept: */*", "GET", "/v1/fleet"), "403");
    assert_eq!(code(&[], "longrun-role: viewer", "GET", "/v1/fleet"), "200");
    assert_eq!(code(&[], "accept: */*", "PUT", "/v1/fleet/permission"), "202");
    service.stop("TERM");
}
