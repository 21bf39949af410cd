//! A running service of a test, and questions to it.

use super::common::LONGRUN;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running service, ended with its test.
pub struct Service {
    pub child: Child,
    pub directory: tempfile::TempDir,
}

impl Service {
    /// With a configuration that enables only `mounts`.
    pub fn start(mounts: &[PathBuf]) -> Self {
        Self::start_by(&[], mounts)
    }

    /// The same, started by the program `by` with its arguments.
    pub fn start_by(by: &[String], mounts: &[PathBuf]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("longrun.toml"), only(mounts)).unwrap();
        let mut service = Self { child: daemon(by, directory.path()).spawn().unwrap(), directory };
        service.wait(|status| status["volumes"].is_array());
        service
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    pub fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        ask(&self.path("socket"), method, path).unwrap()
    }

    /// Waits until the status is as `wanted`.
    #[track_caller]
    pub fn wait(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = ask(&self.path("socket"), "GET", "/v1/status").map_or(Value::Null, |answer| answer.1);
            if wanted(&status) {
                return status;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the service ended: {}", self.log());
            assert!(Instant::now() < until, "it never came to that: {status:#}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What its threads are doing, for messages.
    pub fn threads(&self) -> String {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let line = |thread: fs::DirEntry| {
            let text = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default().trim().to_owned();
            let state = text("stat").rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            format!("{}: {} in {}\n", text("comm"), state.unwrap_or('?'), text("wchan"))
        };
        threads.map(line).collect()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Ends it in good order.
    #[track_caller]
    pub fn stop(mut self, signal: &str) -> String {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(!self.path("socket").exists(), "the socket stays");
        self.log()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What starts a program with the capabilities of the unit.
pub fn confined_as_the_unit() -> [String; 4] {
    let unit = include_str!("../../../../packaging/longrun.service");
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let set: String =
        set.split(' ').map(|name| format!(",+{}", name.strip_prefix("CAP_").unwrap().to_lowercase())).collect();
    ["setpriv", "--no-new-privs", "--bounding-set", &format!("-all{set}")].map(str::to_owned)
}

pub fn only(mounts: &[PathBuf]) -> String {
    let rules = mounts.iter().map(|mount| format!("[[volume]]\nmount = {mount:?}\nenabled = true\n"));
    format!(
        "[service]\n[defaults]\nenabled = false\nmending_quiet = \"1s\"\npace = \"fast\"\n{}",
        rules.collect::<String>()
    )
}

pub fn daemon(by: &[String], directory: &Path) -> Command {
    let words: Vec<&str> = by.iter().map(String::as_str).chain([LONGRUN]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let at = |name: &str| directory.join(name);
    command.arg("daemon").arg("--config").arg(at("longrun.toml")).arg("--socket").arg(at("socket"));
    command.arg("--state-directory").arg(at("state")).stdin(Stdio::null());
    command.stderr(File::create(at("log")).unwrap());
    command
}

/// One request by hand: the client of the product is not to judge itself.
pub fn ask(socket: &Path, method: &str, path: &str) -> std::io::Result<(u16, Value)> {
    send(socket, method, path, "")
}

/// The same with a body.
pub fn send(socket: &Path, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Value)> {
    let length = body.len();
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, serde_json::from_str(body).unwrap_or_else(|_| Value::from(body))))
}

pub fn of<'a>(status: &'a Value, mount: &Path) -> Option<&'a Value> {
    status["volumes"].as_array()?.iter().find(|volume| volume["mount"] == mount.to_str().unwrap())
}
