//! Crashes: an optimizer is cut off at a random moment by a file-system shutdown that flushes nothing, by kill −9, or by
//! both; after journal recovery every file, the file system and the amount of free space must be as before.

use crate::oracle::{Dump, allocated_blocks, dump, e2freefrag};
use crate::{FileSystemKind, LoopVolume, Optimizer, VolumeSpec};
use anyhow::{Context, Result, ensure};
use longrun_ageing::Recipe;
use longrun_sys::Shutdown;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::time::Duration;

/// So long a commit interval that only barriers commit: what lies between two of them is really at risk. XFS writes its log
/// each 30 s, which is longer than a run takes.
const fn mount_options(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Ext4 => "commit=300",
        FileSystemKind::Xfs => "",
        FileSystemKind::Btrfs => "commit=300",
    }
}

/// Blocks that the file system may have turned to its own use: on XFS inodes of nameless files come in chunks that stay.
const fn tolerance(kind: FileSystemKind) -> u64 {
    match kind {
        FileSystemKind::Ext4 => 0,
        FileSystemKind::Xfs | FileSystemKind::Btrfs => 64,
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
    /// The file system stops without flushing anything: a power cut.
    Shutdown,
    /// The optimizer is killed.
    Kill,
    /// The optimizer is killed and a moment later the power goes.
    KillThenShutdown,
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
    /// Seconds after the start.
    pub after_seconds: f64,
    /// Whether the optimizer was still at work.
    pub interrupted: bool,
    /// Excess fragments before and after.
    pub excess: (u64, u64),
}

/// An aged image, what is in it, and how long the optimizer takes for it.
struct Base {
    volume: LoopVolume,
    before: Dump,
    blocks: u64,
    excess: u64,
    full_run: Duration,
}

/// Crashes an optimizer again and again; `report` is told about each run that was survived.
///
/// # Errors
/// The first run that was not, with the command that replays it.
pub fn crash(settings: &CrashSettings, optimizer: &Optimizer, report: &mut dyn FnMut(&CrashRun)) -> Result<()> {
    let mut bases = BTreeMap::new();
    for seed in settings.seed..settings.seed + settings.runs {
        let mut rng = fastrand::Rng::with_seed(seed);
        let recipe = *rng.choice(recipes(settings.kind).iter()).unwrap_or(&Recipe::Aged);
        let replay = format!(
            "replay with: longrun-lab crash --seed {seed} --runs 1 --filesystem {} --mebibytes {} --optimizer {}",
            settings.kind.name(),
            settings.mebibytes,
            optimizer.name().trim_start_matches("longrun ")
        );
        let base = match bases.entry(recipe) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(prepare(settings, recipe, optimizer).with_context(|| replay.clone())?),
        };
        let mut run = CrashRun {
            seed,
            recipe,
            cut: *rng.choice([Cut::Shutdown, Cut::Kill, Cut::KillThenShutdown].iter()).unwrap_or(&Cut::Shutdown),
            after_seconds: rng.f64() * 1.05 * base.full_run.as_secs_f64(),
            interrupted: false,
            excess: (base.excess, 0),
        };
        one_run(base, optimizer, &mut run, &mut rng).with_context(|| format!("{run:?}\n{replay}"))?;
        report(&run);
    }
    Ok(())
}

/// The volumes to crash. ext4's allocator leaves enough to do of any; XFS keeps files whole that are written in one go.
const fn recipes(kind: FileSystemKind) -> [Recipe; 4] {
    match kind {
        FileSystemKind::Xfs => [Recipe::Aged, Recipe::Server, Recipe::Churn, Recipe::Churn],
        FileSystemKind::Ext4 | FileSystemKind::Btrfs => [Recipe::Aged, Recipe::Server, Recipe::Office, Recipe::Git],
    }
}

/// Ages an image, and lets the optimizer run once undisturbed on a copy: the files must be as before then, too.
fn prepare(settings: &CrashSettings, recipe: Recipe, optimizer: &Optimizer) -> Result<Base> {
    let spec = VolumeSpec::of(settings.kind, settings.mebibytes);
    let spec = match settings.kind {
        // No reserve for root: on volumes this small it would leave the optimizer next to nothing to work with.
        FileSystemKind::Ext4 => spec.mkfs(&["-b", "4096", "-m", "0"]),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => spec,
    };
    let (volume, _) = LoopVolume::aged(&spec, recipe, AGEING_SEED)?;
    let before = dump(&volume.mount_point())?;
    let blocks = accounted_blocks(&volume)?;
    let excess = crate::oracle::filefrag(&volume.mount_point())?.excess;
    let copy = volume.copy(mount_options(settings.kind))?;
    let finished = optimizer.run(&copy.mount_point(), LIMIT)?;
    verify(&copy, &before, blocks, optimizer).context("after an undisturbed run")?;
    Ok(Base { volume, before, blocks, excess, full_run: finished.elapsed })
}

fn one_run(base: &Base, optimizer: &Optimizer, run: &mut CrashRun, rng: &mut fastrand::Rng) -> Result<()> {
    let volume = base.volume.copy(mount_options(base.volume.kind()))?;
    let mut running = optimizer.start(&volume.mount_point())?;
    std::thread::sleep(Duration::from_secs_f64(run.after_seconds));
    run.interrupted = !running.has_ended()?;
    if run.cut != Cut::Shutdown {
        running.kill()?;
    }
    if run.cut == Cut::KillThenShutdown {
        std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
    }
    if run.cut != Cut::Kill {
        let root = File::open(volume.mount_point())?;
        longrun_sys::shutdown(&root, Shutdown::NoLogFlush).context("cannot shut the file system down")?;
    }
    let finished = running.wait(LIMIT).context("the optimizer hangs after the crash")?;
    ensure!(
        !optimizer.is_ours() || !run.interrupted || run.cut != Cut::Shutdown || !finished.status.success(),
        "the optimizer reports success although the file system was shut down under it:\n{}",
        finished.stdout
    );
    volume.remount().context("after the crash")?;
    verify(&volume, &base.before, base.blocks, optimizer)?;
    run.excess.1 = crate::oracle::filefrag(&volume.mount_point())?.excess;
    Ok(())
}

/// Checks that content, properties, file system and space are as before.
fn verify(volume: &LoopVolume, before: &Dump, blocks: u64, optimizer: &Optimizer) -> Result<()> {
    optimizer.compare(before, &dump(&volume.mount_point())?)?;
    volume.check()?;
    let now = accounted_blocks(volume)?;
    let most = tolerance(volume.kind());
    ensure!(now.abs_diff(blocks) <= most, "space was lost: {blocks} blocks free or in files before, {now} now");
    Ok(())
}

/// Free blocks and blocks of files together: constant whatever moves, extent-tree blocks included.
fn accounted_blocks(volume: &LoopVolume) -> Result<u64> {
    let in_files = allocated_blocks(&volume.mount_point())?;
    // What a crash left without a name is given back in the background: not later than at the unmount.
    volume.unmount()?;
    let of_device = (volume.kind() == FileSystemKind::Ext4).then(|| e2freefrag(volume.device())).transpose()?;
    volume.mount()?;
    match of_device {
        Some(free) => Ok(in_files + free.free_blocks),
        None => Ok(in_files + longrun_sys::capacity_at(&volume.mount_point())?.free.0),
    }
}
