//! The optimizer under test as a child process: ours, or a peer, so that the tests themselves are proven on both.

use crate::oracle::{self, Dump, Entry};
use crate::{FileSystemKind, HotState, cleanup};
use anyhow::{Context, Result, bail};
use longrun_layout::Bytes;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(5);
/// Before the mode, in the name of an optimizer that places files by heat.
const PLACING: &str = "placing-";

/// A command that optimizes the volume whose mount point is its last argument.
#[derive(Clone, Debug)]
pub struct Optimizer {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    ours: bool,
    /// Files are placed by heat, which is made up for each run.
    places: bool,
}

impl Optimizer {
    /// What a file system's own tools offer for a whole volume, the one that puts files together first.
    #[must_use]
    pub fn peers(kind: FileSystemKind) -> Vec<Self> {
        let peer = |name: &str, program: &str, arguments: &[&str]| Self {
            name: name.to_owned(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            ours: false,
            places: false,
        };
        match kind {
            FileSystemKind::Ext4 => vec![peer("e4defrag", "e4defrag", &[])],
            FileSystemKind::Xfs => vec![peer("xfs_fsr", "xfs_fsr", &[])],
            FileSystemKind::Btrfs => vec![
                peer("btrfs-defragment", "btrfs", &["filesystem", "defragment", "-r"]),
                peer("btrfs-balance", "btrfs", &["balance", "start", "-d"]),
            ],
        }
    }

    /// Longrun in a mode: full, efficient or files.
    ///
    /// # Errors
    /// When the binary has not been built.
    pub fn longrun(mode: &str) -> Result<Self> {
        // Compared with others, and among other users of the same disk: nothing is waited for, and no service is asked.
        let arguments = ["optimize", "--alone", "--json", "--pace", "fast", "--mode", mode].map(OsString::from).into();
        Ok(Self { name: format!("longrun {mode}"), program: longrun_binary()?, arguments, ours: true, places: false })
    }

    /// Longrun in a mode, with files placed by heat at the end; on ext4 and XFS only.
    ///
    /// # Errors
    /// As [`Self::longrun`].
    pub fn longrun_placing(mode: &str) -> Result<Self> {
        let mut optimizer = Self::longrun(mode)?;
        optimizer.name = format!("longrun {PLACING}{mode}");
        optimizer.arguments.extend(["--placement".into(), "auto".into()]);
        Ok(Self { places: true, ..optimizer })
    }

    /// Whether files are placed by heat.
    #[must_use]
    pub fn places(&self) -> bool {
        self.places
    }

    /// Longrun giving free space back: it moves nothing, and is to change as little for those who use the files.
    ///
    /// # Errors
    /// As [`Self::longrun`].
    pub fn longrun_reclaiming() -> Result<Self> {
        let arguments = ["reclaim", "--json", "--pace", "fast"].map(OsString::from).into();
        Ok(Self {
            name: "longrun reclaim".to_owned(),
            program: longrun_binary()?,
            arguments,
            ours: true,
            places: false,
        })
    }

    /// Longrun in efficient mode with at most `budget` to move, called `name`.
    ///
    /// # Errors
    /// As [`Self::longrun`].
    pub fn longrun_within(budget: Bytes, name: &str) -> Result<Self> {
        let (mut optimizer, Bytes(bytes)) = (Self::longrun("efficient")?, budget);
        name.clone_into(&mut optimizer.name);
        optimizer.arguments.extend(["--budget".into(), bytes.to_string().into()]);
        Ok(optimizer)
    }

    /// The same at another pace than fast.
    ///
    /// # Errors
    /// When it is a peer, which knows none.
    pub fn at_pace(mut self, pace: &str) -> Result<Self> {
        let at = self.pace_at().with_context(|| format!("{} knows no pace", self.name))?;
        self.arguments.splice(at..=at, [pace.into()]);
        Ok(self)
    }

    /// How much it gives way to others.
    #[must_use]
    pub fn pace(&self) -> Option<&str> {
        self.arguments.get(self.pace_at()?)?.to_str()
    }

    fn pace_at(&self) -> Option<usize> {
        self.arguments.iter().position(|argument| argument == "--pace").map(|option| option + 1)
    }

    /// By name: a peer, a mode of Longrun, or `placing-` and a mode.
    ///
    /// # Errors
    /// As [`Self::longrun`].
    pub fn by_name(name: &str) -> Result<Self> {
        let peer = FileSystemKind::ALL.into_iter().flat_map(Self::peers).find(|peer| peer.name == name);
        match (peer, name.strip_prefix(PLACING)) {
            (Some(peer), _) => Ok(peer),
            (None, Some(mode)) => Self::longrun_placing(mode),
            (None, None) => Self::longrun(name),
        }
    }

    /// Whether it is ours: held to what we promise. Peers make donors in the directories of the files, whose times
    /// change, and do not tell by their status that they failed.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Compares a tree before and after it has run.
    ///
    /// # Errors
    /// The first differences.
    pub fn compare(&self, before: &Dump, after: &Dump) -> Result<()> {
        if self.ours {
            return oracle::compare(before, after);
        }
        let [before, after] = [before, after].map(|dump| {
            let mut dump = dump.clone();
            dump.values_mut().for_each(Entry::forget_directory_times);
            dump
        });
        oracle::compare(&before, &after)
    }

    /// What to call it in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The command line without the target, for reports.
    #[must_use]
    pub fn command_line(&self) -> String {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        self.arguments.iter().fold(program.into_owned(), |line, a| format!("{line} {}", a.to_string_lossy()))
    }

    /// Starts it on a mounted volume.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, mount_point: &Path) -> Result<Running> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(mount_point);
        let state = self.places.then(|| HotState::of(mount_point)).transpose().context("cannot make hot files up")?;
        if let Some(state) = &state {
            command.arg("--state").arg(state.directory());
        }
        let mut running = Running::start(&mut command)?;
        running.state = state;
        Ok(running)
    }

    /// Runs it to its end, which must be success if it is ours: a peer may fail at some files and go on with the others.
    ///
    /// # Errors
    /// When ours fails, or it takes longer than `limit`.
    pub fn run(&self, mount_point: &Path, limit: Duration) -> Result<Finished> {
        let finished = self.start(mount_point)?.wait(limit)?;
        if self.ours && !finished.status.success() {
            bail!("{} ended with {}:\n{}\n{}", self.name, finished.status, finished.stdout, finished.stderr);
        }
        Ok(finished)
    }
}

/// The `longrun` binary: `LONGRUN_BIN`, or the one built beside this program.
///
/// # Errors
/// When there is none.
pub fn longrun_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LONGRUN_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    own.ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("longrun"))
        .find(|path| path.is_file())
        .with_context(|| format!("no longrun beside {}: build it with cargo build -p longrun-cli", own.display()))
}

/// A child that is killed when this is dropped, and on every signal that ends us.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    output: [File; 2],
    reaped: bool,
    peak_memory: u64,
    state: Option<HotState>,
    placing_since: Option<Instant>,
}

/// A program that needs longer until it listens to signals, on a machine however busy, does not listen at all.
const LISTENS: Duration = Duration::from_secs(30);

/// Whether a process has a handler for the signal.
fn catches(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & 1 << (signal.as_raw() - 1) != 0)
}

/// How a child ended.
#[derive(Debug)]
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// From start to end.
    pub elapsed: Duration,
    /// From when it began to place files by heat to its end, if it did.
    pub placing: Option<Duration>,
    /// The most memory that its process had, in bytes, as far as it could be seen.
    pub peak_memory: u64,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Running {
    /// Starts a command; what it prints goes to files, so that it never waits for us.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let output = [tempfile::tempfile()?, tempfile::tempfile()?];
        let [stdout, stderr] = &output;
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        cleanup::child_started(Pid::from_child(&child));
        Ok(Self {
            child,
            started: Instant::now(),
            output,
            reaped: false,
            peak_memory: 0,
            state: None,
            placing_since: None,
        })
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// The system's.
    pub fn has_ended(&mut self) -> Result<bool> {
        if self.placing_since.is_none() && self.state.as_ref().is_some_and(HotState::is_placing) {
            self.placing_since = Some(Instant::now());
        }
        let ended = self.child.try_wait()?.is_some();
        if ended && !self.reaped {
            self.forget();
        }
        Ok(ended)
    }

    /// Waits until it begins to place files by heat, or has ended without.
    ///
    /// # Errors
    /// The system's.
    pub fn wait_for_placing(&mut self) -> Result<()> {
        while !self.has_ended()? && self.placing_since.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Kills it as nothing can prevent.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<()> {
        if !self.has_ended()? {
            rustix::process::kill_process(Pid::from_child(&self.child), Signal::KILL)?;
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM), as soon as it listens: one that has hardly begun would be ended by the signal itself.
    ///
    /// # Errors
    /// The system's.
    pub fn terminate(&mut self) -> Result<()> {
        let until = Instant::now() + LISTENS;
        while !self.has_ended()? && !catches(self.id(), Signal::TERM) && Instant::now() < until {
            thread::sleep(POLL);
        }
        if !self.has_ended()? {
            rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it takes longer than `limit`: it is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<Finished> {
        let deadline = Instant::now() + limit;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                bail!("the child did not end within {} s", limit.as_secs());
            }
            self.look_at_memory();
            std::thread::sleep(POLL);
        }
        let elapsed = self.started.elapsed();
        let placing = self.placing_since.map(|since| since.elapsed());
        let status = self.child.wait()?;
        let [stdout, stderr] = &mut self.output;
        let (stdout, stderr) = (read(stdout)?, read(stderr)?);
        Ok(Finished { status, elapsed, placing, peak_memory: self.peak_memory, stdout, stderr })
    }

    /// The kernel keeps the maximum, so looking now and then is enough.
    fn look_at_memory(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let peak =
            status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        self.peak_memory = self.peak_memory.max(peak.unwrap_or(0) << 10);
    }

    fn forget(&mut self) {
        self.reaped = true;
        cleanup::child_ended(Pid::from_child(&self.child));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // Both fail only when it has ended by itself meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.forget();
        }
    }
}

fn read(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_runs_at_another_pace_and_peers_at_none() {
        let arguments = ["optimize", "--pace", "fast", "--mode", "full"].map(OsString::from).into();
        let ours =
            Optimizer { name: "longrun full".into(), program: "longrun".into(), arguments, ours: true, places: false };
        assert_eq!(ours.pace(), Some("fast"));
        let balanced = ours.at_pace("balanced").unwrap();
        assert_eq!(balanced.command_line(), "longrun optimize --pace balanced --mode full");
        for peer in FileSystemKind::ALL.into_iter().flat_map(Optimizer::peers) {
            assert!(peer.pace().is_none() && peer.at_pace("balanced").is_err());
        }
    }
}
