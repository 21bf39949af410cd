//! A host of a fleet with its real service and its real agent.

use super::host::{Host, Surroundings};
use crate::LoopVolume;
use crate::service::{Kernel, Service};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(200);
/// What breaks a configuration.
const NONSENSE: &str = "this is no setting\n";
/// The storage group that all volumes are in.
pub(super) const GROUP: &str = "san";

/// A host; its processes end when dropped.
pub(super) struct Real {
    pub(super) service: Service,
    pub(super) agent: Host,
    directory: PathBuf,
}

impl Real {
    /// Starts both in a new directory. The service looks after `volumes`, and rests without permission.
    pub(super) fn start(
        directory: &Path,
        name: &str,
        servers: &str,
        term: Duration,
        volumes: &[LoopVolume],
    ) -> Result<Self> {
        fs::create_dir(directory)?;
        let service = Service::start_with(Kernel::AsItIs, "fleet = \"rest\"", directory, volumes)?;
        let surroundings = Surroundings { servers: servers.to_owned(), ..Surroundings::default() };
        // The log of the agent lies beside that of the service.
        let own = directory.join("agent");
        fs::create_dir(&own)?;
        std::os::unix::fs::symlink(service.socket(), own.join("socket"))?;
        let agent = Host::start(&own, name, GROUP, surroundings, term)?;
        let host = Self { service, agent, directory: directory.to_owned() };
        let grouped = format!("enabled = true\nstorage_group = {GROUP:?}");
        host.configure(|text| text.replace("enabled = true", &grouped))?;
        Ok(host)
    }

    /// This host's part in the fleet, as its service says.
    pub(super) fn part(&self) -> Result<Value> {
        ask(self.service.socket(), "/v1/fleet")
    }

    /// The version of the policy in force.
    pub(super) fn version(&self) -> Result<Option<u64>> {
        Ok(self.part()?.pointer("/policy/version").and_then(Value::as_u64))
    }

    /// Whether its storage group wants or has what `what` says.
    pub(super) fn group_is(&self, what: &str) -> Result<bool> {
        Ok(self.part()?.pointer(&format!("/groups/0/{what}")).and_then(Value::as_bool) == Some(true))
    }

    /// Breaks the configuration, or mends it; the service raises an alert while it is broken.
    pub(super) fn break_configuration(&self, broken: bool) -> Result<()> {
        self.configure(|text| {
            let whole = text.replace(NONSENSE, "");
            if broken { format!("{NONSENSE}{whole}") } else { whole }
        })
    }

    /// Keeps the service from running for so long, as a machine without a free processor does.
    pub(super) fn hold_up_service(&self, time: Duration) -> Result<()> {
        self.signal_service(Signal::STOP)?;
        thread::sleep(time);
        self.signal_service(Signal::CONT)
    }

    fn configure(&self, change: impl FnOnce(&str) -> String) -> Result<()> {
        let path = self.directory.join("longrun.toml");
        fs::write(&path, change(&fs::read_to_string(&path)?))?;
        self.signal_service(Signal::HUP)
    }

    fn signal_service(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.service.id().cast_signed()).context("the service has no process")?;
        Ok(kill_process(id, signal)?)
    }
}

/// Asks a service.
fn ask(socket: &Path, path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: longrun\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer of the service")?;
    Ok(serde_json::from_str(body)?)
}

/// Waits until it is so, for five minutes at most; how many seconds that took.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<f64> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(LOOK);
    }
    Ok(begun.elapsed().as_secs_f64())
}
