//! The campaign that demonstrates prevention: every file system and workload, with the service and without it, on
//! volumes with contiguous or fragmented free space.
//!
//! Owns the volumes and the order. `longrun-bench` owns the measurement, so that a user's measurement and this one are
//! the same.

mod report;
mod space;

pub use report::{replace_section, report};
pub use space::FreeSpaceKind;

use crate::{FileSystemKind, LoopVolume, VolumeSpec};
use anyhow::{Context, Result};
use longrun_bench::protocol::{Bench, Comparison, Iteration, Settings};
use longrun_bench::workload::{Rate, paced};
use longrun_bench::{Job, Parameters, Profile, Scratch, Service};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, Debug)]
pub struct PreventionSettings {
    /// The `longrun` under test.
    pub program: PathBuf,
    /// On which file systems.
    pub kinds: Vec<FileSystemKind>,
    /// On which free space.
    pub spaces: Vec<FreeSpaceKind>,
    /// Which ways of writing.
    pub profiles: Vec<Profile>,
    /// Iterations each way.
    pub iterations: u32,
    /// Iterations each way where nothing should change, and times are what matters.
    pub control_iterations: u32,
    /// How much work.
    pub parameters: Parameters,
    /// Size of each volume in MiB; half of it where the free space is in pieces.
    pub mebibytes: u64,
    /// Whether files are read again, cold.
    pub reread: bool,
    /// How long the cost of watching an ordinary load is measured; not at all when zero.
    pub paced: Duration,
}

/// A comparison, and where it was made.
#[derive(Clone, Debug)]
pub struct Measured {
    /// On which file system.
    pub kind: FileSystemKind,
    /// On which free space.
    pub space: FreeSpaceKind,
    /// What was measured.
    pub comparison: Comparison,
}

/// What it costs to watch an ordinary load.
#[derive(Clone, Copy, Debug)]
pub struct Watching {
    /// On which file system.
    pub kind: FileSystemKind,
    /// Writes a second.
    pub writes_per_second: f64,
    /// Processor time of the service in per cent of one core.
    pub processor_percent: f64,
    /// What the kernel spent on watching, in per cent of one core; none where it is not measured.
    pub in_kernel_percent: Option<f64>,
    /// The most memory of the service, in bytes.
    pub peak_memory: u64,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct PreventionResults {
    /// The comparisons.
    pub measured: Vec<Measured>,
    /// The cost of watching.
    pub watching: Vec<Watching>,
}

/// Makes the volumes one after the other and measures on each.
///
/// # Errors
/// When a volume cannot be made, or the service does not run as it should.
pub fn prevention(settings: &PreventionSettings, progress: &mut dyn FnMut(&str)) -> Result<PreventionResults> {
    let mut results = PreventionResults::default();
    for &kind in &settings.kinds {
        for &space in &settings.spaces {
            progress(&format!("{}: making a volume, free space {space}", kind.name()));
            let volume = LoopVolume::create(&VolumeSpec::of(kind, space.size(settings.mebibytes)).mount("noatime"))?;
            space::prepare(&volume, space, settings.parameters.seed)?;
            for &profile in settings.profiles.iter().filter(|profile| space.suits(**profile)) {
                let comparison = compare(settings, &volume, profile, progress)
                    .with_context(|| format!("{} on {}, free space {space}", profile, kind.name()))?;
                progress(&format!("  {}", longrun_bench::report::sentence(&comparison)));
                comparison.iterations.iter().for_each(|iteration| progress(&line(iteration)));
                results.measured.push(Measured { kind, space, comparison });
            }
            if space == FreeSpaceKind::Whole && !settings.paced.is_zero() {
                progress(&format!("{}: what watching costs", kind.name()));
                results.watching.push(watch(settings, &volume)?);
            }
            // Nothing of the service may hold the volume, and nothing that it did may have harmed it.
            volume.check()?;
        }
    }
    Ok(results)
}

fn line(iteration: &Iteration) -> String {
    let Iteration { side, seconds, layout, space, same_state, .. } = iteration;
    let other = if *same_state { String::new() } else { format!("; not the same free space before: {space:?}") };
    format!("    {side:?}: {} excess in {seconds:.2} s{other}", layout.excess_fragments)
}

fn compare(
    settings: &PreventionSettings,
    volume: &LoopVolume,
    profile: Profile,
    progress: &mut dyn FnMut(&str),
) -> Result<Comparison> {
    let stop = AtomicBool::new(false);
    let iterations = if profile.is_control() { settings.control_iterations } else { settings.iterations };
    let bench_settings = Settings {
        program: settings.program.clone(),
        iterations,
        parameters: settings.parameters,
        reread: settings.reread,
    };
    let bench = Bench::new(&volume.mount_point(), &[profile], bench_settings, &stop)?;
    progress(&format!("{}: {profile}, {iterations} iterations each way", volume.kind().name()));
    Ok(bench.compare(profile, &mut |_, _, _| {})?)
}

/// The service beside a load that never needs it: 5000 writes a second to many files.
fn watch(settings: &PreventionSettings, volume: &LoopVolume) -> Result<Watching> {
    let scratch = Scratch::new(&volume.mount_point())?;
    let directory = scratch.fresh()?;
    let stop = AtomicBool::new(false);
    let job = Job { directory: &directory, parameters: settings.parameters, stop: &stop };
    let mut service = Service::start(&settings.program, &volume.mount_point())?;
    let (before, start) = (service.usage()?, Instant::now());
    let done = paced(&job, Rate { per_second: 5000, time: settings.paced })?;
    let (after, seconds) = (service.usage()?, start.elapsed().as_secs_f64());
    let (processor_percent, in_kernel_percent) = after.percent_since(&before, seconds);
    service.stop()?;
    Ok(Watching {
        kind: volume.kind(),
        writes_per_second: done.requests as f64 / seconds,
        processor_percent,
        in_kernel_percent,
        peak_memory: after.peak_memory.0,
    })
}
