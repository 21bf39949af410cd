//! `longrun bench invisibility` on modelled disks.
//!
//! Owns the disks and the volumes; `longrun-bench` owns the measurement.

use crate::bench::{load, machine};
use crate::disk::{DiskModel, ModelledDisk};
use crate::{FileSystemKind, LoopVolume, VolumeSpec, save_json};
use anyhow::Result;
use longrun_bench::invisibility::{Invisibility, InvisibilityReport, InvisibilitySettings};
use longrun_bench::{BenchError, Findings};
use longrun_layout::Bytes;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What to measure.
#[derive(Clone, Debug)]
pub struct InvisibilityCampaign {
    /// On which disks.
    pub models: Vec<DiskModel>,
    /// On which file system.
    pub kind: FileSystemKind,
    /// Whose I/O scheduler disks with one arm get; the others have none.
    pub scheduler: String,
    /// How, but for the rates of small requests, which follow from the disk.
    pub settings: InvisibilitySettings,
    /// Where each result goes as JSON.
    pub json: Option<PathBuf>,
}

/// Makes the disks one after the other and measures on each; the report in Markdown.
///
/// # Errors
/// When a disk, volume or file cannot be made, or the optimizer cannot be run.
pub fn invisibility(campaign: &InvisibilityCampaign, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let InvisibilitySettings { copy, reads, iterations, .. } = &campaign.settings;
    let mut text = format!(
        "# Working beside an optimizer: {}, hard disks under {}\n\nWritten by `make bench-invisibility`; do not \
         edit. All figures are measured on a *modelled* disk (`crates/lab/src/disk`).\n\nA copy of {} MiB from a \
         cold cache, over the copy of the previous turn, until it is durable (median of {iterations} turns); \
         {reads} direct reads of 4 KiB at random times in each turn (all turns together). The optimizer mends files \
         in shuffled 8 KiB fragments. The mode \"alone\" is observed for up to 30 s. Modes take turns.\n\nMachine: \
         {}. Processes that wanted to run: {}.\n",
        campaign.kind.name(),
        campaign.scheduler,
        copy.0 >> 20,
        machine(),
        load(),
    );
    for model in &campaign.models {
        for &(reads, writes) in loads(*model) {
            progress(&format!("{}, {reads} reads a second: making files", model.describe()));
            let (report, late) = on_disk(campaign, *model, (reads, writes), progress)?;
            if let Some(directory) = &campaign.json {
                let json = serde_json::json!({ "disk": model.describe(), "late_micros": late, "report": report });
                save_json(
                    directory,
                    &format!("invisibility-{}-{}-{reads}", campaign.kind.name(), model.name()),
                    &json,
                )?;
            }
            let durable = if writes > 0.0 { format!(", {writes} durable writes") } else { String::new() };
            write!(
                text,
                "\n## {}: {reads} small reads{durable} a second\n\n{}\n{} ",
                model.describe(),
                report.table().markdown(),
                report.sentences().join(" ")
            )?;
            writeln!(text, "Answers were {late:.0} µs later than in the model, on average.")?;
        }
    }
    Ok(text)
}

/// Small reads and durable writes in a second: loads that the disk bears well, and one close to a provider's limit.
fn loads(model: DiskModel) -> &'static [(f64, f64)] {
    match model.name() {
        "ssd" => &[(1000.0, 200.0)],
        "cloud" => &[(10.0, 0.0), (500.0, 0.0), (2700.0, 0.0)],
        _ if model.is_rotational() => &[(4.0, 0.0), (10.0, 0.0)],
        _ => &[(10.0, 0.0)],
    }
}

fn on_disk(
    campaign: &InvisibilityCampaign,
    model: DiskModel,
    (reads_per_second, writes_per_second): (f64, f64),
    progress: &mut dyn FnMut(&str),
) -> Result<(InvisibilityReport, f64)> {
    let size = Bytes(campaign.settings.copy.0 * 2 + (1536 << 20));
    let disk = Arc::new(ModelledDisk::start(model, campaign.settings.seed, &[size])?);
    if model.is_rotational() {
        disk.set_scheduler(&campaign.scheduler)?;
    }
    let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(campaign.kind, size.0 >> 20).mount("noatime"))?;
    let stop = AtomicBool::new(false);
    let reads = campaign.settings.reads.max((reads_per_second * 10.0) as u32);
    let settings = InvisibilitySettings { reads, reads_per_second, writes_per_second, ..campaign.settings.clone() };
    let bench = disk.without_model(|| Ok(Invisibility::prepare(&volume.mount_point(), settings, &stop)?))?;
    let start = disk.statistics()?;
    let mut aside = |act: &dyn Fn() -> Result<(), BenchError>| {
        let done = disk.without_model(|| Ok(act()));
        done.map_err(|e| BenchError::Unsuitable { path: volume.mount_point(), problem: format!("{e:#}") })?
    };
    let report = bench.measure(&mut aside, &mut |mode, round| progress(&format!("  round {}: {mode}", round + 1)))?;
    Ok((report, disk.statistics()?.since(start).late_micros()))
}
