//! Prevention is killed under load, at random moments: after the next start nothing lies behind the end of any file that was
//! not there before, and not a byte is wrong.
//!
//! The program is the one that is shipped, with its sensor.

use crate::{FileSystemKind, LoopVolume, VolumeSpec, bytes_beyond_the_end, cleanup, longrun_binary};
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEBIBYTES: u64 = 4096;
const WRITERS: u64 = 6;
const CHUNK: usize = 64 << 10;
const BYTE: u8 = 0x5a;
/// Preallocated by its owner before anything begins: it has to be there at the end.
const OWN: &str = "own";
const OWN_BYTES: u64 = 4 << 20;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct RunwayKillsSettings {
    /// On which file system.
    pub kind: FileSystemKind,
    /// How many kills.
    pub runs: u64,
    /// Of everything random.
    pub seed: u64,
}

/// What happened; nothing was left, and nothing was wrong.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunwayKillsReport {
    /// On which file system.
    pub filesystem: &'static str,
    /// Times that it was killed.
    pub kills: u64,
    /// Kills that left something behind the end of files.
    pub left_something: u64,
    /// What they left altogether, in bytes; after the next start it was gone.
    pub left_bytes: u64,
    /// Files that were looked at.
    pub files: u64,
}

/// Kills prevention again and again.
///
/// # Errors
/// The first file that has something behind its end, or a wrong byte, with the command that replays it.
pub fn runway_kills(settings: &RunwayKillsSettings) -> Result<RunwayKillsReport> {
    let RunwayKillsSettings { kind, runs, seed } = *settings;
    let name = kind.name();
    run(settings)
        .with_context(|| format!("try again with: longrun-lab runway-kills --fs {name} --runs {runs} --seed {seed}"))
}

fn run(settings: &RunwayKillsSettings) -> Result<RunwayKillsReport> {
    let volume = LoopVolume::create(&VolumeSpec::of(settings.kind, MEBIBYTES))?;
    let (point, state) = (volume.mount_point(), tempfile::tempdir()?);
    let own = File::create_new(point.join(OWN))?;
    own.write_all_at(&[BYTE; CHUNK], 0)?;
    longrun_sys::allocate(&own, ByteRange { start: Bytes(CHUNK as u64), length: Bytes(OWN_BYTES) })?;
    drop(own);
    let before = bytes_beyond_the_end(&point.join(OWN))?;
    let mut rng = fastrand::Rng::with_seed(settings.seed);
    let mut report = RunwayKillsReport { filesystem: settings.kind.name(), ..RunwayKillsReport::default() };
    for kill in 0..settings.runs {
        let load = point.join("load");
        fs::create_dir(&load)?;
        let prevent = Prevent::start(&point, state.path())?;
        let lived = Duration::from_millis(rng.u64(20..900));
        under_load(&load, rng.u64(..), || {
            std::thread::sleep(lived);
            prevent.end(Signal::KILL)
        })?;
        let left = beyond(&load)?;
        report.kills += 1;
        report.left_something += u64::from(left > 0);
        report.left_bytes += left;
        let prevent = Prevent::start(&point, state.path())?;
        for entry in fs::read_dir(&load)? {
            let path = entry?.path();
            let beyond = bytes_beyond_the_end(&path)?;
            ensure!(beyond == 0, "kill {kill}, after {lived:?}: {beyond} bytes behind the end of {}", path.display());
            let wrong = fs::read(&path)?.iter().position(|byte| *byte != BYTE);
            ensure!(wrong.is_none(), "kill {kill}: byte {wrong:?} of {} is wrong", path.display());
            report.files += 1;
        }
        let now = bytes_beyond_the_end(&point.join(OWN))?;
        ensure!(now == before, "kill {kill}: of what the owner preallocated, {now} of {before} bytes are left");
        prevent.end(Signal::TERM)?;
        fs::remove_dir_all(&load)?;
    }
    volume.check()?;
    Ok(report)
}

fn beyond(directory: &Path) -> Result<u64> {
    fs::read_dir(directory)?.map(|entry| bytes_beyond_the_end(&entry?.path())).sum()
}

/// Files grow beside each other, some are closed and others begun, for as long as `work` takes.
fn under_load(directory: &Path, seed: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || write(directory, writer, seed.wrapping_add(writer), stop))
            })
            .collect();
        let result = work();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked")).flatten()?;
        }
        result
    })
}

/// File after file, past the cache or synchronously, until it is told to stop.
fn write(directory: &Path, writer: u64, seed: u64, stop: &AtomicBool) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let memory = vec![BYTE; CHUNK + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let chunk = memory.get(start..start + CHUNK).context("an aligned chunk")?;
    for number in 0_u64.. {
        let flags = if rng.bool() { longrun_sys::OFlags::DIRECT } else { longrun_sys::OFlags::DSYNC };
        let path = directory.join(format!("{writer}.{number}"));
        let file = File::options().write(true).create_new(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        for at in 0..rng.u64(16..640) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            file.write_all_at(chunk, at * CHUNK as u64)?;
        }
    }
    Ok(())
}

/// `longrun prevent`, at work.
struct Prevent {
    child: Child,
}

impl Prevent {
    fn start(point: &Path, state: &Path) -> Result<Self> {
        let mut command = Command::new(longrun_binary()?);
        command.arg("prevent").arg(point).args(["--json", "--state"]).arg(state).stdout(Stdio::piped());
        let child = command.spawn().context("starting longrun prevent")?;
        cleanup::child_started(Pid::from_child(&child));
        let mut prevent = Self { child };
        let mut line = String::new();
        BufReader::new(prevent.child.stdout.as_mut().context("its output")?).read_line(&mut line)?;
        ensure!(line.contains("\"ready\":true"), "longrun prevent is not ready: {line}");
        Ok(prevent)
    }

    fn end(mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        // What it says at the end must not hold it up.
        let mut output = self.child.stdout.take().context("its output")?;
        std::io::copy(&mut output, &mut std::io::sink())?;
        let status = self.child.wait()?;
        cleanup::child_ended(Pid::from_child(&self.child));
        ensure!(signal == Signal::KILL || status.success(), "longrun prevent: {status}");
        Ok(())
    }
}

impl Drop for Prevent {
    fn drop(&mut self) {
        // Only where an error came before the end; otherwise it has been waited for, and both do nothing.
        _ = self.child.kill();
        _ = self.child.wait();
        cleanup::child_ended(Pid::from_child(&self.child));
    }
}
