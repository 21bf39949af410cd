//! `longrun bench reads` on modelled disks.
//!
//! Owns the disks and the volumes. What is measured, and how, is `longrun-bench`'s, so that an administrator's own
//! measurement and this one are the same.

use crate::disk::{DiskModel, ModelledDisk, Statistics};
use crate::{FileSystemKind, LoopVolume, VolumeSpec};
use anyhow::{Context, Result};
use longrun_bench::BenchError;
use longrun_bench::median;
use longrun_bench::reads::{Lie, Reads, ReadsReport, ReadsSettings};
use longrun_layout::Bytes;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ReadsCampaign {
    /// The `longrun` that optimizes.
    pub program: PathBuf,
    /// On which disks.
    pub models: Vec<DiskModel>,
    /// On which file system.
    pub kind: FileSystemKind,
    /// How large each file is.
    pub bytes: Bytes,
    /// How often each is read.
    pub iterations: u32,
    /// Of everything random.
    pub seed: u64,
    /// Where each result goes as JSON.
    pub json: Option<PathBuf>,
}

/// Makes the disks one after the other and measures on each; the report in Markdown.
///
/// # Errors
/// When a disk, volume or file cannot be made, or the optimizer fails.
pub fn reads(campaign: &ReadsCampaign, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let mut text = format!(
        "# Reading fragmented files\n\nWritten by `make bench-reads`; do not edit. Every figure here is measured on a *modelled* \
         disk (`crates/lab/src/disk`): a block device whose requests take what a model says, below the kernel's merging and \
         scheduling. `longrun bench reads DIR` measures the same on a disk of yours.\n\n\
         {}, files of {} MiB, read through the page cache by requests of 128 KiB (kernel read-ahead 128 KiB), the volume mounted \
         anew before each; median of {}, layouts taking turns. \"Disk busy\" is the model's own time, which a busy host does not \
         change.\n",
        campaign.kind.name(),
        campaign.bytes.0 >> 20,
        campaign.iterations
    );
    for model in &campaign.models {
        progress(&format!("{}: making files", model.describe()));
        let measured = on_disk(campaign, *model, progress)?;
        let Measured { report, busy, late_micros: late } = &measured;
        if let Some(directory) = &campaign.json {
            fs::create_dir_all(directory)?;
            let path = directory.join(format!("reads-{}-{}.json", campaign.kind.name(), model.name()));
            let json = serde_json::json!({ "disk": model.describe(), "late_micros": late, "busy_seconds": busy, "report": report });
            fs::write(&path, serde_json::to_vec_pretty(&json)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        write!(text, "\n## {}\n\n{}", capitalized(&model.describe()), table(&measured))?;
        write!(text, "\n{} Answers came {late:.0} µs later than the model has them, on average.\n", report.sentence())?;
    }
    Ok(text)
}

/// What was measured on a disk.
struct Measured {
    report: ReadsReport,
    /// For each layout, how long the disk was busy by the model: the median of its readings, in seconds.
    busy: Vec<f64>,
    /// By how much answers were late on average.
    late_micros: f64,
}

fn on_disk(campaign: &ReadsCampaign, model: DiskModel, progress: &mut dyn FnMut(&str)) -> Result<Measured> {
    let size = Bytes(campaign.bytes.0 * 10 + (512 << 20));
    let disk = Arc::new(ModelledDisk::start(model, campaign.seed, &[size])?);
    let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(campaign.kind, size.0 >> 20).mount("noatime"))?;
    let stop = AtomicBool::new(false);
    let settings = ReadsSettings {
        program: campaign.program.clone(),
        bytes: campaign.bytes,
        iterations: campaign.iterations,
        seed: campaign.seed,
    };
    let mut making = |lie| progress(&format!("  making: {lie}"));
    let reads = disk.without_model(|| Ok(Reads::prepare(&volume.mount_point(), settings, &stop, &mut making)?))?;
    let start = disk.statistics()?;
    // What was read since the volume was mounted last, and from which layout.
    let (current, readings) = (Cell::new(None), RefCell::new(Vec::<(Lie, Statistics)>::new()));
    let last = Cell::new(start);
    let note = || -> Result<()> {
        let now = disk.statistics()?;
        if let Some(lie) = current.get() {
            readings.borrow_mut().push((lie, now.since(last.get())));
        }
        last.set(now);
        Ok(())
    };
    let next = Cell::new(None);
    let mut cold = || {
        let remounted = note().and_then(|()| disk.without_model(|| volume.remount()));
        current.set(next.get());
        remounted.map_err(|e| BenchError::Unsuitable { path: volume.mount_point(), problem: format!("{e:#}") })
    };
    let report = reads.measure(&mut cold, &mut |lie, round| {
        next.set(Some(lie));
        progress(&format!("  reading, round {}: {lie}", round + 1));
    })?;
    note()?;
    let busy = |lie: Lie| {
        let readings = readings.borrow();
        let of = readings.iter().filter(|(read, _)| *read == lie).map(|(_, done)| done.busy_nanos as f64 / 1e9);
        median(of.collect())
    };
    let busy = report.lines.iter().map(|line| busy(line.lie)).collect();
    Ok(Measured { report, busy, late_micros: disk.statistics()?.since(start).late_micros() })
}

fn table(measured: &Measured) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let with = |cells: &[String], last: String| line(&[cells, &[last]].concat());
    let header = ReadsReport::COLUMNS.map(str::to_owned);
    let rows = measured.report.rows();
    let rows: String = rows.iter().zip(&measured.busy).map(|(row, busy)| with(row, format!("{busy:.3}"))).collect();
    format!("{}|---|{}\n{rows}", with(&header, "disk busy, s".to_owned()), "---:|".repeat(header.len()))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
