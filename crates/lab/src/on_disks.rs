//! The commands of `longrun-lab` for modelled disks: making one, and the benchmarks on them.

use crate::results::Results;
use crate::{all_unless, file_system, plain};
use anyhow::Result;
use clap::Args;
use longrun_bench::install::Source;
use longrun_bench::invisibility::{InvisibilitySettings, Mode};
use longrun_lab::disk::{DiskModel, ModelledDisk, READ_AHEAD_KIB, Validation, validate};
use longrun_lab::{
    BootCampaign, FileSystemKind, InvisibilityCampaign, LayoutBench, LayoutCampaign, LoopVolume, boots, invisibility,
    layouts, longrun_binary,
};
use longrun_layout::Bytes;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `disk`.
#[derive(Args)]
pub struct DiskArguments {
    /// Use this disk model: cloud, hdd, ssd, san.
    #[arg(long, value_parser = disk_model, default_value = "hdd")]
    model: DiskModel,
    /// Set the size of each client's block device in MiB.
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// Share the disk between this many clients; each gets its own block device.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Create and mount this file system for each client: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Option<FileSystemKind>,
    /// Compare the rates that fio measures with those of the model, then end.
    #[arg(long)]
    validate: bool,
    /// Seed the random numbers of the model.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What benchmarks on modelled disks have in common.
#[derive(Args)]
pub struct OnDisks {
    /// Use only these disk models: cloud, hdd, ssd, san (default: those of the benchmark).
    #[arg(long, value_parser = disk_model)]
    model: Vec<DiskModel>,
    /// Use this file system: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system, default_value = "ext4")]
    filesystem: FileSystemKind,
    /// Where the report goes.
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
    /// Run only these benchmarks: reads, copy, oltp, install.
    #[arg(long, value_parser = layout_bench)]
    only: Vec<LayoutBench>,
    /// Set the total size of the files of each layout, in MiB.
    #[arg(long, default_value_t = 128)]
    mebibytes: u64,
    /// Measure each layout this often.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Run each fio profile for this many seconds.
    #[arg(long, default_value_t = 3)]
    fio_seconds: u64,
    /// Set the read-ahead of the kernel in KiB; with another value than the default the report is a section of its own.
    #[arg(long, default_value_t = READ_AHEAD_KIB)]
    read_ahead: u32,
    /// Unpack this tar archive (default: up to 240 MiB of /usr).
    #[arg(long)]
    archive: Option<PathBuf>,
    /// Where it runs, and where the report goes.
    #[command(flatten)]
    on: OnDisks,
}

fn layout_bench(name: &str) -> Result<LayoutBench, String> {
    let found = LayoutBench::ALL.into_iter().find(|bench| bench.name() == name);
    found.ok_or_else(|| LayoutBench::ALL.map(LayoutBench::name).join(", "))
}

/// The default I/O scheduler of hard disks.
const SCHEDULER: &str = "mq-deadline";

/// Arguments of `invisibility`.
#[derive(Args)]
pub struct InvisibilityArguments {
    /// Measure only these modes: alone, unthrottled, ionice, invisible.
    #[arg(long)]
    mode: Vec<Mode>,
    /// Use this I/O scheduler for hard disks: mq-deadline, bfq.
    #[arg(long, default_value = SCHEDULER)]
    scheduler: String,
    /// Set the size of the copied file in MiB.
    #[arg(long, default_value_t = 500)]
    copy_mebibytes: u64,
    /// Make at least this many small reads in each turn, and at least as many as come in ten seconds.
    #[arg(long, default_value_t = 40)]
    reads: u32,
    /// Measure each mode this often.
    #[arg(long, default_value_t = 5)]
    iterations: u32,
    /// Where it runs, and where the report goes.
    #[command(flatten)]
    on: OnDisks,
}

/// Arguments of `boots`.
#[derive(Args)]
pub struct BootsArguments {
    /// Boot a copy of the system in this directory, which has systemd
    #[arg(long)]
    system: PathBuf,
    /// Set the size of the volume in MiB.
    #[arg(long, default_value_t = 6144)]
    mebibytes: u64,
    /// Boot this often with reading ahead, and this often without.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Where it runs, and where the report goes.
    #[command(flatten)]
    on: OnDisks,
}

/// Boots a system with reading ahead and without.
pub fn run_boots(arguments: BootsArguments) -> Result<()> {
    let on = &arguments.on;
    let campaign = BootCampaign {
        program: longrun_binary()?,
        system: arguments.system,
        models: on.models(&["hdd", "san", "cloud", "ssd"]),
        mebibytes: arguments.mebibytes,
        iterations: arguments.iterations,
        seed: on.to.seed,
    };
    on.to.publish("boots", &boots(&campaign, &mut |what| eprintln!("{what}"))?)
}

fn disk_model(name: &str) -> Result<DiskModel, String> {
    DiskModel::by_name(name).ok_or_else(|| DiskModel::NAMES.join(", "))
}

/// Creates a modelled disk, and removes it when a signal arrives.
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
    writeln!(out, "Ctrl-C removes it.")?;
    loop {
        std::thread::park();
    }
}

/// Measures the same bytes in several layouts.
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

/// Measures other programs beside an optimizer.
pub fn run_invisibility(arguments: InvisibilityArguments) -> Result<()> {
    let on = &arguments.on;
    let campaign = InvisibilityCampaign {
        models: on.models(&["cloud", "hdd", "ssd"]),
        kind: on.filesystem,
        scheduler: arguments.scheduler.clone(),
        settings: InvisibilitySettings {
            program: longrun_binary()?,
            modes: all_unless(arguments.mode, &Mode::ALL),
            copy: Bytes(arguments.copy_mebibytes << 20),
            reads: arguments.reads,
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            iterations: arguments.iterations,
            seed: on.to.seed,
        },
        json: on.to.json.clone(),
    };
    let scheduler = Some(arguments.scheduler).filter(|name| name != SCHEDULER);
    on.to.publish(&on.section("invisibility", scheduler), &invisibility(&campaign, &mut |what| eprintln!("{what}"))?)
}
