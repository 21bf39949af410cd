//! The benchmark: every tool works on its own byte-identical copy of the same aged image, from a cold cache.
//! Independent tools judge the results, and all results are recorded, good or bad.

mod analysis;
mod claims;
mod judge;
mod measure;
mod report;
pub(crate) use report::{load, machine};

use crate::{FileSystemKind, LoopVolume, Medium, Optimizer, VolumeSpec, snapshots};
use analysis::Analysis;
use anyhow::Result;
use judge::{Judged, judge, used_bytes};
use longrun_ageing::Recipe;
use longrun_layout::Bytes;
use measure::{Optimized, Speed};
use std::collections::BTreeMap;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What optimizers make of aged volumes, and what it costs.
    Optimize,
    /// How fast bytes can be copied at all on such a volume (ext4).
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
    /// On which file systems.
    pub kinds: Vec<FileSystemKind>,
    /// Which volumes; none for those that suit each file system.
    pub recipes: Vec<Recipe>,
    /// On devices that say this of themselves: file systems allocate otherwise on what does not rotate.
    pub media: Vec<Medium>,
    /// Size of each volume in MiB.
    pub mebibytes: u64,
    /// Runs of each measurement; the median counts.
    pub runs: u32,
    /// Seed of the ageing.
    pub seed: u64,
    /// Snapshots that are taken of a btrfs, with changes after each.
    pub snapshots: u64,
    /// Small files of the volume on which analysis is timed besides.
    pub many_files: u64,
}

impl BenchSettings {
    /// The volumes of a file system: ext4 falls to pieces in any life, the others where files grow side by side.
    fn recipes(&self, kind: FileSystemKind) -> Vec<Recipe> {
        match kind {
            _ if !self.recipes.is_empty() => self.recipes.clone(),
            FileSystemKind::Ext4 => vec![Recipe::Aged, Recipe::Server, Recipe::Office, Recipe::Media, Recipe::Tight],
            FileSystemKind::Xfs => {
                vec![Recipe::Churn, Recipe::Crowded, Recipe::Server, Recipe::Office, Recipe::Tight]
            }
            FileSystemKind::Btrfs => vec![Recipe::Churn, Recipe::Server],
        }
    }

    /// What the volumes are made as.
    fn spec(&self, kind: FileSystemKind, medium: Medium) -> VolumeSpec {
        let spec = VolumeSpec::of(kind, self.mebibytes).on(medium);
        match kind {
            FileSystemKind::Ext4 => spec.mkfs(&["-b", "4096"]),
            // The reverse map tells what cannot move: the bound of what can be reached comes from it.
            FileSystemKind::Xfs => spec.mkfs(&["-m", "rmapbt=1"]),
            FileSystemKind::Btrfs => spec,
        }
    }
}

/// Everything measured on one recipe's volume.
struct RecipeResult {
    kind: FileSystemKind,
    recipe: Recipe,
    medium: Medium,
    before: Judged,
    used_bytes: u64,
    optimized: Vec<Optimized>,
    copy: Option<Speed>,
}

impl RecipeResult {
    /// What a tool made of it.
    fn of(&self, name: &str) -> Option<&Optimized> {
        self.optimized.iter().find(|optimized| optimized.name == name)
    }

    /// What the first peer made of it.
    fn peer(&self) -> Option<&Optimized> {
        self.optimized.iter().find(|optimized| !optimized.is_ours)
    }
}

/// The analyses of one volume.
struct AnalysisResult {
    volume: String,
    kind: FileSystemKind,
    judged: Judged,
    analysis: Analysis,
}

/// How much of the bytes that the peer wrote the second efficient pass may move, in percent, and how it is called.
/// What it writes is more than what it moves, by what the file system writes for itself.
const fn share_of_peer(kind: FileSystemKind) -> (u64, &'static str) {
    match kind {
        FileSystemKind::Ext4 => (80, "longrun efficient, within 4/5 of the peer's bytes"),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => (45, "longrun efficient, within 1/2 of the peer's bytes"),
    }
}

/// Measures, and returns the report as Markdown. `progress` receives the current step.
///
/// # Errors
/// When a tool fails, or an optimizer changes what it must not change.
pub fn bench(settings: &BenchSettings, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let (mut results, mut analyses, mut commands) = (Vec::new(), Vec::new(), BTreeMap::new());
    for &kind in &settings.kinds {
        let mut tools = Optimizer::peers(kind);
        tools.extend([Optimizer::longrun("full")?, Optimizer::longrun("efficient")?]);
        commands.extend(tools.iter().map(|tool| (tool.name().to_owned(), tool.command_line())));
        let (_, within) = share_of_peer(kind);
        commands.insert(within.to_owned(), "longrun optimize --json --mode efficient --budget N".to_owned());
        for recipe in settings.recipes(kind) {
            for &medium in &settings.media {
                let mut say = |text: &str| progress(&format!("{} {recipe}, {}: {text}", kind.name(), medium.name()));
                let (result, analysis) = one_volume(settings, (kind, recipe, medium), &tools, &mut say)?;
                results.push(result);
                analyses.extend(analysis);
            }
        }
        if settings.phases.contains(&Phase::Analyze) && settings.many_files > 0 {
            analyses.push(many(kind, settings.many_files, settings.runs, progress)?);
        }
    }
    report::markdown(settings, &commands, &results, &analyses)
}

/// Times the analysis of `files` small files on each file system, and returns the report as Markdown.
///
/// # Errors
/// When a tool fails.
pub fn scan(kinds: &[FileSystemKind], files: u64, runs: u32, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let analyses = kinds.iter().map(|&kind| many(kind, files, runs, progress)).collect::<Result<Vec<_>>>()?;
    report::scan(&analyses, runs)
}

fn many(kind: FileSystemKind, files: u64, runs: u32, progress: &mut dyn FnMut(&str)) -> Result<AnalysisResult> {
    let volume = format!("{files} small files");
    progress(&format!("{}: making {volume}", kind.name()));
    let base = analysis::many_files(kind, files)?;
    progress(&format!("{} {volume}: judges", kind.name()));
    let judged = judge(&base)?;
    progress(&format!("{} {volume}: analysis", kind.name()));
    Ok(AnalysisResult { volume, kind, judged, analysis: analysis::analyze(&base, runs)? })
}

fn one_volume(
    settings: &BenchSettings,
    (kind, recipe, medium): (FileSystemKind, Recipe, Medium),
    tools: &[Optimizer],
    progress: &mut dyn FnMut(&str),
) -> Result<(RecipeResult, Option<AnalysisResult>)> {
    progress(&format!("ageing {} MiB", settings.mebibytes));
    let (base, _) = LoopVolume::aged(&settings.spec(kind, medium), recipe, settings.seed)?;
    if kind == FileSystemKind::Btrfs && settings.snapshots > 0 {
        snapshots(&base, settings.snapshots, settings.seed)?;
        base.remount()?;
    }
    let (before, used_bytes) = (judge(&base)?, used_bytes(&base)?);
    let mut result = RecipeResult { kind, recipe, medium, before, used_bytes, optimized: Vec::new(), copy: None };
    if settings.phases.contains(&Phase::Optimize) {
        result.optimized = measure::optimize(&base, tools, settings.runs, progress)?;
        // What do we leave when we may write less than the peer did?
        if let Some(peer) = result.peer() {
            let (percent, name) = share_of_peer(kind);
            let within = Optimizer::longrun_within(Bytes(peer.traffic.written * percent / 100), name)?;
            result.optimized.extend(measure::optimize(&base, &[within], settings.runs, progress)?);
        }
    }
    if settings.phases.contains(&Phase::Copy) && kind == FileSystemKind::Ext4 {
        progress("cp + fsync");
        // As many bytes as the full pass moves, so that caches of the device count alike for both.
        let moved = result.of("longrun full").and_then(|optimized| optimized.bytes_moved);
        let bytes = moved.unwrap_or(result.used_bytes / 2).max(64 << 20);
        result.copy = Some(measure::copy_speed(bytes, settings.runs)?);
    }
    let mut analyzed = None;
    // How a volume is read does not depend on what its device says of itself: once is enough.
    if settings.phases.contains(&Phase::Analyze) && settings.media.first() == Some(&medium) {
        progress("analysis");
        let analysis = analysis::analyze(&base, settings.runs)?;
        analyzed = Some(AnalysisResult { volume: recipe.to_string(), kind, judged: result.before, analysis });
    }
    Ok((result, analyzed))
}
