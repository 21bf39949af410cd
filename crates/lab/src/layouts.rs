//! `longrun bench reads`, `copy`, `oltp` and `install` on modelled disks.
//!
//! Owns the disks and the volumes. `longrun-bench` owns the measurement, so that an administrator's measurement and
//! this one are the same.

use crate::bench::{load, machine};
use crate::disk::{DiskModel, ModelledDisk, READ_AHEAD_KIB, Statistics};
use crate::installing::{self, Installing};
use crate::{FileSystemKind, LoopVolume, VolumeSpec, save_json};
use anyhow::Result;
use longrun_bench::copy::Copies;
use longrun_bench::install::Source;
use longrun_bench::layouts::{LayoutSettings, Stage, Step};
use longrun_bench::oltp::{Oltp, OltpProfile, OltpSettings};
use longrun_bench::reads::Reads;
use longrun_bench::{BenchError, Findings};
use longrun_layout::Bytes;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Which of the benchmarks that measure the same bytes laid in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutBench {
    /// Sequential reads.
    Reads,
    /// Reading and copying, one file and many.
    Copy,
    /// fio's requests.
    Oltp,
    /// Unpacking software.
    Install,
}

impl LayoutBench {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reads, Self::Copy, Self::Oltp, Self::Install];

    /// Its name; that of its part of the document, too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Copy => "copy",
            Self::Oltp => "oltp",
            Self::Install => "install",
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::Reads => "Reading fragmented files",
            Self::Copy => "Copying fragmented files",
            Self::Oltp => "Databases and file servers on a fragmented file",
            Self::Install => "Installing software on an aged volume",
        }
    }

    const fn conditions(self) -> &'static str {
        match self {
            Self::Reads => {
                "Files are read through the page cache with requests of 128 KiB. The volume is remounted before \
                 each run"
            }
            Self::Copy => {
                "Files in shuffled fragments of 64 KiB, contiguous, and optimized: once one file, and once 64 files \
                 of the same total size. They are read with requests of 128 KiB, and copied with such requests \
                 until the copy is durable. The volume is remounted before each run. At most two requests of a \
                 contiguous file are under way at a time, each as long as the read-ahead; of a fragmented file, \
                 more. Where the read-ahead is short and each request takes long, the contiguous file can be \
                 slower. In the literature on defragmentation, reading took 25 % less time, and copying 35 %"
            }
            Self::Oltp => {
                "A file in shuffled fragments of 16 KiB, and an optimized file. fio runs with O_DIRECT, libaio and \
                 queue depth 8. The file-server profile makes random requests, four reads to each write, of 4 (40 \
                 %), 8 (30 %), 16 (20 %) and 32 KiB (10 %). The volume is remounted before each run. In the \
                 literature on defragmentation, such a mix reached 221 % more requests per second, and a database \
                 482 to 5402 % more"
            }
            Self::Install => installing::CONDITIONS,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct LayoutCampaign {
    /// The `longrun` that optimizes.
    pub program: PathBuf,
    /// On which disks.
    pub models: Vec<DiskModel>,
    /// On which file system.
    pub kind: FileSystemKind,
    /// How large the files of each layout are together.
    pub bytes: Bytes,
    /// How often each layout is measured.
    pub iterations: u32,
    /// For how long fio runs each profile.
    pub fio_time: Duration,
    /// What is unpacked.
    pub software: Source,
    /// How far the kernel reads ahead, in KiB.
    pub read_ahead_kib: u32,
    /// Of everything random.
    pub seed: u64,
    /// Where each result goes as JSON.
    pub json: Option<PathBuf>,
}

/// Files of the tree that `copy` copies besides one large file.
const TREE: u32 = 64;
/// Fragments of what is copied.
const COPY_PIECE: Bytes = Bytes(64 << 10);

/// Makes the disks one after the other and measures on each; the report in Markdown.
///
/// # Errors
/// When a disk, volume or file cannot be made, the optimizer fails, or fio is missing.
pub fn layouts(bench: LayoutBench, campaign: &LayoutCampaign, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let mut other = match campaign.kind {
        FileSystemKind::Ext4 => String::new(),
        kind => format!(", on {}", kind.name()),
    };
    if campaign.read_ahead_kib != READ_AHEAD_KIB {
        _ = write!(other, ", with a read-ahead of {} KiB", campaign.read_ahead_kib);
    }
    let mut text = format!(
        "# {}{other}\n\nWritten by `make bench-layouts`; do not edit. All figures are measured on a *modelled* disk \
         (`crates/lab/src/disk`): a block device below the kernel's merging and scheduling, whose requests take as \
         long as a model of the disk says. `longrun bench {} DIR` measures the same on your disk.\n\n{}; median of \
         {}, layouts taking turns; {}. The read-ahead is {} KiB. \"Disk busy\" is the time of the model, which the \
         load of the host does not change.\n\nMachine: {}. Processes that wanted to run: {}.\n",
        bench.heading(),
        bench.name(),
        campaign.kind.name(),
        campaign.iterations,
        lower(bench.conditions()),
        campaign.read_ahead_kib,
        machine(),
        load(),
    );
    let installing = match bench {
        LayoutBench::Install => Some(Installing::prepare(campaign, progress)?),
        _ => None,
    };
    for model in &campaign.models {
        progress(&format!("{} on a {}", bench.name(), model.describe()));
        write!(text, "\n## {}\n", upper(&model.describe()))?;
        if let Some(installing) = &installing {
            installing.on_disk(campaign, *model, progress, &mut text)?;
            continue;
        }
        for files in if bench == LayoutBench::Copy { vec![1, TREE] } else { vec![1] } {
            on_disk(bench, campaign, *model, files, progress, &mut text)?;
        }
    }
    Ok(text)
}

fn on_disk(
    bench: LayoutBench,
    campaign: &LayoutCampaign,
    model: DiskModel,
    files: u32,
    progress: &mut dyn FnMut(&str),
    text: &mut String,
) -> Result<()> {
    let size = Bytes(campaign.bytes.0 * 10 + (512 << 20));
    let disk = Arc::new(ModelledDisk::start(model, campaign.seed, &[size])?);
    disk.set_read_ahead(campaign.read_ahead_kib)?;
    let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(campaign.kind, size.0 >> 20).mount("noatime"))?;
    let stop = AtomicBool::new(false);
    let &LayoutCampaign { bytes, iterations, seed, .. } = campaign;
    let layout = LayoutSettings { program: campaign.program.clone(), files, bytes, iterations, seed };
    let start = disk.statistics()?;
    let mut stage = OnDisk { disk: &disk, volume: &volume, progress, before: start };
    let (point, mut found) = (volume.mount_point(), Found { text, json: serde_json::Value::Null });
    match bench {
        LayoutBench::Reads => {
            let reads = stage.prepared(|stage| Reads::prepare(&point, layout, &stop, stage))?;
            found.add(&reads.measure(&mut stage)?)?;
        }
        LayoutBench::Copy => {
            let copies = stage.prepared(|stage| Copies::prepare(&point, layout, COPY_PIECE, &stop, stage))?;
            found.add(&copies.measure(&mut stage)?)?;
        }
        LayoutBench::Oltp => {
            let settings = OltpSettings { layout, profiles: OltpProfile::ALL.to_vec(), time: campaign.fio_time };
            let oltp = stage.prepared(|stage| Oltp::prepare(&point, settings, Path::new("fio"), &stop, stage))?;
            found.add(&oltp.measure(&mut stage)?)?;
        }
        // On two disks.
        LayoutBench::Install => {}
    }
    let late = disk.statistics()?.since(start).late_micros();
    let many = if files > 1 { "-many" } else { "" };
    found.finish(&format!("{}{many}", bench.name()), late, campaign, model)
}

/// Where findings go.
pub(crate) struct Found<'a> {
    pub text: &'a mut String,
    pub json: serde_json::Value,
}

impl Found<'_> {
    pub fn add<F: Findings>(&mut self, findings: &F) -> Result<()> {
        write!(self.text, "\n{}:\n\n{}\n", upper(&findings.title()), findings.table().markdown())?;
        for sentence in findings.sentences() {
            write!(self.text, "{sentence} ")?;
        }
        self.json = serde_json::to_value(findings)?;
        Ok(())
    }

    /// Tells how well the disk kept to its model, and writes the file that was asked for.
    pub fn finish(self, name: &str, late: f64, campaign: &LayoutCampaign, model: DiskModel) -> Result<()> {
        writeln!(self.text, "Answers were {late:.0} µs later than in the model, on average.")?;
        let Some(directory) = &campaign.json else { return Ok(()) };
        let json = serde_json::json!({ "modelled_disk": model.describe(), "late_micros": late, "report": self.json });
        save_json(directory, &format!("{name}-{}-{}", campaign.kind.name(), model.name()), &json)
    }
}

/// A volume on a modelled disk while something is measured there.
pub(crate) struct OnDisk<'a> {
    pub disk: &'a ModelledDisk,
    pub volume: &'a LoopVolume,
    pub progress: &'a mut dyn FnMut(&str),
    /// When the present measurement began.
    pub before: Statistics,
}

impl OnDisk<'_> {
    /// Does what is not measured, in no time.
    fn prepared<T>(&mut self, act: impl FnOnce(&mut dyn Stage) -> Result<T, BenchError>) -> Result<T> {
        self.disk.without_model(|| Ok(act(self)?))
    }

    fn failed(&self, error: &anyhow::Error) -> BenchError {
        BenchError::Unsuitable { path: self.volume.mount_point(), problem: format!("{error:#}") }
    }
}

impl Stage for OnDisk<'_> {
    fn making(&mut self, step: Step<'_>) {
        (self.progress)(&format!("  making {}", step.what));
    }

    fn begin(&mut self, step: Step<'_>) -> Result<(), BenchError> {
        (self.progress)(&format!("  {}/{} {}", step.number + 1, step.of, step.what));
        let ready = self.disk.without_model(|| self.volume.remount()).and_then(|()| self.disk.statistics());
        self.before = ready.map_err(|e| self.failed(&e))?;
        Ok(())
    }

    fn end(&mut self) -> Result<Option<f64>, BenchError> {
        let now = self.disk.statistics().map_err(|e| self.failed(&e))?;
        Ok(Some(now.since(self.before).busy_nanos as f64 / 1e9))
    }

    fn aside(&mut self, act: &mut dyn FnMut() -> Result<(), BenchError>) -> Result<(), BenchError> {
        self.disk.without_model(|| Ok(act())).map_err(|e| self.failed(&e))?
    }
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
