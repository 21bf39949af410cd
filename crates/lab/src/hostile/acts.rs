//! The operations on the volume and the service. Each one reverts itself: a frozen volume thaws and a stopped service
//! continues, even if the campaign is killed meanwhile.

use super::{PATIENCE, Scene, count_runways, start_service};
use crate::{Running, tool};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// When an act can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// While others use the volume.
    Mounted,
    /// While nobody else does.
    ComesAndGoes,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing: all work beside each other.
    Quiet,
    /// The volume is frozen.
    Freeze,
    /// The service is stopped for longer than leases live.
    Stop,
    /// Each step of a lease, and of what is asked of a file, takes longer than leases live.
    Stall,
    /// The service takes its time between asking for a path and using it: the user swaps what it leads to.
    StallPaths,
    /// The same for a pass.
    StallPathsOfPass,
    /// The service is stopped while the volume is frozen, and goes on after it.
    FreezeAndStop,
    /// The configuration is read again.
    Reload,
    /// The service is killed, and started again.
    Kill,
    /// The volume becomes read-only, and writable again.
    ReadOnly,
    /// The volume is unmounted, and mounted again.
    Unmount,
    /// The same, while a pass is at work and keeps what was unmounted.
    UnmountLazily,
}

impl Act {
    /// Those of a stage, each once, in a random order.
    pub(super) fn in_order(stage: Stage, without: &[String], rng: &mut fastrand::Rng) -> Vec<Self> {
        use Act::{
            Freeze, FreezeAndStop, Kill, Quiet, ReadOnly, Reload, Stall, StallPaths, StallPathsOfPass, Stop, Unmount,
            UnmountLazily,
        };
        let mut acts = match stage {
            Stage::Mounted => vec![
                Quiet,
                Freeze,
                Stop,
                Stall,
                Stall,
                Stall,
                StallPaths,
                StallPathsOfPass,
                FreezeAndStop,
                Reload,
                Kill,
            ],
            Stage::ComesAndGoes => vec![Quiet, Freeze, Stop, ReadOnly, Unmount, UnmountLazily, Kill],
        };
        acts.retain(|act| !without.contains(&format!("{act:?}")));
        rng.shuffle(&mut acts);
        acts
    }

    pub(super) fn perform(self, scene: &mut Scene<'_>, rng: &mut fastrand::Rng) -> Result<()> {
        let moment = Duration::from_millis(rng.u64(..1000));
        thread::sleep(moment);
        let long = Duration::from_millis(rng.u64(1200..2500));
        match self {
            Self::Quiet => thread::sleep(long),
            Self::Freeze => freeze(scene, long)?.wait(PATIENCE).map(drop)?,
            Self::Stop => stop(scene, long)?,
            Self::Stall => stall(scene, rng)?,
            Self::StallPaths => stall_paths(scene.service.id())?,
            Self::StallPathsOfPass => scene.pass.as_ref().map_or(Ok(()), |pass| stall_paths(pass.id()))?,
            Self::FreezeAndStop => {
                let frozen = freeze(scene, moment)?;
                stop(scene, moment + long)?;
                frozen.wait(PATIENCE)?;
            }
            Self::Reload => signal(scene, Signal::HUP)?,
            Self::Kill => kill(scene)?,
            Self::ReadOnly => scene.at_rest(read_only)?,
            Self::Unmount => scene.at_rest(|scene| {
                scene.volume.unmount()?;
                thread::sleep(moment);
                scene.volume.mount()
            })?,
            Self::UnmountLazily => unmount_lazily(scene)?,
        }
        Ok(())
    }
}

fn id(scene: &Scene<'_>) -> Result<Pid> {
    Pid::from_raw(i32::try_from(scene.service.id())?).context("the service has no number")
}

fn signal(scene: &Scene<'_>, signal: Signal) -> Result<()> {
    Ok(kill_process(id(scene)?, signal)?)
}

/// A process of its own freezes and thaws.
fn freeze(scene: &Scene<'_>, time: Duration) -> Result<Running> {
    let script = "fsfreeze --freeze \"$1\" && { sleep \"$2\"; fsfreeze --unfreeze \"$1\"; }";
    let mut command = Command::new("setsid");
    // A session of its own: Ctrl-C must not find it before it has thawed.
    command.args(["sh", "-c", script, "freeze"]).arg(scene.volume.mount_point()).arg(time.as_secs_f64().to_string());
    Running::start(&mut command)
}

fn stop(scene: &Scene<'_>, time: Duration) -> Result<()> {
    signal(scene, Signal::STOP)?;
    thread::sleep(time);
    signal(scene, Signal::CONT)
}

/// A tracer holds the service up before or behind calls that stand between taking a lease, using it, and giving it up.
fn stall(scene: &Scene<'_>, rng: &mut fastrand::Rng) -> Result<()> {
    const MICROSECONDS: u64 = 1_500_000;
    const CALLS: [&str; 8] = ["fcntl", "ioctl", "fstat", "statx", "ftruncate", "fallocate", "pwrite64", "utimensat"];
    let call = *rng.choice(CALLS.iter()).unwrap_or(&"fcntl");
    let side = *rng.choice(["delay_enter", "delay_exit"].iter()).unwrap_or(&"delay_exit");
    let (first, step) = (rng.u64(1..4), rng.u64(1..4));
    let inject = format!("inject={call}:{side}={MICROSECONDS}:when={first}+{step}");
    trace(scene.service.id(), call, &inject, Duration::from_micros(3 * MICROSECONDS))?;
    // A tracer that dies may leave its tracee stopped.
    signal(scene, Signal::CONT)
}

/// As long as a swap of the user's, again and again.
fn stall_paths(process: u32) -> Result<()> {
    let calls = "readlink,readlinkat";
    trace(process, calls, &format!("inject={calls}:delay_exit=3000"), Duration::from_secs(4))
}

/// Lets strace meddle with the calls of a process for some time, or until that ends.
fn trace(process: u32, calls: &str, inject: &str, time: Duration) -> Result<()> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", inject]);
    let mut tracer = Running::start(command.arg("-p").arg(process.to_string()))?;
    thread::sleep(time);
    let by_itself = tracer.has_ended()?;
    tracer.terminate()?;
    let finished = tracer.wait(PATIENCE).context("strace")?;
    // One that has ended, and is not waited for yet, has no program.
    let lives = fs::read_link(format!("/proc/{process}/exe")).is_ok();
    ensure!(!by_itself || !lives || finished.status.success(), "strace does not trace: {}", finished.stderr);
    Ok(())
}

fn kill(scene: &mut Scene<'_>) -> Result<()> {
    count_runways(&mut scene.service, &mut scene.report)?;
    scene.service.kill()?;
    scene.service = start_service(&scene.state, scene.volume)?;
    Ok(())
}

fn read_only(scene: &mut Scene<'_>) -> Result<()> {
    let mount = scene.volume.mount_point();
    let until = Instant::now() + PATIENCE;
    // Busy for as long as a file of it is open for writing: the service must let go.
    while let Err(error) = tool::run("mount", ["-o".as_ref(), "remount,ro".as_ref(), mount.as_os_str()]) {
        ensure!(Instant::now() < until, "the volume cannot become read-only: {error:#}");
        thread::sleep(Duration::from_millis(50));
    }
    scene.service.ask(PATIENCE, "that it is alive", |told| told.get("healthy").map(|_| ()))?;
    tool::run("mount", ["-o".as_ref(), "remount,rw".as_ref(), mount.as_os_str()]).map(drop)
}

/// What a pass has open stays there for it alone.
fn unmount_lazily(scene: &mut Scene<'_>) -> Result<()> {
    let pass = scene.pass.take();
    scene.at_rest(|scene| {
        let mount = scene.volume.mount_point();
        tool::run("umount", ["--lazy".as_ref(), mount.as_os_str()])?;
        if let Some(pass) = pass {
            // It may find its volume gone; it must end.
            pass.wait(PATIENCE).context("a pass whose volume was unmounted")?;
            scene.report.passes_ended += 1;
        }
        scene.volume.mount()
    })
}

/// Whoever opens a FIFO without care waits for ever.
pub(super) fn nobody_waits_at_a_fifo(process: u32) -> Result<()> {
    for task in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        let stack = fs::read_to_string(task.path().join("stack")).unwrap_or_default();
        let waits = ["wait_for_partner", "fifo_open"].iter().any(|function| stack.contains(function));
        ensure!(!waits, "a thread of the service waits at a FIFO of the user's:\n{stack}");
    }
    Ok(())
}
