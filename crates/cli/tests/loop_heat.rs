//! `longrun heat` on real volumes, beside a real service: from the reads of a program to the list of the hottest files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]
#![allow(dead_code, reason = "the helpers serve other tests, too")]

mod common;
#[path = "common/service.rs"]
mod service;

use common::longrun;
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, drop_cache, expect_random_reads};
use serde_json::Value;
use service::{Service, of};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Output;

/// Reads so many blocks of a file from the device.
fn read(path: &Path, times: u64) {
    let file = File::open(path).unwrap();
    expect_random_reads(&file).unwrap();
    for nth in 0..times {
        drop_cache(&file, ByteRange { start: Bytes(0), length: Bytes(file.metadata().unwrap().len()) }).unwrap();
        file.read_exact_at(&mut [0; 4096], nth % 16 * 4096).unwrap();
    }
}

fn heat(service: &Service, volume: &LoopVolume, more: &[&str]) -> Output {
    let mut arguments = vec!["heat".to_owned(), "--socket".to_owned(), service.path("socket").display().to_string()];
    arguments.extend(["--state".to_owned(), service.path("state").display().to_string()]);
    arguments.extend(more.iter().map(|text| (*text).to_owned()));
    arguments.push(volume.mount_point().display().to_string());
    longrun(arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn loop_the_hottest_files_and_directories_are_listed_by_name_with_a_service_and_after_it() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let point = volume.mount_point();
        for directory in ["db", "archive"] {
            fs::create_dir(point.join(directory)).unwrap();
        }
        for name in ["db/hot", "db/warm", "archive/cold", "gone"] {
            fs::write(point.join(name), vec![7; 16 * 4096]).unwrap();
        }
        volume.remount().unwrap();
        let mut service = Service::start(std::slice::from_ref(&point));
        let id = service.wait(|status| of(status, &point).is_some());
        let id = of(&id, &point).unwrap()["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/volumes/{id}/heat");
        // A volume is watched a moment after it shows.
        while service.ask("GET", &path).0 != 200 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        read(&point.join("db/hot"), 60);
        read(&point.join("db/warm"), 20);
        read(&point.join("archive/cold"), 1);
        read(&point.join("gone"), 10);
        fs::remove_file(point.join("gone")).unwrap();

        let found = json(&heat(&service, &volume, &["--json"]));
        let file = |nth: usize| found["files"][nth].clone();
        assert_eq!(file(0)["path"], point.join("db/hot").to_str().unwrap(), "{kind:?} {found:#}");
        assert_eq!(file(1)["path"], point.join("db/warm").to_str().unwrap(), "{kind:?} {found:#}");
        // On a busy machine, 61 reads were counted once.
        let near = |found: &Value, reads: f64| (found["reads"].as_f64().unwrap() - reads).abs() < 2.5;
        assert!(near(&file(0), 60.0) && near(&file(1), 20.0), "{kind:?} {found:#}");
        assert!((file(0)["reads_per_mib"].as_f64().unwrap() - 60.0 * 16.0).abs() < 40.0, "{kind:?} {found:#}");
        let directory = &found["directories"][0];
        assert_eq!(directory["path"], point.join("db").to_str().unwrap(), "{kind:?} {found:#}");
        assert!(near(directory, 80.0) && directory["files"] == 2, "{kind:?} {found:#}");
        let share = found["share_of_files"].as_f64().unwrap() + found["share_of_deleted"].as_f64().unwrap();
        assert!((0.5..=1.0).contains(&share) && found["share_of_deleted"].as_f64().unwrap() > 0.02, "{found:#}");
        assert!(found["placing"].is_string() || found["placing"].is_object(), "{found:#}");
        let top = json(&heat(&service, &volume, &["--json", "--top", "1"]));
        assert_eq!(top["files"].as_array().unwrap().len(), 1);

        let answer = service.ask("GET", &format!("{path}?top=2")).1;
        assert_eq!(answer["hottest"].as_array().unwrap().len(), 2, "{answer:#}");
        assert!(near(&answer["hottest"][0], 60.0), "{answer:#}");
        let text = String::from_utf8_lossy(&heat(&service, &volume, &[]).stdout).into_owned();
        assert!(text.contains("db/hot") && text.contains("Placing hot files: "), "{text}");

        // What was counted outlasts the service.
        let directory = service.directory.path().to_owned();
        service.signal("TERM");
        assert!(service.child.wait().unwrap().success(), "{}", service.log());
        let kept = json(&heat(&service, &volume, &["--json"]));
        assert_eq!((kept["source"].as_str(), found["source"].as_str()), (Some("kept"), Some("service")));
        assert!(near(&kept["files"][0], 60.0), "{kept:#}");
        let file = directory.join(format!("state/heat/{id}.heat"));
        fs::write(&file, "damaged").unwrap();
        let refused = heat(&service, &volume, &[]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && text.contains("begins anew"), "{text}");
        fs::remove_file(&file).unwrap();
        let refused = heat(&service, &volume, &[]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && text.contains("systemctl start longrun"), "{text}");
    }
}
