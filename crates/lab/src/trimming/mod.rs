//! The torture test of runways: files grow in many ways while their runways are granted and given back at the worst
//! moments, and every byte is compared.
//!
//! Growth is reported by the test instead of a real sensor, so that there are far more grants and trims than real
//! growth would cause. Everything behind the sensor is the product's.

mod told;
mod writer;

pub use told::Told;

use crate::{FileSystemKind, LoopVolume, VolumeSpec};
use anyhow::{Context, Result, ensure};
use longrun_prevention::policy::Settings;
use longrun_prevention::{Happening, Options, Prevention, Sink, Watched};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::{Grower, Habit};

const MEBIBYTES: u64 = 2048;
/// Appends of one file, at most.
const APPENDS: u64 = 300;
/// The files go on growing until so many runways were granted, and so many given back: where the product comes late,
/// because the machine is busy, more is written until it has met the writers often enough.
const GRANTS: u64 = 30;
const TRIMS: u64 = 10;
/// They stop after so many times the appends that were asked for, however few runways there were.
const MORE: u64 = 50;
/// One file in this many is kept, and compared once more when it is no longer in memory.
const KEPT: u64 = 16;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct TrimTortureSettings {
    /// On which file system.
    pub kind: FileSystemKind,
    /// How many appends, at least.
    pub appends: u64,
    /// How many threads append.
    pub writers: u64,
    /// Of everything random.
    pub seed: u64,
}

/// What happened; not a byte was wrong.
#[derive(Clone, Debug, Serialize)]
pub struct TrimTortureReport {
    /// On which file system.
    pub filesystem: &'static str,
    /// Appends made.
    pub appends: u64,
    /// Files compared.
    pub files: u64,
    /// Runways granted.
    pub grants: u64,
    /// Times that runways were given back.
    pub trims: u64,
    /// Bytes given back.
    pub trimmed_bytes: u64,
}

/// Counts what was granted and what was given back.
#[derive(Default)]
struct Counter {
    grants: AtomicU64,
    trims: AtomicU64,
}

impl Counter {
    fn enough(&self) -> bool {
        self.grants.load(Ordering::Relaxed) >= GRANTS && self.trims.load(Ordering::Relaxed) >= TRIMS
    }
}

impl Sink for Counter {
    fn happened(&self, _: &Path, happening: &Happening) {
        match happening {
            Happening::Granted { .. } => self.grants.fetch_add(1, Ordering::Relaxed),
            Happening::Settled { given_back, .. } if given_back.0 > 0 => self.trims.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// The volume as prevention wants to be told of it.
///
/// # Errors
/// When it is not mounted.
pub fn watched(volume: &LoopVolume) -> Result<Watched> {
    Watched::mounted_at(&volume.mount_point())?.context("prevention does not know the volume")
}

/// Lets files grow while their runways come and go, and compares every byte.
///
/// # Errors
/// The first byte that is wrong, with the command that replays it.
pub fn trim_torture(settings: &TrimTortureSettings) -> Result<TrimTortureReport> {
    let TrimTortureSettings { kind, appends, seed, .. } = *settings;
    let name = kind.name();
    run(settings)
        .with_context(|| format!("replay with: longrun-lab trim-torture --fs {name} --appends {appends} --seed {seed}"))
}

fn run(settings: &TrimTortureSettings) -> Result<TrimTortureReport> {
    let volume = LoopVolume::create(&VolumeSpec::of(settings.kind, MEBIBYTES))?;
    let state = tempfile::tempdir()?;
    let (told, counter) = (Arc::new(Told::default()), Arc::new(Counter::default()));
    let mut options = Options::new(state.path().to_owned());
    // At once: the trimming is to meet the next opener.
    options.debounce = Duration::from_millis(1);
    let prevention = Prevention::start_with(&options, Arc::clone(&told) as _, Arc::clone(&counter) as _)?;
    let watched = watched(&volume)?;
    prevention.watch(&watched, Settings::default())?;
    let appended = AtomicU64::new(0);
    let made = AtomicU64::new(0);
    let goes_on = || {
        let appended = appended.load(Ordering::Relaxed);
        appended < settings.appends || (!counter.enough() && appended < settings.appends.saturating_mul(MORE))
    };
    let kept = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.writers)
            .map(|writer| {
                let seed = settings.seed.wrapping_mul(1000) + writer;
                let (told, appended, made, watched, volume) = (&told, &appended, &made, &watched, &volume);
                let goes_on = &goes_on;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut kept = Vec::new();
                    while goes_on() {
                        let number = made.fetch_add(1, Ordering::Relaxed);
                        let habit = Habit::choose(&mut rng);
                        let mut file = Grower::create(&volume.mount_point(), number, habit, watched.device)?;
                        let appends = rng.u64(1..APPENDS);
                        for _ in 0..appends {
                            file.grow(told, &mut rng)?;
                        }
                        appended.fetch_add(appends, Ordering::Relaxed);
                        file.close()?;
                        told.tell(file.key, 0, longrun_prevention::SignalKind::Closed);
                        file.verify()?;
                        if number % KEPT == 0 {
                            kept.push(file);
                        } else {
                            std::fs::remove_file(&file.path)?;
                        }
                    }
                    anyhow::Ok(kept)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a writer panicked")).flatten())
            .collect::<Result<Vec<_>>>()
    })?;
    let totals = prevention.stop();
    ensure!(totals.given_back.left_files == 0, "not everything was given back: {totals:?}");
    volume.remount()?;
    for file in kept.iter().flatten() {
        file.verify().with_context(|| format!("after mounting again: {}", file.path.display()))?;
        let beyond = bytes_beyond_the_end(&file.path)?;
        ensure!(beyond == 0, "{}: {beyond} bytes behind the end", file.path.display());
    }
    volume.check()?;
    let grants = totals.last.volumes.iter().map(|volume| volume.grants).sum();
    let trimmed = totals.last.volumes.iter().map(|volume| volume.trimmed.0).sum();
    Ok(TrimTortureReport {
        filesystem: settings.kind.name(),
        appends: appended.into_inner(),
        files: made.into_inner(),
        grants,
        trims: counter.trims.load(Ordering::Relaxed),
        trimmed_bytes: trimmed,
    })
}

/// What is allocated to a file behind the block that holds its end.
///
/// # Errors
/// The kernel's.
pub fn bytes_beyond_the_end(path: &Path) -> Result<u64> {
    let file = std::fs::File::open(path)?;
    let end = file.metadata()?.len().next_multiple_of(4096);
    let extents = longrun_sys::map_file(&file, longrun_sys::ByteRange::ALL, longrun_sys::Mapping::Synced)?;
    Ok(extents.iter().map(|e| (e.logical.0 + e.length.0).saturating_sub(e.logical.0.max(end))).sum())
}
