//! Crash tests. An optimizer is interrupted at a random moment by a file-system shutdown that flushes nothing, by a
//! device that loses its power and its write cache, by kill -9, or by two of these. After journal recovery every file,
//! the file system and the amount of free space must be as before.

mod space;

use crate::oracle::{Dump, dump};
use crate::{FileSystemKind, LoopVolume, Optimizer, VolumeSpec, aged_directory, furnish, on_hard_disk, places};
use anyhow::{Context, Result, ensure};
use longrun_ageing::Recipe;
use longrun_layout::Bytes;
use longrun_sys::Shutdown;
use serde::Serialize;
use space::Space;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// So long a commit interval that only barriers commit: what lies between two of them is really at risk. XFS writes
/// its log each 30 s, which is longer than a run takes.
const fn mount_options(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Xfs => "",
        FileSystemKind::Ext4 | FileSystemKind::Btrfs => "commit=300",
    }
}

/// The seed of every aged image; the run's seed decides which of them is used.
const AGEING_SEED: u64 = 42;
/// An uninterrupted optimizer takes less, and one whose file system has been shut down gives up within.
const LIMIT: Duration = Duration::from_secs(600);

/// What to do.
#[derive(Clone, Debug)]
pub struct CrashSettings {
    /// The file system.
    pub kind: FileSystemKind,
    /// How many crashes.
    pub runs: u64,
    /// Seed of the first run; each further run has the next one.
    pub seed: u64,
    /// Size of the volumes in MiB.
    pub mebibytes: u64,
}

/// How a run is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The file system stops without flushing anything.
    Shutdown,
    /// The optimizer is killed.
    Kill,
    /// The optimizer is killed and a moment later the file system stops.
    KillThenShutdown,
    /// The power of the device goes: what has not been flushed is lost.
    Power,
    /// The optimizer is killed and a moment later the power goes.
    KillThenPower,
}

impl Cut {
    /// Those that the file system knows: btrfs has no shutdown.
    const fn all(kind: FileSystemKind, places: bool) -> &'static [Self] {
        match kind {
            // Files are placed on disks only, and what loses its power here is a file.
            FileSystemKind::Ext4 | FileSystemKind::Xfs if places => {
                &[Self::Shutdown, Self::Kill, Self::KillThenShutdown, Self::Shutdown]
            }
            FileSystemKind::Ext4 | FileSystemKind::Xfs => {
                &[Self::Shutdown, Self::Kill, Self::KillThenShutdown, Self::Power]
            }
            FileSystemKind::Btrfs => &[Self::Power, Self::Kill, Self::KillThenPower, Self::Power],
        }
    }

    const fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::KillThenShutdown | Self::KillThenPower)
    }

    const fn takes_power(self) -> bool {
        matches!(self, Self::Power | Self::KillThenPower)
    }
}

/// One crash, survived.
#[derive(Clone, Debug, Serialize)]
pub struct CrashRun {
    /// Its seed.
    pub seed: u64,
    /// The volume.
    pub recipe: Recipe,
    /// How it was cut off.
    pub cut: Cut,
    /// Seconds after the start; of an optimizer that places files by heat, after it began to do that.
    pub after_seconds: f64,
    /// Whether the optimizer was still at work.
    pub interrupted: bool,
    /// Excess fragments before and after.
    pub excess: (u64, u64),
    /// Files that begin elsewhere than before, of an optimizer that places files by heat: it has hardly anything else to do.
    pub placed: u64,
}

/// An aged image (unmounted: of a btrfs only one of it and its copies may be mounted), what is in it, and how long the
/// optimizer takes for it.
struct Base {
    volume: LoopVolume,
    before: Dump,
    space: Space,
    excess: u64,
    places: BTreeMap<PathBuf, Bytes>,
    /// What a cut comes within.
    work: Duration,
}

/// Crashes an optimizer repeatedly; `report` receives each run that was survived.
///
/// # Errors
/// The first run that was not, with the command that replays it.
pub fn crash(settings: &CrashSettings, optimizer: &Optimizer, report: &mut dyn FnMut(&CrashRun)) -> Result<()> {
    let mut bases = BTreeMap::new();
    for seed in settings.seed..settings.seed + settings.runs {
        let mut rng = fastrand::Rng::with_seed(seed);
        let recipe = *rng.choice(recipes(settings.kind, optimizer.places()).iter()).unwrap_or(&Recipe::Aged);
        let replay = format!(
            "replay with: longrun-lab crash --seed {seed} --runs 1 --filesystem {} --mebibytes {} --optimizer {}{}",
            settings.kind.name(),
            settings.mebibytes,
            optimizer.name().trim_start_matches("longrun "),
            optimizer.pace().map(|pace| format!(" --pace {pace}")).unwrap_or_default()
        );
        let base = match bases.entry(recipe) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(prepare(settings, recipe, optimizer).with_context(|| replay.clone())?),
        };
        let mut run = CrashRun {
            seed,
            recipe,
            cut: *rng.choice(Cut::all(settings.kind, optimizer.places()).iter()).unwrap_or(&Cut::Kill),
            after_seconds: rng.f64() * 1.05 * base.work.as_secs_f64(),
            interrupted: false,
            excess: (base.excess, 0),
            placed: 0,
        };
        one_run(base, optimizer, &mut run, &mut rng).with_context(|| format!("{run:?}\n{replay}"))?;
        report(&run);
    }
    Ok(())
}

/// The volumes to crash. ext4's allocator leaves enough to do of any; the others keep files whole that are written
/// in one go.
const fn recipes(kind: FileSystemKind, places: bool) -> [Recipe; 4] {
    match kind {
        // On the others too little is gained by placing files, so that none is placed.
        _ if places => [Recipe::Server; 4],
        FileSystemKind::Ext4 => [Recipe::Aged, Recipe::Server, Recipe::Office, Recipe::Git],
        FileSystemKind::Xfs | FileSystemKind::Btrfs => [Recipe::Aged, Recipe::Server, Recipe::Churn, Recipe::Churn],
    }
}

/// Ages and furnishes an image, and lets the optimizer run once undisturbed on a copy: the files must be as before
/// then, too.
fn prepare(settings: &CrashSettings, recipe: Recipe, optimizer: &Optimizer) -> Result<Base> {
    let spec = VolumeSpec::of(settings.kind, settings.mebibytes);
    let spec = match settings.kind {
        // No reserve for root: on volumes this small it would leave the optimizer next to nothing to work with.
        FileSystemKind::Ext4 => spec.mkfs(&["-b", "4096", "-m", "0"]),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => spec,
    };
    let spec = spec.mount(mount_options(settings.kind));
    let (volume, _) = LoopVolume::aged(&spec, recipe, AGEING_SEED)?;
    furnish(&volume, &aged_directory(&volume.mount_point())?, AGEING_SEED)?;
    if optimizer.places() {
        // So that nothing but placing is left to be cut off.
        Optimizer::longrun("files")?.run(&volume.mount_point(), LIMIT)?;
    }
    volume.remount()?;
    let before = dump(&volume.mount_point())?;
    let space = Space::of(&volume)?;
    let excess = crate::oracle::filefrag(&volume.mount_point())?.excess;
    let places = places(&volume.mount_point())?;
    volume.unmount()?;
    let copy = copy_for(optimizer, &volume)?;
    let finished = optimizer.run(&copy.mount_point(), LIMIT)?;
    let work = if optimizer.places() {
        finished.placing.with_context(|| format!("no file was placed: this proves nothing\n{}", finished.stdout))?
    } else {
        finished.elapsed
    };
    let base = Base { volume, before, space, excess, places, work };
    verify(&copy, &base, optimizer, false).context("after an undisturbed run")?;
    Ok(base)
}

/// A copy whose power stays.
fn copy_for(optimizer: &Optimizer, volume: &LoopVolume) -> Result<LoopVolume> {
    if optimizer.places() { on_hard_disk(volume) } else { volume.copy(mount_options(volume.kind())) }
}

fn one_run(base: &Base, optimizer: &Optimizer, run: &mut CrashRun, rng: &mut fastrand::Rng) -> Result<()> {
    let options = mount_options(base.volume.kind());
    let mut volume = if run.cut.takes_power() {
        base.volume.copy_behind_cache(options)?
    } else {
        copy_for(optimizer, &base.volume)?
    };
    let mut running = optimizer.start(&volume.mount_point())?;
    if optimizer.places() {
        running.wait_for_placing()?;
    }
    std::thread::sleep(Duration::from_secs_f64(run.after_seconds));
    run.interrupted = !running.has_ended()?;
    if run.cut.kills() {
        running.kill()?;
    }
    if run.cut.kills() && run.cut != Cut::Kill {
        std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
    }
    match run.cut {
        Cut::Kill => {}
        Cut::Power | Cut::KillThenPower => volume.cut_power()?,
        Cut::Shutdown | Cut::KillThenShutdown => {
            let root = File::open(volume.mount_point())?;
            longrun_sys::shutdown(&root, Shutdown::NoLogFlush).context("cannot shut the file system down")?;
        }
    }
    let finished = running.wait(LIMIT).context("the optimizer hangs after the crash")?;
    if run.cut.takes_power() { volume.restore_power() } else { volume.remount() }.context("after the crash")?;
    verify(&volume, base, optimizer, run.interrupted)?;
    run.excess.1 = crate::oracle::filefrag(&volume.mount_point())?.excess;
    if optimizer.places() {
        let now = places(&volume.mount_point())?;
        run.placed = now.iter().filter(|(path, place)| base.places.get(*path) != Some(place)).count() as u64;
    }
    if optimizer.is_ours() && finished.status.success() {
        success_was_true(&finished.stdout, run.excess.1)?;
    }
    Ok(())
}

/// A pass that reports success has committed what it tells of, whenever the volume is taken away: even in the moment
/// between its last commit and its end, when nothing is left that could fail.
fn success_was_true(report: &str, excess: u64) -> Result<()> {
    let told: serde_json::Value = serde_json::from_str(report)?;
    let told_excess = told["after"]["excess_fragments"].as_u64().context("a report without what is left")?;
    ensure!(
        told["after"]["unreadable"] == 0 && excess <= told_excess,
        "the optimizer reports success, but its result is not on the disk, which has {excess} excess \
         fragments:\n{report}"
    );
    Ok(())
}

/// Checks that content, properties, file system and space are as before.
fn verify(volume: &LoopVolume, base: &Base, optimizer: &Optimizer, interrupted: bool) -> Result<()> {
    optimizer.compare(&base.before, &dump(&volume.mount_point())?)?;
    volume.check()?;
    base.space.still_in(volume, interrupted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

    use super::success_was_true;

    #[test]
    fn success_is_believed_when_the_disk_holds_what_was_told() {
        let report = |excess: u64, unreadable: u64| {
            serde_json::json!({ "after": { "excess_fragments": excess, "unreadable": unreadable } }).to_string()
        };
        success_was_true(&report(13, 0), 13).unwrap();
        success_was_true(&report(3, 0), 4).unwrap_err();
        success_was_true(&report(3, 1), 3).unwrap_err();
        success_was_true("", 0).unwrap_err();
    }
}
