//! `longrun-lab`: the laboratory from the command line.

mod ageing_command;
mod on_disks;
mod results;

use ageing_command::{AgeingArguments, run_ageing};
use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use longrun_ageing::Recipe;
use longrun_bench::{Parameters, Profile};
use longrun_lab::{
    BenchSettings, CrashSettings, FileSystemKind, FreeSpaceKind, LoopVolume, Optimizer, Pace, Phase,
    PreventionSettings, SoakSettings, TortureSettings, TrimTortureSettings, VolumeSpec, bench, crash, fill_beside,
    longrun_binary, prevention, prevention_report, scan, soak, torture, trim_torture,
};
use longrun_layout::Bytes;
use on_disks::{DiskArguments, InvisibilityArguments, LayoutsArguments, run_disk, run_invisibility, run_layouts};
use results::publish;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Loop volumes, crash and torture tests, benchmarks. Needs root; touches only volumes that it makes itself.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What of the benchmark to run.
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
    /// Keep the service under mixed load for long, with volumes mounted and unmounted: it must not grow.
    Soak {
        /// For how many minutes.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
    },
    /// Cut an optimizer off at random moments and compare everything after recovery.
    Crash {
        /// How many crashes.
        #[arg(long, default_value_t = 100)]
        runs: u64,
        /// Seed of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Size of the volumes in MiB.
        #[arg(long, default_value_t = 512)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun), or a peer: e4defrag, xfs_fsr, btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
        /// How much Longrun gives way meanwhile: invisible, balanced or fast. Only fast does not read in turns.
        #[arg(long)]
        pace: Option<String>,
    },
    /// Measure Longrun, the file systems' own tools and cp on copies of the same aged volumes.
    Bench {
        /// Only these phases.
        #[arg(long, value_enum)]
        only: Vec<Only>,
        /// Only these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Only these volumes: aged, server, office, media, git, churn, crowded; those that suit each file system otherwise.
        #[arg(long)]
        recipe: Vec<Recipe>,
        /// Size of each volume in MiB.
        #[arg(long, default_value_t = 4096)]
        mebibytes: u64,
        /// Runs of each measurement.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// Seed of the ageing.
        #[arg(long, default_value_t = 42)]
        seed: u64,
        /// Snapshots that are taken of a btrfs, files being changed after each.
        #[arg(long, default_value_t = 0)]
        snapshots: u64,
        /// Small files of one more volume of each file system, on which only analysis is timed; 0 for none.
        #[arg(long, default_value_t = 200_000)]
        many_files: u64,
        /// Write the report here instead of to standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// Time `longrun analyze` on many small files against asking each file, cold.
    Scan {
        /// Only these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// How many files.
        #[arg(long, default_value_t = 1_000_000)]
        files: u64,
        /// Runs of each measurement.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// Put the report into this document instead of to standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// A block device as slow as a real disk, until interrupted; everything measured on one is modelled.
    Disk(DiskArguments),
    /// Read, copy and use as databases do the same bytes laid in several ways, on modelled disks.
    Layouts(LayoutsArguments),
    /// Work beside an optimizer in several modes, on modelled disks.
    Invisibility(InvisibilityArguments),
    /// Let volumes age for weeks, looked after by nobody, by the file system's own tool, and by the service.
    Ageing(AgeingArguments),
    /// What serves such a device; started by the laboratory itself.
    #[command(name = longrun_lab::disk::SERVE_COMMAND, hide = true)]
    ServeDisk,
    /// Compare writing with prevention and without it, on every file system and way of writing.
    Prevention(PreventionArguments),
    /// Fill a volume while an optimizer works on it, and compare with filling it alone.
    Full {
        /// Seed of the aged volume.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write as fast as memory takes it, not as the device does.
        #[arg(long)]
        burst: bool,
        /// Milliseconds after which the filling starts.
        #[arg(long, default_value_t = 500)]
        after: u64,
        /// Only these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun), or a peer: e4defrag, xfs_fsr, btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
    /// Let files grow in every way while their runways come and go, and compare every byte.
    TrimTorture {
        /// How many appends, on each file system.
        #[arg(long, default_value_t = 300_000)]
        appends: u64,
        /// ext4, xfs, btrfs or all.
        #[arg(long, default_value = "all")]
        fs: String,
        /// How many threads append.
        #[arg(long, default_value_t = 8)]
        writers: u64,
        /// Seed of everything random.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Write, read, rename and execute files in every way while an optimizer runs beside.
    Torture {
        /// Seed of everything random.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Seconds beside the optimizer; half as many alone before.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only these file systems: ext4, xfs, btrfs.
        #[arg(long, value_parser = file_system)]
        filesystem: Vec<FileSystemKind>,
        /// Size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun), or a peer: e4defrag, xfs_fsr, btrfs-defragment.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
}

#[derive(Args)]
struct PreventionArguments {
    /// Only these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// Only on this free space: whole, half-in-pieces, in-pieces.
    #[arg(long)]
    space: Vec<FreeSpaceKind>,
    /// Only these profiles.
    #[arg(long)]
    profile: Vec<Profile>,
    /// Iterations each way.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Iterations each way of profiles where nothing should change.
    #[arg(long, default_value_t = 5)]
    control_iterations: u32,
    /// How many write at the same time.
    #[arg(long, default_value_t = 8)]
    writers: u32,
    /// How large the file of each becomes, in MiB.
    #[arg(long, default_value_t = 64)]
    file_mebibytes: u64,
    /// Size of each volume in MiB; half of it where the free space is in pieces.
    #[arg(long, default_value_t = 8192)]
    mebibytes: u64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds for which the cost of watching is measured on each file system.
    #[arg(long, default_value_t = 20)]
    watch_seconds: u64,
    /// Where it stands in that document, so that parts can be measured by themselves.
    #[arg(long, default_value = "prevention")]
    section: String,
    /// Put the report into this document instead of to standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

fn file_system(name: &str) -> Result<FileSystemKind, String> {
    let found = FileSystemKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| "ext4, xfs or btrfs".to_owned())
}

/// The file systems that whole volumes can be optimized on.
const OPTIMIZED: &[FileSystemKind] = &FileSystemKind::ALL;

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
            for kind in all_unless(filesystem, OPTIMIZED) {
                let settings = CrashSettings { kind, runs, seed, mebibytes };
                let (mut survived, mut at_work) = (0, 0);
                crash(&settings, &optimizer, &mut |run| {
                    survived += 1;
                    at_work += u32::from(run.interrupted);
                    // A closed standard output must not end the test.
                    let _ = writeln!(out, "{survived}/{runs} {}", serde_json::to_string(run).unwrap_or_default());
                })?;
                writeln!(
                    out,
                    "{}: {survived} crashes survived ({at_work} cut off at work): 0 files changed, every file system \
                     clean, no space lost",
                    kind.name()
                )?;
            }
        }
        Command::Bench { only, filesystem, recipe, mebibytes, runs, seed, snapshots, many_files, output } => {
            let phases =
                if only.is_empty() { Phase::ALL.to_vec() } else { only.into_iter().map(Phase::from).collect() };
            for kind in all_unless(filesystem, OPTIMIZED) {
                let (phases, recipes) = (phases.clone(), recipe.clone());
                let settings =
                    BenchSettings { phases, kinds: vec![kind], recipes, mebibytes, runs, seed, snapshots, many_files };
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
        Command::Disk(arguments) => run_disk(&arguments)?,
        Command::Layouts(arguments) => run_layouts(arguments)?,
        Command::Invisibility(arguments) => run_invisibility(arguments)?,
        Command::Ageing(arguments) => run_ageing(&arguments)?,
        Command::ServeDisk => longrun_lab::disk::serve()?,
        Command::Prevention(arguments) => run_prevention(arguments)?,
        Command::Full { seed, burst, after, filesystem, mebibytes, optimizer } => {
            for kind in all_unless(filesystem, OPTIMIZED) {
                let recipe = match kind {
                    FileSystemKind::Ext4 => Recipe::Aged,
                    FileSystemKind::Xfs => Recipe::Churn,
                    FileSystemKind::Btrfs => Recipe::Server,
                };
                let (volume, _) = LoopVolume::aged(&plain(kind, mebibytes), recipe, seed)?;
                let pace = if burst { Pace::Burst } else { Pace::Steady };
                let optimizer = Optimizer::by_name(&optimizer)?;
                let report = fill_beside(&volume, &optimizer, Duration::from_millis(after), pace)?;
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
            anyhow::ensure!(tortured > 0, "{fs} is none of ext4, xfs, btrfs, all");
        }
        Command::Torture { seed, seconds, filesystem, mebibytes, optimizer } => {
            let beside = Duration::from_secs(seconds);
            let settings = TortureSettings { seed, alone: beside / 2, beside };
            for kind in all_unless(filesystem, OPTIMIZED) {
                let spec = match kind {
                    FileSystemKind::Ext4 => VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096", "-m", "0"]),
                    other => plain(other, mebibytes),
                };
                let (volume, _) = LoopVolume::aged(&spec, Recipe::Aged, seed)?;
                let report = torture(&volume, &Optimizer::by_name(&optimizer)?, &settings)?;
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
