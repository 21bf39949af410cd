//! Commands of `longrun-lab` about modelled disks: making one, and the benchmarks that run on them.

use crate::results::Results;
use crate::{all_unless, file_system, plain};
use anyhow::Result;
use clap::Args;
use longrun_bench::install::Source;
use longrun_bench::invisibility::{InvisibilitySettings, Mode};
use longrun_lab::disk::{DiskModel, ModelledDisk, READ_AHEAD_KIB, Validation, validate};
use longrun_lab::{
    FileSystemKind, InvisibilityCampaign, LayoutBench, LayoutCampaign, LoopVolume, invisibility, layouts,
    longrun_binary,
};
use longrun_layout::Bytes;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `disk`.
#[derive(Args)]
pub struct DiskArguments {
    /// What it is like: cloud, hdd, ssd, san.
    #[arg(long, value_parser = disk_model, default_value = "hdd")]
    model: DiskModel,
    /// Size of each client's part in MiB.
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// How many share it: each gets a block device of its own.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Make and mount such a file system for each: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Option<FileSystemKind>,
    /// Compare what fio measures on it with what the model says, in place of waiting.
    #[arg(long)]
    validate: bool,
    /// Seed of whatever the model draws by lot.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What benchmarks on modelled disks have in common.
#[derive(Args)]
pub struct OnDisks {
    /// Only these disks: cloud, hdd, ssd, san; the usual ones of the benchmark otherwise.
    #[arg(long, value_parser = disk_model)]
    model: Vec<DiskModel>,
    /// On which file system: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system, default_value = "ext4")]
    filesystem: FileSystemKind,
    /// Where to.
    #[command(flatten)]
    to: Results,
}

impl OnDisks {
    /// The disks that were chosen, or these.
    fn models(&self, usual: &[&str]) -> Vec<DiskModel> {
        let usual: Vec<_> = usual.iter().filter_map(|name| DiskModel::by_name(name)).collect();
        all_unless(self.model.clone(), &usual)
    }

    /// The part of the document for a benchmark: one of its own for each file system, and for `others` than usual.
    fn section(&self, bench: &str, others: Option<String>) -> String {
        let kind = (self.filesystem != FileSystemKind::Ext4).then(|| self.filesystem.name().to_owned());
        [bench.to_owned()].into_iter().chain(kind).chain(others).collect::<Vec<_>>().join("-")
    }
}

/// Arguments of `layouts`.
#[derive(Args)]
pub struct LayoutsArguments {
    /// Only these benchmarks: reads, copy, oltp, install.
    #[arg(long, value_parser = layout_bench)]
    only: Vec<LayoutBench>,
    /// How large the files of each layout are together, in MiB.
    #[arg(long, default_value_t = 128)]
    mebibytes: u64,
    /// How often each layout is measured.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// For how many seconds fio runs each profile.
    #[arg(long, default_value_t = 3)]
    fio_seconds: u64,
    /// How far the kernel reads ahead, in KiB; other than usual, the report is a part of its own of the document.
    #[arg(long, default_value_t = READ_AHEAD_KIB)]
    read_ahead: u32,
    /// What is installed: a tar archive; up to 240 MiB of /usr otherwise.
    #[arg(long)]
    archive: Option<PathBuf>,
    /// Where, and where to.
    #[command(flatten)]
    on: OnDisks,
}

fn layout_bench(name: &str) -> Result<LayoutBench, String> {
    let found = LayoutBench::ALL.into_iter().find(|bench| bench.name() == name);
    found.ok_or_else(|| LayoutBench::ALL.map(LayoutBench::name).join(", "))
}

/// The usual I/O scheduler of disks with one arm.
const SCHEDULER: &str = "mq-deadline";

/// Arguments of `invisibility`.
#[derive(Args)]
pub struct InvisibilityArguments {
    /// Only these: alone, unthrottled, ionice, invisible.
    #[arg(long)]
    mode: Vec<Mode>,
    /// I/O scheduler of disks with one arm: mq-deadline, bfq.
    #[arg(long, default_value = SCHEDULER)]
    scheduler: String,
    /// Size of the copied file in MiB.
    #[arg(long, default_value_t = 500)]
    copy_mebibytes: u64,
    /// Small reads in each turn.
    #[arg(long, default_value_t = 40)]
    reads: u32,
    /// Turns of each mode.
    #[arg(long, default_value_t = 5)]
    iterations: u32,
    /// Where, and where to.
    #[command(flatten)]
    on: OnDisks,
}

fn disk_model(name: &str) -> Result<DiskModel, String> {
    DiskModel::by_name(name).ok_or_else(|| DiskModel::NAMES.join(", "))
}

/// Makes a modelled disk, and holds it until a signal takes it down.
pub fn run_disk(arguments: &DiskArguments) -> Result<()> {
    let sizes = vec![Bytes(arguments.mebibytes << 20); arguments.clients.max(1)];
    let disk = Arc::new(ModelledDisk::start(arguments.model, arguments.seed, &sizes)?);
    let mut out = std::io::stdout();
    writeln!(out, "{}", arguments.model.describe())?;
    if arguments.validate {
        writeln!(out, "{}", Validation::HEADER)?;
        for line in validate(&disk, Bytes(arguments.mebibytes << 20), arguments.seed)? {
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    let mut volumes = Vec::new();
    for client in 0..sizes.len() {
        write!(out, "{}", disk.device(client)?.display())?;
        if let Some(kind) = arguments.filesystem {
            let volume = LoopVolume::create_on(&disk, client, &plain(kind, arguments.mebibytes))?;
            write!(out, " {}", volume.mount_point().display())?;
            volumes.push(volume);
        }
        writeln!(out)?;
    }
    writeln!(out, "Ctrl-C takes it down.")?;
    loop {
        std::thread::park();
    }
}

/// Measures the same bytes laid in several ways.
pub fn run_layouts(arguments: LayoutsArguments) -> Result<()> {
    let on = &arguments.on;
    let campaign = LayoutCampaign {
        program: longrun_binary()?,
        models: on.models(&["cloud", "hdd", "ssd"]),
        kind: on.filesystem,
        bytes: Bytes(arguments.mebibytes << 20),
        iterations: arguments.iterations,
        fio_time: Duration::from_secs(arguments.fio_seconds),
        read_ahead_kib: arguments.read_ahead,
        software: arguments
            .archive
            .map_or_else(|| Source::Tree { path: "/usr".into(), most: Bytes(240 << 20) }, Source::Archive),
        seed: on.to.seed,
        json: on.to.json.clone(),
    };
    for bench in all_unless(arguments.only, &LayoutBench::ALL) {
        // A part of its own for each, so that measuring one leaves the figures of the others.
        let ahead = arguments.read_ahead;
        let section = on.section(bench.name(), (ahead != READ_AHEAD_KIB).then(|| format!("read-ahead-{ahead}")));
        on.to.publish(&section, &layouts(bench, &campaign, &mut |what| eprintln!("{what}"))?)?;
    }
    Ok(())
}

/// Works beside an optimizer.
pub fn run_invisibility(arguments: InvisibilityArguments) -> Result<()> {
    let on = &arguments.on;
    let campaign = InvisibilityCampaign {
        models: on.models(&["cloud", "hdd"]),
        kind: on.filesystem,
        scheduler: arguments.scheduler.clone(),
        settings: InvisibilitySettings {
            program: longrun_binary()?,
            modes: all_unless(arguments.mode, &Mode::ALL),
            copy: Bytes(arguments.copy_mebibytes << 20),
            reads: arguments.reads,
            reads_per_second: 0.0,
            iterations: arguments.iterations,
            seed: on.to.seed,
        },
        json: on.to.json.clone(),
    };
    let scheduler = Some(arguments.scheduler).filter(|name| name != SCHEDULER);
    on.to.publish(&on.section("invisibility", scheduler), &invisibility(&campaign, &mut |what| eprintln!("{what}"))?)
}
