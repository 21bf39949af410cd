//! The service that is soaked, as a child of ours: started on a configuration of its own, sampled, and ended in good order.

use super::Sample;
use crate::{LoopVolume, longrun_binary, tool};
use anyhow::{Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A service of ours; killed when dropped.
pub(super) struct Service {
    child: Child,
    socket: PathBuf,
}

impl Service {
    /// Starts it for these volumes; what it needs, and what it logs, lies in `directory`.
    pub(super) fn start(directory: &Path, volumes: &[LoopVolume]) -> Result<Self> {
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

    /// What it uses now, by /proc, and how much waits in it, by itself.
    pub(super) fn sample(&mut self, begun: Instant) -> Result<Sample> {
        self.alive()?;
        let base = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(base.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let sample = Sample {
            seconds: begun.elapsed().as_secs(),
            resident_kib: field("VmRSS:"),
            files: fs::read_dir(base.join("fd"))?.count() as u64,
            threads: field("Threads:"),
            ..Sample::default()
        };
        // Asked after the look: the question opens a connection.
        let told = self.status()?;
        let number = |pointer: &str| told.as_ref()?.pointer(pointer)?.as_u64();
        Ok(Sample {
            queued: number("/queue"),
            to_be_mended: number("/mending/queued"),
            in_journal: number("/journal_files"),
            ..sample
        })
    }

    /// What `longrun status` shows; nothing when the service has no time to answer.
    fn status(&self) -> Result<Option<serde_json::Value>> {
        let mut command = Command::new(longrun_binary()?);
        command.args(["status", "--json", "--socket"]).arg(&self.socket);
        let output = tool::output(&mut command)?;
        Ok(if output.status.success() { Some(serde_json::from_slice(&output.stdout)?) } else { None })
    }

    /// Ends it, which it must do in good order.
    pub(super) fn stop(mut self) -> Result<()> {
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
