//! The service on real volumes, which needs root: it comes up, sees volumes come and go, answers, and leaves nothing behind.
//!
//! Every service here is told to look after nothing but the volumes of its test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

#[path = "common/busy.rs"]
mod busy;
mod common;
#[path = "loop_daemon/dice.rs"]
mod dice;
#[path = "common/growing.rs"]
mod growing;
#[path = "loop_daemon/inputs.rs"]
mod inputs;
#[path = "loop_daemon/maps.rs"]
mod maps;
#[path = "common/service.rs"]
mod service;
#[path = "loop_daemon/strangers.rs"]
mod strangers;
#[path = "loop_daemon/stuck.rs"]
mod stuck;

use busy::Busy;
use common::{LONGRUN, check, longrun};
use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use serde_json::Value;
use service::{PATIENCE, Service, daemon, of, only};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn loop_volumes_come_and_go_and_can_always_be_unmounted() {
    let volumes = [VolumeSpec::ext4(128).mkfs(&["-b", "4096"]), VolumeSpec::xfs(320), VolumeSpec::btrfs(256)]
        .map(|spec| LoopVolume::create(&spec).unwrap());
    let mounts: Vec<PathBuf> = volumes.iter().map(LoopVolume::mount_point).collect();
    let mut service = Service::start(&mounts);
    let watched = |mounts: &[PathBuf]| {
        let mounts = mounts.to_vec();
        move |s: &Value| mounts.iter().all(|mount| of(s, mount).is_some_and(|v| v["prevention"] == true))
    };
    let status = service.wait(watched(&mounts));
    for mount in &mounts {
        let volume = of(&status, mount).unwrap();
        assert!(volume["space"]["free_bytes"].as_u64().unwrap() > 0 && volume["trouble"].is_null(), "{volume:#}");
        assert_eq!(volume["health"]["level"], "good", "{volume:#}");
        assert_eq!(volume["id"].as_str().unwrap().len(), 36, "{volume:#}");
    }
    for round in 0..3 {
        volumes.iter().for_each(|volume| volume.unmount().unwrap());
        service.wait(|s| s["volumes"].is_array() && mounts.iter().all(|mount| of(s, mount).is_none()));
        volumes.iter().for_each(|volume| volume.mount().unwrap());
        service.wait(watched(&mounts));
        // It looks at a volume now and then, for moments; it keeps nothing of one open.
        let held = || {
            let open = fs::read_dir(format!("/proc/{}/fd", service.child.id())).unwrap().flatten();
            let paths = open.filter_map(|fd| fs::read_link(fd.path()).ok());
            paths.filter(|open| mounts.iter().any(|mount| open.starts_with(mount))).collect::<Vec<PathBuf>>()
        };
        let until = Instant::now() + PATIENCE;
        while !held().is_empty() {
            assert!(Instant::now() < until, "round {round}: {:?}", held());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let log = service.stop("TERM");
    assert!(log.contains("totals:"), "{log}");
    volumes.iter().for_each(|volume| volume.check().unwrap());
}

#[test]
fn loop_growing_files_get_runways_and_all_is_given_back_at_the_end() {
    runways_come_and_go(&[], &LoopVolume::create(&VolumeSpec::xfs(1024)).unwrap());
}

#[test]
fn loop_the_capabilities_of_the_unit_are_enough() {
    let words = service::confined_as_the_unit();
    runways_come_and_go(&words, &LoopVolume::create(&VolumeSpec::xfs(640)).unwrap());
    runways_come_and_go(&words, &LoopVolume::create(&VolumeSpec::btrfs(640)).unwrap());
}

/// Files of somebody else grow beside each other by direct writes: they get runways, and no block of these is left.
#[track_caller]
fn runways_come_and_go(by: &[String], volume: &LoopVolume) {
    let mount = volume.mount_point();
    let mut service = Service::start_by(by, std::slice::from_ref(&mount));
    service.wait(|s| of(s, &mount).is_some_and(|v| v["prevention"] == true));
    // O_DIRECT.
    let mut options = File::options();
    options.create(true).write(true).truncate(true).mode(0o600).custom_flags(0o40000);
    let files: Vec<File> = (0..4).map(|number| options.open(mount.join(format!("file-{number}"))).unwrap()).collect();
    files.iter().for_each(|file| std::os::unix::fs::fchown(file, Some(65534), Some(65534)).unwrap());
    let mut space = vec![0u8; 65536 + 4096];
    let shift = space.as_ptr().align_offset(4096);
    let block = &mut space[shift..shift + 65536];
    for round in 0..128u64 {
        files.iter().for_each(|file| file.write_all_at(block, round * 65536).unwrap());
    }
    let status = service.wait(|s| of(s, &mount).is_some_and(|v| v["prevented"]["grants"].as_u64() > Some(0)));
    assert!(status["sensor"]["signals"].as_u64().unwrap() > 0, "{status:#}");
    drop(files);
    service
        .wait(|s| of(s, &mount).is_some_and(|v| v["prevented"]["runways"] == 0 && v["prevented"]["held_bytes"] == 0));
    let (code, metrics) = service.ask("GET", "/metrics");
    assert_eq!(code, 200);
    assert!(metrics.as_str().unwrap().contains("longrun_runways_granted_total{"), "{metrics}");
    service.stop("INT");
    for number in 0..4 {
        let path = mount.join(format!("file-{number}"));
        let meta = fs::metadata(&path).unwrap();
        // A file in many pieces, which is what a busy machine makes of one, takes a block to tell where they lie.
        let described = if longrun_lab::oracle::excess_of(&path).unwrap() > 4 { 4096 } else { 0 };
        assert_eq!(meta.len(), 8 << 20, "file {number}");
        assert!((8 << 20..=(8 << 20) + described).contains(&(meta.blocks() * 512)), "file {number}: {meta:?}");
    }
}

#[test]
fn loop_an_alert_is_raised_before_xfs_can_make_no_more_files_and_clears_afterwards() {
    let spec = VolumeSpec::xfs(320).mkfs(&["-m", "rmapbt=0,reflink=0", "-i", "sparse=0"]);
    let volume = LoopVolume::create(&spec).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let level = |wanted: &'static str| {
        let mount = mount.clone();
        move |s: &Value| of(s, &mount).is_some_and(|v| v["health"]["level"] == wanted)
    };
    service.wait(level("good"));
    // Every other block of a file that fills the volume is given back: what is free lies in single blocks.
    let filler = File::create(mount.join("filler")).unwrap();
    let mut chunk = 64u64 << 20;
    let mut length = 0u64;
    while chunk >= 4096 {
        let mut more = Command::new("fallocate");
        more.args(["-o", &length.to_string(), "-l", &chunk.to_string()])
            .arg(mount.join("filler"))
            .stderr(Stdio::null());
        if more.status().unwrap().success() {
            length += chunk;
        } else {
            chunk /= 2;
        }
    }
    for pair in 0..length / 8192 {
        let block = ByteRange { start: Bytes(pair * 8192), length: Bytes(4096) };
        longrun_sys::punch(&filler, block).unwrap();
    }
    filler.sync_all().unwrap();
    // What the file system had kept back for itself still lies in one piece: the next large file takes it.
    let mut more = Command::new("fallocate");
    assert!(more.args(["-l", "24M"]).arg(mount.join("filler-2")).status().unwrap().success());
    service.signal("HUP");
    let status = service.wait(level("alert"));
    let space = &of(&status, &mount).unwrap()["space"];
    assert!(space["free_bytes"].as_u64().unwrap() * 4 > space["total_bytes"].as_u64().unwrap(), "{space:#}");
    assert!(status["troubles"].to_string().contains("more files can be created"), "{status:#}");
    // It was no false alarm: soon no file can be made, with a good part of the volume free.
    let made = (0..20_000).take_while(|number| File::create(mount.join(format!("small-{number}"))).is_ok()).count();
    assert!(made < 4096, "{made} files could be made");
    drop(filler);
    fs::remove_file(mount.join("filler")).unwrap();
    fs::remove_file(mount.join("filler-2")).unwrap();
    // XFS frees what was deleted by and by.
    let until = Instant::now() + PATIENCE;
    while !level("good")(&service.ask("GET", "/v1/status").1) && Instant::now() < until {
        service.signal("HUP");
        std::thread::sleep(Duration::from_millis(500));
    }
    service.wait(level("good"));
    let (_, events) = service.ask("GET", "/v1/events?since=0&limit=100");
    let kinds: Vec<&str> = events["events"].as_array().unwrap().iter().filter_map(|e| e["kind"].as_str()).collect();
    assert!(kinds.contains(&"space-alert") && kinds.contains(&"space-alert-over"), "{kinds:?}");
    service.stop("TERM");
}

/// Asks for a scan and waits for it; answers with the volume's number and status.
fn scanned_on_request(service: &mut Service, mount: &Path) -> (String, Value) {
    let status = service.wait(|s| of(s, mount).is_some_and(|v| v["prevention"] == true));
    let id = of(&status, mount).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(service.ask("POST", &format!("/v1/volumes/{id}/analyze")).0, 202);
    let status = service.wait(|s| of(s, mount).is_some_and(|v| v["scan"].is_object()));
    (id, of(&status, mount).unwrap().clone())
}

#[test]
fn loop_the_excess_of_btrfs_is_told_with_that_of_its_snapshots() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(256)).unwrap();
    let mount = volume.mount_point();
    for round in 0..10u8 {
        for name in ["one", "other"] {
            let mut log = fs::OpenOptions::new().create(true).append(true).open(mount.join(name)).unwrap();
            std::io::Write::write_all(&mut log, &[round; 16384]).unwrap();
            log.sync_data().unwrap();
        }
    }
    let snapshot = mount.join("snapshot");
    longrun_lab::tool::run(
        "btrfs",
        ["subvolume", "snapshot", "-r", mount.to_str().unwrap(), snapshot.to_str().unwrap()],
    )
    .unwrap();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let (_, status) = scanned_on_request(&mut service, &mount);
    assert_eq!(status["scan"]["excess_fragments"], 4 * 9, "{status:#}");
    service.stop("TERM");
    volume.unmount().unwrap();
}

#[test]
fn loop_a_disk_that_becomes_another_one_is_told_within_a_minute_without_any_work() {
    let size = Bytes(256 << 20);
    let disk = Arc::new(ModelledDisk::start(DiskModel::by_name("ssd").unwrap(), 1, &[size]).unwrap());
    let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::ext4(size.0 >> 20)).unwrap();
    let mount = volume.mount_point();
    let turns = Path::new("/sys/block").join(disk.device(0).unwrap().file_name().unwrap()).join("queue/rotational");
    let mut service = Service::start(std::slice::from_ref(&mount));
    for (rotational, told) in [("0", "virtual disk"), ("1", "rotational disk"), ("0", "virtual disk")] {
        fs::write(&turns, rotational).unwrap();
        // It is looked each minute, and when the configuration is read again.
        service.signal("HUP");
        service.wait(|s| {
            of(s, &mount).and_then(|v| v["governor"]["disk"].as_str()).is_some_and(|disk| disk.contains(told))
        });
    }
    service.stop("TERM");
}

/// It read the volume as quickly as it could, whoever else wanted the device.
#[test]
fn loop_a_scan_by_the_service_gives_way_to_others_and_that_is_told() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let invisible = only(std::slice::from_ref(&mount)).replace("\"fast\"", "\"invisible\"");
    fs::write(service.path("longrun.toml"), invisible).unwrap();
    service.signal("HUP");
    let pace = |s: &Value| of(s, &mount).map(|v| v["governor"]["pace"].clone());
    service.wait(|s| pace(s).is_some_and(|pace| pace == "invisible"));
    let busy = Busy::on(volume.device());
    let (id, _) = scanned_on_request(&mut service, &mount);
    // Which is over at the latest when the scan is. A single scan of so small a volume can fall into a moment in which the other
    // program does not run: on a machine whose processors are taken away these are long.
    let waiting = (&"other I/O is using the device".into(), &"foreign".into());
    let mut last = Value::Null;
    let told = (0..400).any(|_| {
        service.ask("POST", &format!("/v1/volumes/{id}/analyze"));
        std::thread::sleep(Duration::from_millis(50));
        let (_, status) = service.ask("GET", "/v1/status");
        let (_, metrics) = service.ask("GET", "/metrics");
        last = of(&status, &mount).unwrap()["governor"].clone();
        (&last["pausing"], &last["waits_for"]) == waiting
            && metrics.as_str().is_some_and(|metrics| metrics.contains("reason=\"foreign\"} 1"))
    });
    assert!(told, "{last:#}");
    assert!(last["pauses"].as_u64() > Some(0) && last["foreign_bytes"].as_u64() > Some(0), "{last:#}");
    drop(busy);
    service.stop("TERM");
}

#[test]
fn loop_the_load_of_a_volume_is_kept_over_time() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128)).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let id = of(&service.wait(|s| of(s, &mount).is_some()), &mount).unwrap()["id"].as_str().unwrap().to_owned();
    let load = |since: &str| service.ask("GET", &format!("/v1/volumes/{id}/load{since}")).1;
    let until = Instant::now() + PATIENCE;
    let points = |many: usize, since: &str| loop {
        let points = load(since)["points"].as_array().unwrap().clone();
        if points.len() >= many || Instant::now() > until {
            return points;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let first = points(1, "").pop().unwrap();
    let written = 20 << 20;
    fs::write(mount.join("file"), vec![1; written]).unwrap();
    longrun_sys::sync_volume(File::open(&mount).unwrap()).unwrap();
    let later = points(1, &format!("?since={}", first["at"].as_str().unwrap()));
    let sum = |field: &str| later.iter().map(|point| point[field].as_u64().unwrap()).sum::<u64>();
    assert!(sum("written_bytes") >= written as u64, "{later:#?}");
    assert_eq!(sum("own_bytes"), 0, "the service has done nothing there: {later:#?}");
    service.stop("TERM");
}

#[test]
fn loop_a_scan_on_request_ends_in_the_history_and_strangers_are_refused() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    let mut service = Service::start(std::slice::from_ref(&mount));
    let (id, volume_status) = scanned_on_request(&mut service, &mount);
    assert!(volume_status["space"]["free_pieces"].as_u64().unwrap() > 0);
    assert_eq!(service.ask("GET", &format!("/v1/volumes/{id}")).1["id"], id.as_str());
    for (method, path, code) in [
        ("GET", "/v1/volumes/none", 404),
        ("POST", "/v1/volumes/none/analyze", 404),
        ("GET", "/v1/volumes/none/load", 404),
        ("GET", "/v1/volumes/none/load?since=yesterday", 400),
        ("GET", "/v1/events?since=x", 400),
        ("GET", "/v1/report?from=yesterday", 400),
        ("DELETE", "/v1/status", 405),
        ("GET", "/v2", 404),
        ("GET", "/v1/report", 200),
        ("GET", "/v1/openapi.json", 200),
    ] {
        let (status, body) = service.ask(method, path);
        assert_eq!(status, code, "{method} {path}: {body}");
        assert!(code == 200 || body["error"].is_string() && body["hint"].is_string(), "{method} {path}: {body}");
    }
    let nobody = |path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "curl", "-s", "-o", "/dev/null"]);
        command
            .args(["-w", "%{http_code}", "--unix-socket"])
            .arg(service.path("socket"))
            .arg(format!("http://x{path}"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    fs::set_permissions(service.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(["/v1/status", "/v1/events", "/metrics"].map(nobody), ["403", "403", "403"]);
    let open = only(std::slice::from_ref(&mount)).replace("[service]\n", "[service]\nreadable_by_all = true\n");
    fs::write(service.path("longrun.toml"), open).unwrap();
    service.signal("HUP");
    let until = Instant::now() + PATIENCE;
    while nobody("/v1/status") != "200" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(["/v1/status", "/v1/events", "/metrics"].map(nobody), ["200", "403", "200"]);
    service.stop("TERM");
}

#[test]
fn loop_a_wrong_configuration_is_refused_at_the_start_and_ignored_at_a_reload() {
    let mut service = Service::start(&[]);
    fs::write(service.path("longrun.toml"), "[service]\nsokcet = 3\n").unwrap();
    let output = longrun(["config".as_ref(), "check".as_ref(), service.path("longrun.toml").as_os_str()]);
    check(&output, 2, "line 2: unknown key \"sokcet\" in [service]; did you mean socket?");
    service.signal("HUP");
    let status = service.wait(|s| s["healthy"] == false);
    assert!(status["troubles"].to_string().contains("the earlier configuration is kept"), "{status:#}");
    fs::write(service.path("longrun.toml"), only(&[])).unwrap();
    service.signal("HUP");
    service.wait(|s| s["healthy"] == true);
    service.stop("TERM");
}

#[test]
fn loop_a_second_service_is_refused_and_the_first_goes_on() {
    let mut service = Service::start(&[]);
    let other = tempfile::tempdir().unwrap();
    let run = |socket: &Path, state: &Path| {
        let mut command = Command::new(LONGRUN);
        command.arg("daemon").arg("--config").arg(service.path("longrun.toml")).arg("--socket").arg(socket);
        command.arg("--state-directory").arg(state).output().unwrap()
    };
    check(&run(&other.path().join("socket"), &service.path("state")), 3, "another longrun service is running");
    check(&run(&service.path("socket"), &other.path().join("state")), 3, "another longrun service is running");
    service.wait(|s| s["healthy"] == true);
    service.stop("TERM");
}

#[test]
fn loop_after_kill_9_the_next_start_finds_its_place_and_a_damaged_ledger_ends_nothing() {
    let mut service = Service::start(&[]);
    service.signal("KILL");
    service.child.wait().unwrap();
    assert!(service.path("socket").exists(), "a stale socket");
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        _ = fs::remove_file(service.path("state").join(name));
    }
    fs::write(service.path("state/ledger.db"), vec![0xa5; 100_000]).unwrap();
    service.child = daemon(&[], service.directory.path()).spawn().unwrap();
    let status = service.wait(|s| s["history"]["note"].is_string());
    assert!(status["sensor"].is_object(), "{status:#}");
    service.stop("TERM");
}

#[test]
fn without_a_service_status_and_top_say_so_and_root_is_needed_to_start_one() {
    for command in ["status", "top"] {
        let output = longrun([command, "--socket", "/nonexistent/longrun.sock"]);
        check(&output, 1, "no service is running (/nonexistent/longrun.sock");
    }
    let mut nobody = Command::new("setpriv");
    nobody.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        LONGRUN,
        "daemon",
        "--socket",
        "/nonexistent/x",
    ]);
    let refused = nobody.output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(3) && error.contains("needs root") || error.contains("Permission denied"),
        "{error}"
    );
}
