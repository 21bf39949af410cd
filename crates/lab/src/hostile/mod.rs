//! Hostile users and volumes that do not respond. The service and repeated passes work while an unprivileged user
//! replaces files and directories by links and FIFOs, imitates tools, and opens many connections to the socket.
//! Meanwhile the volume is frozen, read-only or unmounted, and the service is stopped at the worst moments, killed,
//! and started again.
//!
//! Owns the requirements: no byte is lost, nothing hangs, and nothing outside the volume is opened for the user. Each
//! failure is reported with the command that repeats it from the same seed. The operations are limited and end by
//! themselves, even if the campaign is killed.

mod acts;
mod judges;
mod outside;
mod prey;
mod user;
mod vanishing;

pub use judges::Judge;
pub use user::{USER_COMMAND, run_user};

use crate::service::{Kernel, Service};
use crate::{FileSystemKind, LoopVolume, Medium, Optimizer, VolumeSpec, cleanup};
use acts::{Act, Stage};
use anyhow::{Context, Result, ensure};
use judges::Judges;
use outside::Outside;
use prey::Writer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use user::User;

const MEBIBYTES: u64 = 2048;
const WRITERS: usize = 8;
/// How often a device vanishes in the end.
const VANISHES: u64 = 2;
/// What answers at all answers within this, on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds after which the kernel breaks a lease during the campaign: shorter than the service is stopped.
const LEASE_BREAK: &str = "1";
const LEASE_BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";

/// What to do.
#[derive(Clone, Debug)]
pub struct HostileSettings {
    /// On which file system.
    pub kind: FileSystemKind,
    /// On which medium.
    pub medium: Medium,
    /// Seed of everything random.
    pub seed: u64,
    /// For how long; half of it beside the judges, half with the volume coming and going.
    pub time: Duration,
    /// Foreign programs that use the volume and check what they read.
    pub judges: Vec<Judge>,
    /// Acts and mischiefs that are left out, by the names that the report has: to find out which of them does harm.
    pub without: Vec<String>,
}

/// The counts of a campaign. There is a report only if nothing was lost, nothing hung, and no privilege was gained.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostileReport {
    /// Bytes that differ from what was written.
    pub bytes_wrong: u64,
    /// Waits that did not end in time.
    pub hangs: u64,
    /// Times that something outside the volume was opened for the user.
    pub privileges_gained: u64,
    /// Files of the writers.
    pub files: u64,
    /// Appends to them.
    pub appends: u64,
    /// What the user without privileges did.
    pub by_user: BTreeMap<String, u64>,
    /// What was done to the volume and the service.
    pub acts: BTreeMap<String, u64>,
    /// Passes of the optimizer that came to their end, and that an act ended.
    pub passes: u64,
    /// The latter.
    pub passes_ended: u64,
    /// Runways granted.
    pub grants: u64,
    /// Bytes given back.
    pub given_back: u64,
    /// Runs of the foreign judges.
    pub judged: BTreeMap<String, u64>,
}

/// Runs the campaign on a volume of its own.
///
/// # Errors
/// The first thing that does not hold, with the command that replays it.
pub fn hostile(settings: &HostileSettings) -> Result<HostileReport> {
    let HostileSettings { kind, medium, seed, time, without, .. } = settings;
    run(settings).with_context(|| {
        format!(
            "replay with: longrun-lab hostile --filesystem {} --medium {} --seed {seed} --seconds {}{}",
            kind.name(),
            medium.name(),
            time.as_secs(),
            without.iter().map(|name| format!(" --without {name}")).collect::<String>()
        )
    })
}

/// What the acts work on.
struct Scene<'a> {
    volume: &'a LoopVolume,
    state: PathBuf,
    service: Service,
    writers: &'a [Mutex<Writer>],
    user: User,
    outside: &'a Outside,
    pass: Option<crate::Running>,
    report: HostileReport,
}

fn run(settings: &HostileSettings) -> Result<HostileReport> {
    let volume = LoopVolume::create(&VolumeSpec::of(settings.kind, MEBIBYTES).on(settings.medium))?;
    // A user must get to the mount point.
    let home = volume.mount_point().parent().context("the volume has no directory")?.to_owned();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o711))?;
    let state = tempfile::tempdir()?;
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755))?;
    let _lease = cleanup::Setting::change(LEASE_BREAK_TIME.as_ref(), LEASE_BREAK)?;
    let prey = volume.mount_point().join("prey");
    let writers = Writer::create(&prey, WRITERS, settings.seed)?;
    let outside = Outside::create()?;
    let service = start_service(state.path(), &volume)?;
    let user = User::start(&prey, outside.path(), service.socket(), settings)?;
    let mut scene = Scene {
        volume: &volume,
        state: state.path().to_owned(),
        service,
        writers: &writers,
        user,
        outside: &outside,
        pass: None,
        report: HostileReport { files: writers.len() as u64, ..HostileReport::default() },
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..)
            .zip(&writers)
            .map(|(number, writer)| {
                let stop = &stop;
                scope.spawn(move || write(writer, settings.seed.wrapping_mul(1000) + number, stop))
            })
            .collect();
        let acted = act(settings, &mut scene);
        stop.store(true, Ordering::SeqCst);
        let written: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        acted.with_context(|| format!("the service says:\n{}", last_lines(&scene.service.log())))?;
        for each in written {
            scene.report.appends += each.map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    let Scene { mut service, user, pass, mut report, .. } = scene;
    if let Some(pass) = pass {
        pass.wait(PATIENCE).context("a pass does not end")?;
    }
    report.by_user = user.end()?;
    count_runways(&mut service, &mut report)?;
    service.stop()?;
    verify(&volume, &writers)?;
    outside.verify()?;
    for round in 0..VANISHES {
        vanishing::vanish(settings, settings.seed.wrapping_add(round)).context("a device that vanishes")?;
        *report.acts.entry("DeviceVanishes".to_owned()).or_insert(0) += 1;
    }
    Ok(report)
}

/// The service, which takes back what is closed as soon as it may.
fn start_service(state: &Path, volume: &LoopVolume) -> Result<Service> {
    Service::start_with(Kernel::AsItIs, "settle_after = \"100ms\"", state, std::slice::from_ref(volume))
}

/// One writer until `stop`; its appends.
fn write(writer: &Mutex<Writer>, seed: u64, stop: &AtomicBool) -> Result<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut appends = 0;
    while !stop.load(Ordering::SeqCst) {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        appends += u64::from(writer.step(&mut rng)?);
        // What is closed is left often enough for long enough for the service to take the rest back.
        let pause = if writer.is_closed() && rng.bool() { rng.u64(90..400) } else { rng.u64(..4) };
        drop(writer);
        std::thread::sleep(Duration::from_millis(pause));
    }
    Ok(appends)
}

/// Act after act: beside the judges what leaves the volume mounted, then everything.
fn act(settings: &HostileSettings, scene: &mut Scene<'_>) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(settings.seed);
    for stage in [Stage::Mounted, Stage::ComesAndGoes] {
        let mut judges = Judges::start(
            match stage {
                Stage::Mounted => &settings.judges,
                Stage::ComesAndGoes => &[],
            },
            &scene.volume.mount_point(),
            settings.seed,
        )?;
        let begun = Instant::now();
        let mut acts = Act::in_order(stage, &settings.without, &mut rng).into_iter();
        // Each at least once, however slow the machine is.
        while acts.len() > 0 || begun.elapsed() < settings.time / 2 {
            let Some(act) = acts.next() else {
                acts = Act::in_order(stage, &settings.without, &mut rng).into_iter();
                continue;
            };
            scene.keep_optimizing()?;
            act.perform(scene, &mut rng).with_context(|| format!("{act:?}"))?;
            *scene.report.acts.entry(format!("{act:?}")).or_insert(0) += 1;
            scene.inspect().with_context(|| format!("after {act:?}"))?;
            judges.look()?;
        }
        scene.report.judged.extend(judges.end()?);
    }
    Ok(())
}

impl Scene<'_> {
    /// Starts the next pass when there is none; looks at how the last ended.
    fn keep_optimizing(&mut self) -> Result<()> {
        if let Some(pass) = &mut self.pass {
            if !pass.has_ended()? {
                return Ok(());
            }
            if let Some(pass) = self.pass.take() {
                let finished = pass.wait(PATIENCE)?;
                let yields = ["needed the free space", "too little free space"];
                let yielded = yields.iter().any(|reason| finished.stderr.contains(reason));
                ensure!(
                    finished.status.success() || yielded,
                    "a pass ended with {}:\n{}",
                    finished.status,
                    finished.stderr
                );
                self.report.passes += 1;
            }
        }
        self.pass = Some(Optimizer::longrun("full")?.start(&self.volume.mount_point())?);
        Ok(())
    }

    /// Asks a pass that is at work to end, which it must.
    fn end_pass(&mut self) -> Result<()> {
        if let Some(mut pass) = self.pass.take() {
            pass.terminate()?;
            let finished = pass.wait(PATIENCE).context("a pass that is asked to end")?;
            let code = finished.status.code();
            ensure!(
                matches!(code, Some(0 | 130)),
                "a pass that was asked to end ended with {}:\n{}",
                finished.status,
                finished.stderr
            );
            self.report.passes_ended += 1;
        }
        Ok(())
    }

    /// The service answers, no thread of it waits at a FIFO, and nothing outside has been opened.
    fn inspect(&mut self) -> Result<()> {
        self.service.ask(PATIENCE, "that it is alive", |told| told.get("healthy").map(|_| ()))?;
        acts::nobody_waits_at_a_fifo(self.service.id())?;
        self.outside.verify()
    }

    /// With all files closed and the user at rest: what can be unmounted.
    fn at_rest<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.end_pass()?;
        self.user.rest()?;
        let mut writers: Vec<_> =
            self.writers.iter().map(|writer| writer.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        writers.iter_mut().for_each(|writer| writer.close());
        let done = act(self)?;
        drop(writers);
        self.user.go_on()?;
        Ok(done)
    }
}

fn count_runways(service: &mut Service, report: &mut HostileReport) -> Result<()> {
    let sum = |told: &serde_json::Value, what: &str| -> Option<u64> {
        let volumes = told.get("volumes")?.as_array()?.iter();
        Some(volumes.filter_map(|volume| volume.get("prevented")?.get(what)?.as_u64()).sum())
    };
    let told =
        service.ask(PATIENCE, "what it did", |told| Some((sum(told, "grants")?, sum(told, "given_back_bytes")?)))?;
    report.grants += told.0;
    report.given_back += told.1;
    Ok(())
}

fn verify(volume: &LoopVolume, writers: &[Mutex<Writer>]) -> Result<()> {
    let mut writers: Vec<_> =
        writers.iter().map(|writer| writer.lock().unwrap_or_else(PoisonError::into_inner)).collect();
    writers.iter().try_for_each(|writer| writer.verify().context("from memory"))?;
    writers.iter_mut().for_each(|writer| writer.close());
    volume.remount()?;
    writers.iter().try_for_each(|writer| writer.verify().context("from the device"))?;
    volume.check()
}

fn last_lines(log: &str) -> String {
    const LINES: usize = 20;
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}
