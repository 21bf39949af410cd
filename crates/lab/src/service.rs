//! The service as a child of ours: started on a configuration of its own, looked at, and ended in good order.

use crate::{LoopVolume, longrun_binary, tool};
use anyhow::{Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a process uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Memory.
    pub(crate) resident_kib: u64,
    /// Open files.
    pub(crate) files: u64,
    /// Threads.
    pub(crate) threads: u64,
}

/// A service of ours; killed when dropped.
pub(crate) struct Service {
    child: Child,
    socket: PathBuf,
}

impl Service {
    /// Starts it for these volumes; what it needs, and what it logs, lies in `directory`.
    pub(crate) fn start(directory: &Path, volumes: &[LoopVolume]) -> Result<Self> {
        let rules: String = volumes
            .iter()
            .map(|volume| {
                format!(
                    "[[volume]]\nmount = {:?}\nenabled = true\nmending_quiet = \"1s\"\npace = \"fast\"\n",
                    volume.mount_point()
                )
            })
            .collect();
        let config = directory.join("longrun.toml");
        fs::write(&config, format!("[defaults]\nenabled = false\n{rules}"))?;
        let socket = directory.join("socket");
        let mut command = Command::new(longrun_binary()?);
        command.arg("daemon").arg("--config").arg(config).arg("--socket").arg(&socket);
        command.arg("--state-directory").arg(directory.join("state")).stdin(Stdio::null());
        command.stderr(File::create(directory.join("log"))?);
        // A laboratory that is killed leaves no service behind.
        longrun_sys::end_with_us(&mut command);
        let mut service = Self { child: command.spawn()?, socket };
        let until = Instant::now() + Duration::from_secs(60);
        while !service.socket.exists() {
            service.alive()?;
            ensure!(Instant::now() < until, "the service does not begin to listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(service)
    }

    fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the service ended: {status}");
        }
        Ok(())
    }

    /// What it uses now, by /proc.
    pub(crate) fn usage(&mut self) -> Result<Use> {
        self.alive()?;
        let base = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(base.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        Ok(Use {
            resident_kib: field("VmRSS:"),
            files: fs::read_dir(base.join("fd"))?.count() as u64,
            threads: field("Threads:"),
        })
    }

    /// What `longrun status` shows; nothing when the service has no time to answer.
    pub(crate) fn status(&self) -> Result<Option<serde_json::Value>> {
        let mut command = Command::new(longrun_binary()?);
        command.args(["status", "--json", "--socket"]).arg(&self.socket);
        let output = tool::output(&mut command)?;
        Ok(if output.status.success() { Some(serde_json::from_slice(&output.stdout)?) } else { None })
    }

    /// Ends it, which it must do in good order.
    pub(crate) fn stop(mut self) -> Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the service ended with {status}");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
