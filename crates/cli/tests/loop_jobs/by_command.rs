//! `longrun optimize` beside a running service: the service does it, unless it cannot or is not to.

use super::common::{LONGRUN, check};
use super::{aged, ext4, filefrag, has_ended, in_pieces, serve, wait};
use longrun_lab::VolumeSpec;
use longrun_lab::oracle::{compare, dump};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ASKED: &str = "the service does it as its job";

fn optimize(socket: &Path, mount: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(LONGRUN);
    command.arg("optimize").arg("--socket").arg(socket).args(["--pace", "fast"]).args(more).arg(mount);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn loop_the_command_has_the_service_optimize_what_it_looks_after() {
    for spec in [ext4(256), VolumeSpec::xfs(512), VolumeSpec::btrfs(512)] {
        let volume = in_pieces(&spec);
        let mount = volume.mount_point();
        let before = dump(&mount).unwrap();
        let (service, _) = serve(&volume, "");
        let run = |more: &[&str]| optimize(&service.path("socket"), &mount, more).output().unwrap();
        let jobs = || service.ask("GET", "/v1/jobs").1.as_array().unwrap().clone();
        // A dry run changes nothing, and needs nobody.
        check(&run(&["--dry-run"]), 0, "");
        assert_eq!(jobs().len(), 0);
        // Everything that can be said on the command line reaches the job.
        let text = check(&run(&["--mode", "files", "--explain", "--budget", "1M", "--placement", "plan"]), 0, ASKED);
        assert!(text.contains("Result:") && text.contains("Rounds:"), "{text}");
        let job = &jobs()[0];
        assert_eq!(
            (&job["mode"], &job["budget"], &job["state"]),
            (&json!("files"), &json!(1 << 20), &json!("finished"))
        );
        let report: Value = serde_json::from_str(&check(&run(&["--mode", "full", "--json"]), 0, ASKED)).unwrap();
        let job = &jobs()[0];
        assert_eq!((&job["state"], &job["by"], &job["mode"]), (&json!("finished"), &json!("operator"), &json!("full")));
        assert!(report["bytes_moved"].as_u64() > Some(0) && report["bytes_moved"] == job["moved_bytes"], "{report:#}");
        assert_eq!(filefrag(&mount).unwrap().excess, 0);
        // What the service does not do is done here.
        check(&run(&["--alone"]), 0, "");
        let file = mount.join("file-0");
        check(&optimize(&service.path("socket"), &file, &[]).output().unwrap(), 0, "");
        assert_eq!(jobs().len(), 2);
        let text = std::fs::read_to_string(service.path("longrun.toml")).unwrap();
        std::fs::write(service.path("longrun.toml"), text.replace("enabled = true", "enabled = false")).unwrap();
        service.signal("HUP");
        let mut service = service;
        service.wait(|status| super::of(status, &mount).is_some_and(|volume| volume["enabled"] == false));
        check(&optimize(&service.path("socket"), &mount, &[]).output().unwrap(), 0, "");
        assert_eq!(service.ask("GET", "/v1/jobs").1.as_array().unwrap().len(), 2);
        compare(&before, &dump(&mount).unwrap()).unwrap();
        service.stop("TERM");
        check(&optimize(Path::new("/nonexistent/socket"), &mount, &[]).output().unwrap(), 0, "");
        volume.check().unwrap();
    }
}

#[test]
fn loop_a_signal_to_the_command_cancels_the_job_and_a_pause_of_the_service_holds_it() {
    let volume = aged(&ext4(512));
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let (service, _) = serve(&volume, "");
    let run = |more: &[&str]| optimize(&service.path("socket"), &mount, more).spawn().unwrap();
    let child = run(&["--mode", "full", "--max-duty", "10%"]);
    let until = Instant::now() + super::PATIENCE;
    while service.ask("GET", "/v1/jobs/1").0 != 200 {
        assert!(Instant::now() < until, "there is no job");
        std::thread::sleep(Duration::from_millis(20));
    }
    let moving = wait(&service, 1, |job| has_ended(job) || job["progress"]["phase"] == "moving");
    assert_eq!(moving["state"], "running", "{moving:#}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("stopping") && said(&output).contains("stopped by a signal"), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Result:"));
    assert_eq!(service.ask("GET", "/v1/jobs/1").1["state"], "cancelled");
    // Paused, the service does nothing, and neither does the command: no second way round it.
    assert_eq!(service.ask("POST", "/v1/pause").0, 202);
    let child = run(&["--mode", "files"]);
    let held = |job: &Value| job["reason"].as_str().is_some_and(|why| why.contains("paused"));
    while service.ask("GET", "/v1/jobs/2").0 != 200 {
        assert!(Instant::now() < until, "there is no second job");
        std::thread::sleep(Duration::from_millis(20));
    }
    wait(&service, 2, held);
    // A second command does not wait for it, and says whose the disk is.
    let second = run(&["--mode", "files"]).wait_with_output().unwrap();
    check(&second, 3, "job 2 (optimize of");
    assert_eq!(service.ask("POST", "/v1/resume").0, 202);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(service.ask("GET", "/v1/jobs/2").1["state"], "finished");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    service.stop("TERM");
    volume.check().unwrap();
}

/// A service as far as the command sees it: its answers by the start of the request.
fn answering(socket: &Path, answers: Vec<(&'static str, Value)>) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.take(length).read_to_end(&mut Vec::new()).unwrap();
            let answer = answers.iter().find(|(start, _)| first.starts_with(start));
            let (code, body) =
                answer.map_or((404, json!({"error": "none", "hint": "none"})), |(_, body)| (200, body.clone()));
            let body = body.to_string();
            let length = body.len();
            write!(stream, "HTTP/1.1 {code} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
    });
}

#[test]
fn loop_what_is_too_large_for_a_job_is_done_without_the_service_and_what_fails_is_told() {
    let volume = in_pieces(&ext4(256));
    let (mount, place) = (volume.mount_point(), tempfile::tempdir().unwrap());
    let answers = |name: &str, device: &Path, job: Value, report: Value| {
        let socket = place.path().join(name);
        let mut seen = serde_json::to_value(longrun_api::model::Volume::default()).unwrap();
        for (key, value) in [
            ("id", json!("x")),
            ("mount", json!(mount)),
            ("mounts", json!([mount])),
            ("device", json!(device)),
            ("enabled", json!(true)),
        ] {
            seen[key] = value;
        }
        let mut told = serde_json::to_value(longrun_api::jobs::Job::default()).unwrap();
        told.as_object_mut().unwrap().extend(job.as_object().unwrap().clone());
        let report = json!({"status": 3, "error": "it needs more than \u{1b}[5m", "text": "", "report": report["report"],
            "too_large": report["too_large"]});
        let answers = vec![
            ("GET /v1/volumes ", json!([seen])),
            ("POST /v1/jobs ", told.clone()),
            ("GET /v1/jobs/7/report ", report),
            ("GET /v1/jobs/7 ", told),
        ];
        answering(&socket, answers);
        socket
    };
    let failed = json!({"id": 7, "state": "failed", "reason": "why"});
    // Another device at the same mount point, as in another mount namespace: not the same volume.
    let other = answers("other", Path::new("/dev/null"), failed.clone(), json!({"too_large": false}));
    check(&optimize(&other, &mount, &["--mode", "files", "--budget", "4k"]).output().unwrap(), 0, "");
    let fails = answers("fails", volume.device(), failed.clone(), json!({"too_large": false}));
    let output = optimize(&fails, &mount, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("job 7 of the service: it needs more than \\x1b[5m"), "{}", said(&output));
    assert!(filefrag(&mount).unwrap().excess > 0);
    let large = answers("large", volume.device(), failed, json!({"too_large": true}));
    let output = optimize(&large, &mount, &["--mode", "full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("now it is optimized without the service"), "{}", said(&output));
    assert_eq!(filefrag(&mount).unwrap().excess, 0);
    volume.check().unwrap();
}
