//! The soak test: the service must not grow under a long mixed load, with volumes mounted and unmounted.
//!
//! Owns the sequence: [`load`] makes the work, the service is sampled, and [`judgement`] decides whether it grew.

mod judgement;
mod load;

use crate::service::{Service, Use};
use crate::{LoopVolume, VolumeSpec};
use anyhow::Result;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How to soak.
#[derive(Clone, Copy, Debug)]
pub struct SoakSettings {
    /// For how long.
    pub time: Duration,
    /// How often the service is looked at.
    pub sample: Duration,
}

/// What the service used at some time. What it did not tell is absent.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds since the beginning.
    pub seconds: u64,
    /// Memory.
    pub resident_kib: u64,
    /// Open files.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Files that wait for a worker.
    pub queued: Option<u64>,
    /// Files that wait to be mended.
    pub to_be_mended: Option<u64>,
    /// Files whose runways are in the journal.
    pub in_journal: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct SoakReport {
    /// Files that were grown.
    pub grown_files: u64,
    /// Times that a volume was unmounted and mounted again.
    pub remounts: u64,
    /// All samples.
    pub samples: Vec<Sample>,
}

/// Soaks, and judges. Every volume is checked at the end.
///
/// # Errors
/// When the service ends, does not end well, or has grown.
pub fn soak(settings: SoakSettings) -> Result<SoakReport> {
    let specs = [VolumeSpec::xfs(640), VolumeSpec::btrfs(640), VolumeSpec::ext4(512).mkfs(&["-b", "4096"])];
    let volumes = specs.iter().map(LoopVolume::create).collect::<Result<Vec<_>>>()?;
    let directory = tempfile::tempdir()?;
    let mut service = Service::start(directory.path(), &volumes)?;
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let mut samples = Vec::new();
    let (grown_files, remounts) = thread::scope(|scope| -> Result<(u64, u64)> {
        let stop = &stop;
        let loads: Vec<_> = volumes.iter().map(|volume| scope.spawn(move || load::load(volume, stop))).collect();
        let watched = (|| {
            while begun.elapsed() < settings.time {
                thread::sleep(settings.sample);
                samples.push(sample(&mut service, begun)?);
            }
            Ok(())
        })();
        stop.store(true, Ordering::SeqCst);
        let mut sums = (0, 0);
        for load in loads {
            let (files, remounts) = load.join().map_err(|_| anyhow::anyhow!("a load panicked"))??;
            sums = (sums.0 + files, sums.1 + remounts);
        }
        watched.map(|()| sums)
    })?;
    let at_rest = at_rest(&mut service, begun, settings.sample)?;
    service.stop()?;
    for volume in &volumes {
        volume.check()?;
    }
    judgement::judge(&samples, &at_rest)?;
    Ok(SoakReport { grown_files, remounts, samples })
}

/// Looks at a service that gets no more load, until nothing waits any more and three looks after that; for some thirty looks at most.
fn at_rest(service: &mut Service, begun: Instant, pause: Duration) -> Result<Vec<Sample>> {
    let (mut samples, mut idle) = (Vec::new(), 0);
    while idle < 3 && samples.len() < 30 {
        thread::sleep(pause);
        let sample = sample(service, begun)?;
        idle = if sample.queued == Some(0) && sample.to_be_mended == Some(0) { idle + 1 } else { 0 };
        samples.push(sample);
    }
    Ok(samples)
}

/// What the service uses now, and how much waits in it, by itself.
fn sample(service: &mut Service, begun: Instant) -> Result<Sample> {
    let Use { resident_kib, files, threads } = service.usage()?;
    // Asked after the look: the question opens a connection.
    let told = service.status()?;
    let number = |pointer: &str| told.as_ref()?.pointer(pointer)?.as_u64();
    Ok(Sample {
        seconds: begun.elapsed().as_secs(),
        resident_kib,
        files,
        threads,
        queued: number("/queue"),
        to_be_mended: number("/mending/queued"),
        in_journal: number("/journal_files"),
    })
}
