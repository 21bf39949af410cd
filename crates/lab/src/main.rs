//! `longrun-lab`: the laboratory from the command line.

mod ageing_command;
mod fleet_command;
mod hostile_command;
mod kernels_command;
mod on_disks;
mod results;
mod scale_command;
mod unmounted_command;

use ageing_command::{AgeingArguments, run_ageing};
use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_command::{FleetArguments, RollOutArguments, run_fleet, run_roll_out};
use hostile_command::{HostileArguments, HostileUserArguments, run_hostile};
use kernels_command::{KernelsArguments, run_kernels};
use longrun_ageing::Recipe;
use longrun_bench::{Parameters, Profile};
use longrun_lab::{
    BenchSettings, CrashSettings, FileSystemKind, Filling, FreeSpaceKind, KillSettings, LoopVolume, Medium, Optimizer,
    Phase, PreventionSettings, SoakSettings, TortureSettings, TrimTortureSettings, VolumeSpec, bench, crash,
    fill_beside, kills, longrun_binary, on_hard_disk, prevention, prevention_report, scan, soak, torture, trim_torture,
};
use longrun_layout::Bytes;
use on_disks::{
    BootsArguments, DiskArguments, InvisibilityArguments, LayoutsArguments, run_boots, run_disk, run_invisibility,
    run_layouts,
};
use results::publish;
use scale_command::{PlanArguments, ScaleArguments, run_scale};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use unmounted_command::{UnmountedArguments, run_unmounted};

/// Loop volumes, crash and torture tests, benchmarks. Needs root; touches only volumes that it makes itself.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The phases of the benchmark.
#[derive(Clone, Copy, ValueEnum)]
enum Only {
    Optimize,
    Copy,
    Analyze,
}

impl From<Only> for Phase {
    fn from(only: Only) -> Self {
        match only {
            Only::Optimize => Self::Optimize,
            Only::Copy => Self::Copy,
            Only::Analyze => Self::Analyze,
        }
    }
}

#[derive(Subcommand)]
enum Command {
    /// Run the service under a mixed load, with volumes mounted and unmounted, and check that its memory and files do not grow.
    Soak {
        /// Run for this many minutes.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
    },
    /// Interrupt an optimizer by crashes at random moments, and compare all data after recovery.
    Crash {
        /// Make this many crashes.
        #[arg(long, default_value_t = 100)]
        runs: u64,
        /// Seed the random numbers of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Set the size of the volumes in MiB.
        #[arg(long, default_value_t = 512)]
        mebibytes: u64,
        /// Run this optimizer: full, efficient, files (modes of Longrun, also placing-full and so on), e4defrag, xfs_fsr or btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
        /// Set the pace of Longrun: invisible, balanced or fast. With all but fast it reads in turns.
        #[arg(long)]
        pace: Option<String>,
    },
    /// Measure Longrun, the file systems' own tools and cp on copies of the same aged volumes.
    Bench {
        /// Run only these phases.
        #[arg(long, value_enum)]
        only: Vec<Only>,
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Use only these recipes: aged, server, office, media, git, churn, crowded, tight (default: those that suit each file system).
        #[arg(long)]
        recipe: Vec<Recipe>,
        /// Use only devices that report this medium: rotating, solid-state.
        #[arg(long, value_parser = medium)]
        medium: Vec<Medium>,
        /// Set the size of each volume in MiB.
        #[arg(long, default_value_t = 4096)]
        mebibytes: u64,
        /// Repeat each measurement this often.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// Seed the random numbers of the ageing.
        #[arg(long, default_value_t = 42)]
        seed: u64,
        /// Take this many snapshots of a btrfs volume, and change files after each.
        #[arg(long, default_value_t = 0)]
        snapshots: u64,
        /// Time the analysis of one more volume of each file system, with this many small files; 0 for none.
        #[arg(long, default_value_t = 200_000)]
        many_files: u64,
        /// Write the report to this file instead of to standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// Compare the time of `longrun analyze` on many small files with that of mapping each file, from a cold cache.
    Scan {
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Create this many files.
        #[arg(long, default_value_t = 1_000_000)]
        files: u64,
        /// Repeat each measurement this often.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// Write the report into this document instead of to standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// Measure what many files cost: plans for simulated ones, analysis and full passes of real ones.
    Scale(ScaleArguments),
    /// Plan for simulated files; started by the laboratory itself.
    #[command(name = longrun_lab::PLAN_COMMAND, hide = true)]
    PlanManyFiles(PlanArguments),
    /// Kill Longrun, and the programs of QEMU that it starts, at random moments of work on disk images with NTFS.
    Kills {
        /// Kill this often.
        #[arg(long, default_value_t = 30)]
        runs: u64,
        /// Seed of the first run; each further run has the next one.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Set the size of the disks in MiB.
        #[arg(long, default_value_t = 128)]
        mebibytes: u64,
    },
    /// Optimize NTFS volumes that are not mounted, judge them by the tools of ntfs-3g, and time the run beside a plain copy.
    Unmounted(UnmountedArguments),
    /// Check that everything works on the running kernel; for virtual machines with other kernels.
    Kernels(KernelsArguments),
    /// Provide a block device that is as slow as a real disk, until interrupted. Measurements on it are modelled.
    Disk(DiskArguments),
    /// Compare reading, copying and database I/O on the same bytes in several layouts, on modelled disks.
    Layouts(LayoutsArguments),
    /// Boot a whole system in a container on modelled disks, with reading ahead and without.
    Boots(BootsArguments),
    /// Measure other programs beside an optimizer in several modes, on modelled disks.
    Invisibility(InvisibilityArguments),
    /// Simulate weeks of use of volumes: without maintenance, with the file system's own tool, and with the service.
    Ageing(AgeingArguments),
    /// Serve a modelled disk; started by the laboratory itself.
    #[command(name = longrun_lab::disk::SERVE_COMMAND, hide = true)]
    ServeDisk,
    /// Compare writing with prevention and without it, on each file system and with each workload.
    Prevention(PreventionArguments),
    /// Check, for each kind of quota, that prevention neither uses up the quota of a user nor lets a user exceed it.
    Quotas {
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
    },
    /// Fill a volume while an optimizer works on it, and compare the result with filling it alone.
    Full {
        /// Seed of the aged volume.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write at the speed of memory, not of the device.
        #[arg(long)]
        burst: bool,
        /// Start to fill the volume after this many milliseconds.
        #[arg(long, default_value_t = 500)]
        after: u64,
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Set the size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// Run this optimizer: full, efficient, files (modes of Longrun, also placing-full and so on), e4defrag, xfs_fsr or btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
    /// Let files grow in many ways while runways are granted and given back, and compare every byte.
    TrimTorture {
        /// Make this many appends on each file system.
        #[arg(long, default_value_t = 300_000)]
        appends: u64,
        /// Run on ext4, xfs, btrfs or all.
        #[arg(long, default_value = "all")]
        fs: String,
        /// Append with this many threads.
        #[arg(long, default_value_t = 8)]
        writers: u64,
        /// Seed the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run agents of a fleet at real brokers, with faults of all kinds: never do more hosts of a group work than may.
    Fleet(FleetArguments),
    /// Roll policies out to many real services: one that raises an alert is taken back, a good one reaches all.
    RollOut(RollOutArguments),
    /// Run the service and repeated passes against a hostile unprivileged user and volumes that do not respond.
    Hostile(HostileArguments),
    /// Act as that user; started by the laboratory itself.
    #[command(name = longrun_lab::USER_COMMAND, hide = true)]
    HostileUser(HostileUserArguments),
    /// Write, read, rename and execute files in many ways while an optimizer runs.
    Torture {
        /// Seed the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Run this many seconds beside the optimizer, and half as many without it before.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Run only on these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Set the size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// Run this optimizer: full, efficient, files (modes of Longrun, also placing-full and so on), e4defrag, xfs_fsr or btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
}

#[derive(Args)]
struct PreventionArguments {
    /// Run only on these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// Run only on this free space: whole, half-in-pieces, in-pieces.
    #[arg(long)]
    space: Vec<FreeSpaceKind>,
    /// Run only these workloads.
    #[arg(long)]
    profile: Vec<Profile>,
    /// Run each workload this often with prevention, and as often without it.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Run the workloads in which prevention should change nothing this often, with it and without it.
    #[arg(long, default_value_t = 5)]
    control_iterations: u32,
    /// Run this many writers at the same time.
    #[arg(long, default_value_t = 8)]
    writers: u32,
    /// Set the size that the file of each writer reaches, in MiB.
    #[arg(long, default_value_t = 64)]
    file_mebibytes: u64,
    /// Size of each volume in MiB; volumes with fragmented free space get half of it.
    #[arg(long, default_value_t = 8192)]
    mebibytes: u64,
    /// Seed the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure the cost of the idle service for this many seconds on each file system.
    #[arg(long, default_value_t = 20)]
    watch_seconds: u64,
    /// Replace this section of the document.
    #[arg(long, default_value = "prevention")]
    section: String,
    /// Write the report into this document instead of to standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

fn medium(name: &str) -> Result<Medium, String> {
    let known = Medium::ALL.into_iter().find(|medium| medium.name() == name);
    known.ok_or_else(|| "use rotating or solid-state".to_owned())
}

fn file_system(name: &str) -> Result<FileSystemKind, String> {
    let found = FileSystemKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| "use ext4, xfs or btrfs".to_owned())
}

/// The file systems that whole volumes can be optimized on.
const OPTIMIZED: &[FileSystemKind] = &FileSystemKind::ALL;

/// Those that an optimizer is run on: on btrfs no place can be chosen.
fn optimized_by(optimizer: &Optimizer) -> &'static [FileSystemKind] {
    if optimizer.places() { &[FileSystemKind::Ext4, FileSystemKind::Xfs] } else { OPTIMIZED }
}

/// What was chosen, or everything.
fn all_unless<T: Clone>(chosen: Vec<T>, all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen }
}

/// A volume as mkfs makes it, with blocks of 4 KiB however small it is.
fn plain(kind: FileSystemKind, mebibytes: u64) -> VolumeSpec {
    let spec = VolumeSpec::of(kind, mebibytes);
    if kind == FileSystemKind::Ext4 { spec.mkfs(&["-b", "4096"]) } else { spec }
}

fn main() -> Result<()> {
    let result = run();
    longrun_lab::cleanup::yield_to_signal();
    result
}

fn run() -> Result<()> {
    let mut out = std::io::stdout();
    match Arguments::parse().command {
        Command::Soak { minutes } => {
            let settings = SoakSettings { time: Duration::from_secs(minutes * 60), sample: Duration::from_secs(5) };
            writeln!(out, "no growth\n{}", serde_json::to_string_pretty(&soak(settings)?)?)?;
        }
        Command::Crash { runs, seed, filesystem, mebibytes, optimizer, pace } => {
            let optimizer = Optimizer::by_name(&optimizer)?;
            let optimizer = match pace {
                Some(pace) => optimizer.at_pace(&pace)?,
                None => optimizer,
            };
            for kind in all_unless(filesystem, optimized_by(&optimizer)) {
                let settings = CrashSettings { kind, runs, seed, mebibytes };
                let (mut survived, mut at_work, mut placed) = (0, 0, 0);
                crash(&settings, &optimizer, &mut |run| {
                    survived += 1;
                    at_work += u32::from(run.interrupted);
                    placed += run.placed;
                    // A closed standard output must not end the test.
                    let _ = writeln!(out, "{survived}/{runs} {}", serde_json::to_string(run).unwrap_or_default());
                })?;
                anyhow::ensure!(!optimizer.places() || placed > 0, "no file was placed: this proves nothing");
                writeln!(
                    out,
                    "{}: {survived} crashes survived ({at_work} during work): 0 files changed, every file system \
                     clean, no space lost",
                    kind.name()
                )?;
            }
        }
        Command::Bench { only, filesystem, recipe, medium, mebibytes, runs, seed, snapshots, many_files, output } => {
            let phases =
                if only.is_empty() { Phase::ALL.to_vec() } else { only.into_iter().map(Phase::from).collect() };
            for kind in all_unless(filesystem, OPTIMIZED) {
                let (phases, recipes) = (phases.clone(), recipe.clone());
                let (kinds, media) = (vec![kind], all_unless(medium.clone(), &Medium::ALL));
                let settings =
                    BenchSettings { phases, kinds, recipes, media, mebibytes, runs, seed, snapshots, many_files };
                let text = bench(&settings, &mut |what| eprintln!("{what}"))?;
                // A part of its own for each, so that measuring one leaves the figures of the others.
                let section = match kind {
                    FileSystemKind::Ext4 => "optimization".to_owned(),
                    other => format!("optimization-{}", other.name()),
                };
                publish(output.as_deref(), &section, &text)?;
            }
        }
        Command::Scan { filesystem, files, runs, output } => {
            let kinds = all_unless(filesystem, &FileSystemKind::ALL);
            let text = scan(&kinds, files, runs, &mut |what| eprintln!("{what}"))?;
            publish(output.as_deref(), "scan", &text)?;
        }
        Command::Scale(arguments) => run_scale(&arguments)?,
        Command::PlanManyFiles(arguments) => arguments.run()?,
        Command::Fleet(arguments) => run_fleet(arguments)?,
        Command::RollOut(arguments) => run_roll_out(&arguments)?,
        Command::Hostile(arguments) => run_hostile(arguments)?,
        Command::HostileUser(arguments) => arguments.run()?,
        Command::Kills { runs, seed, mebibytes } => {
            let (mut survived, mut at_work) = (0, 0);
            kills(&KillSettings { seed, runs, mebibytes }, &mut |kill| {
                survived += 1;
                at_work += u32::from(kill.at_work);
                // A closed standard output must not end the test.
                let _ = writeln!(out, "{survived}/{runs} {}", serde_json::to_string(kill).unwrap_or_default());
            })?;
            writeln!(
                out,
                "{survived} kills survived ({at_work} during work): 0 files changed, every image and volume clean"
            )?;
        }
        Command::Unmounted(arguments) => run_unmounted(&arguments)?,
        Command::Kernels(arguments) => run_kernels(arguments)?,
        Command::Disk(arguments) => run_disk(&arguments)?,
        Command::Layouts(arguments) => run_layouts(arguments)?,
        Command::Boots(arguments) => run_boots(arguments)?,
        Command::Invisibility(arguments) => run_invisibility(arguments)?,
        Command::Ageing(arguments) => run_ageing(&arguments)?,
        Command::ServeDisk => longrun_lab::disk::serve()?,
        Command::Prevention(arguments) => run_prevention(arguments)?,
        Command::Quotas { filesystem } => {
            for kind in all_unless(filesystem, &FileSystemKind::ALL) {
                let reports = longrun_lab::quotas(kind, longrun_lab::Medium::of_this_run())?;
                anyhow::ensure!(!reports.is_empty(), "{}: this kernel has no quotas", kind.name());
                for report in reports {
                    writeln!(out, "as promised: {}", serde_json::to_string(&report)?)?;
                }
            }
        }
        Command::Full { seed, burst, after, filesystem, mebibytes, optimizer } => {
            for kind in all_unless(filesystem, OPTIMIZED) {
                let recipe = match kind {
                    FileSystemKind::Ext4 => Recipe::Aged,
                    FileSystemKind::Xfs => Recipe::Churn,
                    FileSystemKind::Btrfs => Recipe::Server,
                };
                let (volume, _) = LoopVolume::aged(&plain(kind, mebibytes), recipe, seed)?;
                let filling = if burst { Filling::Burst } else { Filling::Steady };
                let optimizer = Optimizer::by_name(&optimizer)?;
                let report = fill_beside(&volume, &optimizer, Duration::from_millis(after), filling)?;
                writeln!(out, "{}: {}", kind.name(), serde_json::to_string_pretty(&report)?)?;
            }
        }
        Command::TrimTorture { appends, fs, writers, seed } => {
            let kinds = FileSystemKind::ALL.into_iter().filter(|kind| fs == "all" || fs == kind.name());
            let mut tortured = 0;
            for kind in kinds {
                let report = trim_torture(&TrimTortureSettings { kind, appends, writers, seed })?;
                writeln!(out, "0 bytes wrong {}", serde_json::to_string(&report)?)?;
                tortured += 1;
            }
            anyhow::ensure!(tortured > 0, "{fs}: use ext4, xfs, btrfs or all");
        }
        Command::Torture { seed, seconds, filesystem, mebibytes, optimizer } => {
            let beside = Duration::from_secs(seconds);
            let settings = TortureSettings { seed, alone: beside / 2, beside };
            let optimizer = Optimizer::by_name(&optimizer)?;
            for kind in all_unless(filesystem, optimized_by(&optimizer)) {
                let spec = match kind {
                    FileSystemKind::Ext4 => VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096", "-m", "0"]),
                    other => plain(other, mebibytes),
                };
                let recipe = if optimizer.places() { Recipe::Server } else { Recipe::Aged };
                let (volume, _) = LoopVolume::aged(&spec, recipe, seed)?;
                let volume = if optimizer.places() { on_hard_disk(&volume)? } else { volume };
                let report = torture(&volume, &optimizer, &settings)?;
                anyhow::ensure!(!optimizer.places() || report.placed > 0, "no file was placed: this proves nothing");
                writeln!(out, "{}: 0 bytes wrong\n{}", kind.name(), serde_json::to_string_pretty(&report)?)?;
            }
        }
    }
    Ok(())
}

fn run_prevention(arguments: PreventionArguments) -> Result<()> {
    let bytes = Bytes(arguments.file_mebibytes << 20);
    let settings = PreventionSettings {
        program: longrun_binary()?,
        kinds: all_unless(arguments.filesystem, &FileSystemKind::ALL),
        spaces: all_unless(arguments.space, &FreeSpaceKind::ALL),
        profiles: all_unless(arguments.profile, &Profile::ALL),
        iterations: arguments.iterations,
        control_iterations: arguments.control_iterations,
        parameters: Parameters { writers: arguments.writers, bytes, seed: arguments.seed, ..Parameters::default() },
        mebibytes: arguments.mebibytes,
        reread: true,
        paced: Duration::from_secs(arguments.watch_seconds),
    };
    let results = prevention(&settings, &mut |what| eprintln!("{what}"))?;
    let text = prevention_report(&settings, &results)?;
    publish(arguments.output.as_deref(), &arguments.section, &text)
}
