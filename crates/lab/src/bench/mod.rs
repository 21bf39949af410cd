//! The benchmark: the same aged image, byte-identical copies of it, every tool on a copy of its own, cold; judged by
//! tools that we did not write, and written down whether it flatters us or not.

mod measure;
mod report;
pub(crate) use report::machine;

use crate::oracle::{FreeFragments, e2freefrag, filefrag};
use crate::{LoopVolume, Optimizer, VolumeSpec};
use anyhow::Result;
use longrun_ageing::Recipe;
use measure::{Analysis, Optimized, Speed};
use std::collections::BTreeMap;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What optimizers make of aged volumes, and what it costs.
    Optimize,
    /// How fast bytes can be copied at all on such a volume.
    Copy,
    /// How fast a volume is analyzed.
    Analyze,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 3] = [Self::Optimize, Self::Copy, Self::Analyze];
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// Which phases.
    pub phases: Vec<Phase>,
    /// Which volumes.
    pub recipes: Vec<Recipe>,
    /// Size of each volume in MiB.
    pub mebibytes: u64,
    /// Runs of each measurement; the median counts.
    pub runs: u32,
    /// Seed of the ageing.
    pub seed: u64,
    /// Small files of the volume on which analysis is timed besides.
    pub many_files: u64,
}

/// What judges say about a volume.
#[derive(Clone, Copy, Debug)]
struct Judged {
    files: u64,
    excess: u64,
    directory_excess: u64,
    free: FreeFragments,
}

/// Everything measured on one recipe's volume.
struct RecipeResult {
    recipe: Recipe,
    before: Judged,
    used_bytes: u64,
    optimized: Vec<Optimized>,
    copy: Option<Speed>,
}

/// The analyses of one volume.
struct AnalysisResult {
    volume: String,
    judged: Judged,
    analysis: Analysis,
}

/// Measures, and returns the report as Markdown. `progress` is told what is being done.
///
/// # Errors
/// When a tool fails, or an optimizer changes what it must not change.
pub fn bench(settings: &BenchSettings, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let tools = [Optimizer::e4defrag(), Optimizer::longrun("full")?, Optimizer::longrun("efficient")?];
    let (mut results, mut analyses) = (Vec::new(), Vec::new());
    for &recipe in &settings.recipes {
        progress(&format!("{recipe}: ageing {} MiB", settings.mebibytes));
        let spec = VolumeSpec::ext4(settings.mebibytes).mkfs(&["-b", "4096"]);
        let (base, _) = LoopVolume::aged(&spec, recipe, settings.seed)?;
        let mut result = RecipeResult {
            recipe,
            before: judge(&base)?,
            used_bytes: used_bytes(&base)?,
            optimized: Vec::new(),
            copy: None,
        };
        if settings.phases.contains(&Phase::Optimize) {
            result.optimized = measure::optimize(&base, &tools, settings.runs, &mut |text| {
                progress(&format!("{recipe}: {text}"));
            })?;
            // What do we leave when we may write less than the peer did?
            if let Some(peer) = result.optimized.iter().find(|o| o.bytes_moved.is_none()) {
                let within = Optimizer::longrun_within(peer.traffic.written * 4 / 5)?;
                result.optimized.extend(measure::optimize(&base, &[within], settings.runs, &mut |text| {
                    progress(&format!("{recipe}: {text}"));
                })?);
            }
        }
        if settings.phases.contains(&Phase::Copy) {
            progress(&format!("{recipe}: cp + fsync"));
            // As many bytes as the full pass moves, so that caches of the device count alike for both.
            let moved = result.optimized.iter().find(|o| o.name == "longrun full").and_then(|o| o.bytes_moved);
            let bytes = moved.unwrap_or(result.used_bytes / 2).max(64 << 20);
            result.copy = Some(measure::copy_speed(bytes, settings.runs)?);
        }
        if settings.phases.contains(&Phase::Analyze) {
            progress(&format!("{recipe}: analysis"));
            let analysis = measure::analyze(&base, settings.runs)?;
            analyses.push(AnalysisResult { volume: recipe.to_string(), judged: result.before, analysis });
        }
        results.push(result);
    }
    if settings.phases.contains(&Phase::Analyze) {
        let name = format!("{} small files", settings.many_files);
        progress(&format!("{name}: analysis"));
        let volume = measure::many_files(settings.many_files)?;
        let (judged, analysis) = (judge(&volume)?, measure::analyze(&volume, settings.runs)?);
        analyses.push(AnalysisResult { volume: name, judged, analysis });
    }
    let mut commands: BTreeMap<String, String> =
        tools.iter().map(|t| (t.name().to_owned(), t.command_line())).collect();
    commands.insert(
        Optimizer::longrun_within(0)?.name().to_owned(),
        "longrun optimize --json --mode efficient --budget N".to_owned(),
    );
    report::markdown(settings, &commands, &results, &analyses)
}

/// Asks filefrag and e2freefrag; the volume is mounted.
fn judge(volume: &LoopVolume) -> Result<Judged> {
    let files = filefrag(&volume.mount_point())?;
    volume.unmount()?;
    let free = e2freefrag(volume.device());
    volume.mount()?;
    Ok(Judged { files: files.files, excess: files.excess, directory_excess: files.directory_excess, free: free? })
}

fn used_bytes(volume: &LoopVolume) -> Result<u64> {
    let capacity = longrun_sys::capacity(std::fs::File::open(volume.mount_point())?)?;
    Ok(capacity.block_size.to_bytes(capacity.total - capacity.free).0)
}
