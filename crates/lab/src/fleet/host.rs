//! The real agent of a host, and the administrator's commands.

use super::clock::Clock;
use super::fleet_binary;
use crate::tool;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the agent of a host runs.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// The brokers, as the host reaches them.
    pub(super) servers: String,
    /// The words before a command that is to run there.
    pub(super) enter: Vec<OsString>,
    /// Its wall clock, if not that of the machine.
    pub(super) clock: Option<Clock>,
}

/// The agent of a host.
pub(super) struct Host {
    pub(super) group: String,
    directory: PathBuf,
    surroundings: Surroundings,
    term: Duration,
    child: Child,
}

impl Host {
    pub(super) fn start(
        directory: &Path,
        name: &str,
        group: &str,
        surroundings: Surroundings,
        term: Duration,
    ) -> Result<Self> {
        let servers = &surroundings.servers;
        let config = format!("server = {servers:?}\nhost = {name:?}\nsocket = {:?}\n", directory.join("socket"));
        std::fs::write(directory.join("fleet.toml"), config)?;
        let child = start_agent(directory, &surroundings, term)?;
        Ok(Self { group: group.to_owned(), directory: directory.to_owned(), surroundings, term, child })
    }

    /// Its wall clock jumps: from now on it is wrong by so many seconds. False where it has no clock of its own.
    pub(super) fn set_clock(&self, wrong_by: i64) -> Result<bool> {
        let Some(clock) = &self.surroundings.clock else { return Ok(false) };
        clock.set(wrong_by).map(|()| true)
    }

    pub(super) fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Starts the agent anew, after it was killed.
    pub(super) fn revive(&mut self) -> Result<()> {
        self.child = start_agent(&self.directory, &self.surroundings, self.term)?;
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) {
        _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends it in good order.
    pub(super) fn end(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the agent ended with {status}");
        }
        Ok(())
    }

    /// It has ended by itself: that is an error of the agent.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            bail!("the agent in {} ended: {status}\n{log}", self.directory.display());
        }
        Ok(())
    }

    pub(super) fn resident_kib(&self) -> u64 {
        resident_kib(self.child.id())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start_agent(directory: &Path, surroundings: &Surroundings, term: Duration) -> Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join("log"))?;
    let mut words = surroundings.enter.iter().cloned().chain([fleet_binary()?.into()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if let Some(clock) = &surroundings.clock {
        clock.keep(&mut command);
    }
    command.arg("--config").arg(directory.join("fleet.toml"));
    command.args(["agent", "--term", &term.as_secs_f64().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    longrun_sys::end_with_us(&mut command);
    command.spawn().context("cannot start the agent")
}

/// The memory of a process.
pub(super) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// A command of the administrator.
pub(super) struct AdminCommand {
    program: PathBuf,
    config: PathBuf,
}

/// A command of the administrator with this configuration.
pub(super) fn command(config: &Path) -> Result<AdminCommand> {
    Ok(AdminCommand { program: fleet_binary()?, config: config.to_owned() })
}

impl AdminCommand {
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&self.config).args(arguments);
        let output = tool::output(&mut command)?;
        if !output.status.success() {
            bail!("{}", tool::describe(&command, &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
