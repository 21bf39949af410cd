//! Users who ask for what they may not, or for too much. One of them could hold all 64 connections, and the administrator waited for an
//! answer until he gave up.

use super::common::{check, longrun};
use super::service::{PATIENCE, Service, ask, only};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// An unprivileged user with many connections, each used now and then so that none is idle, until this is dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn at(socket: &Path, connections: usize) -> Self {
        let one = |_| {
            let mut command = Command::new("setpriv");
            // Comes again, a little later, when it is sent away.
            let ask = "while :; do curl -s -o /dev/null --rate 120/m --unix-socket \"$0\" 'http://x/v1/status?n=[1-1000]'; sleep 0.2; done";
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", ask]).arg(socket);
            command.process_group(0).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        Self((0..connections).map(one).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            _ = child.wait();
        }
    }
}

/// How many connections the service has now.
fn connections(service: &Service) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", service.child.id())).into_iter().flatten().flatten();
    files.filter(|file| fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))).count()
}

#[test]
fn loop_root_gets_an_answer_whoever_else_holds_a_hundred_connections() {
    let mut service = Service::start(&[]);
    fs::set_permissions(service.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let quiet = connections(&service);
    for open in [false, true] {
        if open {
            fs::write(
                service.path("longrun.toml"),
                only(&[]).replace("[service]\n", "[service]\nreadable_by_all = true\n"),
            )
            .unwrap();
            service.signal("HUP");
        }
        let crowd = Crowd::at(&service.path("socket"), 100);
        let until = Instant::now() + PATIENCE;
        // Who may read figures keeps some, and never all; who may not, none.
        let enough = if open { quiet + 16 } else { quiet + 1 };
        while connections(&service) < enough {
            assert!(Instant::now() < until, "only {} connections: {}", connections(&service), service.log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for _ in 0..5 {
            let socket = service.path("socket");
            let output = longrun(["status".as_ref(), "--socket".as_ref(), socket.as_os_str()]);
            assert!(check(&output, 0, "").contains("Sensor:"), "open: {open}");
            assert!(connections(&service) < quiet + 40, "{} connections", connections(&service));
        }
        drop(crowd);
    }
    service.wait(|s| s["healthy"] == true);
    service.stop("TERM");
}

#[test]
fn a_connection_that_says_nothing_is_ended() {
    let service = Service::start(&[]);
    let mut silent = UnixStream::connect(service.path("socket")).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    // An end, with or without a word: not a time-out of ours.
    std::io::Read::read_to_end(&mut silent, &mut Vec::new()).unwrap();
    assert_eq!(ask(&service.path("socket"), "GET", "/v1/status").unwrap().0, 200);
    service.stop("TERM");
}
