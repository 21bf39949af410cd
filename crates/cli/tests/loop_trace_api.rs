//! Traces by the service on a real volume, which needs root: begun, followed and ended by its API.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;
#[path = "common/service.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod service;

use longrun_lab::{LoopVolume, VolumeSpec, tool};
use serde_json::{Value, json};
use service::{PATIENCE, Service, of};
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// So many are read; what the kernel has in memory already may not reach the disk.
const BLOCKS: u64 = 200;
const MOST: u64 = 180;

#[test]
fn loop_the_service_counts_what_a_disk_is_asked_for_when_an_operator_wants_it() {
    let by = service::confined_as_the_unit();
    for spec in [VolumeSpec::ext4(64), VolumeSpec::btrfs(256)] {
        let volume = LoopVolume::create(&spec).unwrap();
        let mount = volume.mount_point();
        let mut service = Service::start_by(&by, std::slice::from_ref(&mount));
        let status = service.wait(|status| of(status, &mount).is_some_and(|volume| volume["prevention"] == true));
        let path = format!("/v1/volumes/{}/trace", of(&status, &mount).unwrap()["id"].as_str().unwrap());
        let ask = |method: &str, path: &str, body: Value| {
            service::send(&service.path("socket"), method, path, &body.to_string()).unwrap()
        };
        let wait = |wanted: &dyn Fn(&Value) -> bool| {
            let until = Instant::now() + PATIENCE;
            loop {
                let (code, trace) = ask("GET", &path, Value::Null);
                if wanted(&trace) {
                    return trace;
                }
                assert!(code == 200 && Instant::now() < until, "it never came to that: {trace:#}\n{}", service.log());
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let (code, none) = ask("GET", &path, Value::Null);
        assert!(code == 200 && none["running"] == false && none["recording"].is_null(), "{none:#}");
        for wrong in [json!({"seconds": 0}), json!({"seconds": 3601}), json!({"minutes": 3}), json!(3)] {
            assert_eq!(ask("POST", &path, wrong.clone()).0, 400, "{wrong}");
        }
        assert_eq!(ask("POST", "/v1/volumes/nothing/trace", json!({"seconds": 5})).0, 404);
        // Requests of one size to a file that lies on the disk.
        let file = mount.join("file");
        std::fs::write(&file, vec![7; (BLOCKS * 4096) as usize]).unwrap();
        tool::run("sync", ["-f".as_ref(), mount.as_os_str()]).unwrap();
        let (code, begun) = ask("POST", &path, json!({"seconds": 3600}));
        assert!(code == 202 && begun["running"] == true && begun["ends"].is_string(), "{code} {begun:#}");
        let going = wait(&|trace| !trace["recording"].is_null() || trace["running"] == false);
        assert!(going["running"] == true, "{going:#}");
        let (code, problem) = ask("POST", &path, json!({"seconds": 5}));
        assert!(code == 409 && problem["error"].as_str().unwrap().contains("goes on"), "{problem:#}");
        let from = format!("if={}", file.display());
        let count = format!("count={BLOCKS}");
        let words = [&from, "of=/dev/null", "iflag=direct", "bs=4096", &count, "status=none"];
        tool::run("dd", words.map(OsStr::new)).unwrap();
        let reads = |trace: &Value| trace["recording"]["devices"][0]["all"]["reads"].clone();
        let seen = wait(&|trace| reads(trace)["completed"].as_u64() >= Some(MOST));
        assert!(seen["running"] == true && seen["trouble"].is_null(), "{seen:#}");
        let sizes = reads(&seen)["sizes"]["buckets"].as_array().unwrap().clone();
        let of_a_block = sizes.iter().find(|bucket| bucket["upto"] == 4096).unwrap();
        assert!(of_a_block["count"].as_u64() >= Some(MOST), "{seen:#}");
        let timed: u64 = reads(&seen)["latency"]["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["count"].as_u64().unwrap())
            .sum();
        assert!(timed >= MOST, "{seen:#}");
        assert_eq!(ask("DELETE", &path, Value::Null).0, 202);
        let over = wait(&|trace| trace["running"] == false);
        assert!(reads(&over)["completed"].as_u64() >= Some(MOST) && over["trouble"].is_null(), "{over:#}");
        // By itself, too; and the next one begins at nothing.
        assert_eq!(ask("POST", &path, json!({"seconds": 1})).0, 202);
        let short = wait(&|trace| trace["running"] == false);
        assert!(reads(&short)["completed"].as_u64() < Some(MOST) && short["trouble"].is_null(), "{short:#}");
        // A service that ends does not wait for a trace.
        assert_eq!(ask("POST", &path, json!({"seconds": 3600})).0, 202);
        service.stop("TERM");
        volume.check().unwrap();
    }
}
