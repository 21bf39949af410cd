//! The service as a child process: started with a configuration of its own, queried, and stopped in good order.

use crate::{LoopVolume, longrun_binary, tool};
use anyhow::{Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What the service needs to end is less, on a machine however busy.
const END: Duration = Duration::from_secs(120);

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

/// What the kernel lets a service do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// All that it can.
    AsItIs,
    /// It describes none of its types (BTF), so that no BPF program of ours can be loaded.
    WithoutBtf,
}

impl Kernel {
    /// The command that starts `program` there. The service keeps the process number of the command.
    fn command(self, program: &Path) -> Command {
        match self {
            Self::AsItIs => Command::new(program),
            Self::WithoutBtf => {
                let hide = "[ ! -e /sys/kernel/btf ] || mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
                let mut command = Command::new("unshare");
                // Volumes that are mounted later must still be seen.
                command.args(["--mount", "--propagation", "slave", "sh", "-c", hide]).arg(program);
                command
            }
        }
    }
}

/// A service of ours; killed when dropped.
pub(crate) struct Service {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Service {
    /// Starts it for these volumes; what it needs, and what it logs, lies in `directory`.
    pub(crate) fn start(directory: &Path, volumes: &[LoopVolume]) -> Result<Self> {
        Self::start_with(Kernel::AsItIs, "", directory, volumes)
    }

    /// As [`Self::start`], on a kernel that may be restricted, and with settings of the service itself.
    pub(crate) fn start_with(kernel: Kernel, settings: &str, directory: &Path, volumes: &[LoopVolume]) -> Result<Self> {
        let rule = |volume: &LoopVolume| {
            let mount = volume.mount_point();
            format!("[[volume]]\nmount = {mount:?}\nenabled = true\nmending_quiet = \"1s\"\npace = \"fast\"\n")
        };
        let rules: String = volumes.iter().map(rule).collect();
        let config = directory.join("longrun.toml");
        fs::write(&config, format!("[service]\n{settings}\n[defaults]\nenabled = false\n{rules}"))?;
        let socket = directory.join("socket");
        // One that was killed leaves it behind: then its successor would seem to listen.
        _ = fs::remove_file(&socket);
        let mut command = kernel.command(&longrun_binary()?);
        command.arg("daemon").arg("--config").arg(config).arg("--socket").arg(&socket);
        command.arg("--state-directory").arg(directory.join("state")).stdin(Stdio::null());
        let log = directory.join("log");
        command.stderr(File::create(&log)?);
        // A laboratory that is killed leaves no service behind.
        longrun_sys::end_with_us(&mut command);
        let mut service = Self { child: command.spawn()?, socket, log };
        let until = Instant::now() + Duration::from_secs(60);
        // The socket is there before anybody listens at it.
        while UnixStream::connect(&service.socket).is_err() {
            service.alive()?;
            ensure!(Instant::now() < until, "the service does not begin to listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(service)
    }

    fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the service ended: {status}\n{}", self.log());
        }
        Ok(())
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
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

    /// Asks it for its status until `wanted` finds something there.
    pub(crate) fn ask<T>(
        &mut self,
        patience: Duration,
        what: &str,
        wanted: impl Fn(&serde_json::Value) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + patience;
        loop {
            self.alive()?;
            let told = self.status()?;
            if let Some(found) = told.as_ref().and_then(&wanted) {
                return Ok(found);
            }
            ensure!(Instant::now() < until, "the service does not show {what} within {patience:?}: {told:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, as nothing can prevent.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it, which it must do in good order and in time.
    pub(crate) fn stop(mut self) -> Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let until = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "the service does not end within {END:?}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
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
