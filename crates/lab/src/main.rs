//! `longrun-lab`: the laboratory from the command line.

use anyhow::Result;
use clap::{Parser, Subcommand};
use longrun_ageing::Recipe;
use longrun_lab::{CrashSettings, LoopVolume, Optimizer, TortureSettings, VolumeSpec, crash, fill_beside, torture};
use std::io::Write;
use std::time::Duration;

/// Loop volumes, crash and torture tests, benchmarks. Needs root; touches only volumes that it makes itself.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut an optimizer off at random moments and compare everything after recovery.
    Crash {
        /// How many crashes.
        #[arg(long, default_value_t = 100)]
        runs: u64,
        /// Seed of the first run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Size of the volumes in MiB.
        #[arg(long, default_value_t = 512)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun) or e4defrag.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
    /// Fill a volume while an optimizer works on it, and compare with filling it alone.
    Full {
        /// Seed of the aged volume.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Milliseconds after which the filling starts.
        #[arg(long, default_value_t = 500)]
        after: u64,
        /// Size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun) or e4defrag.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
    /// Write, read, rename and execute files in every way while an optimizer runs beside.
    Torture {
        /// Seed of everything random.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Seconds beside the optimizer; half as many alone before.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Size of the volume in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
        /// What to run: full, efficient, files (modes of Longrun) or e4defrag.
        #[arg(long, default_value = "full")]
        optimizer: String,
    },
}

fn main() -> Result<()> {
    let mut out = std::io::stdout();
    match Arguments::parse().command {
        Command::Crash { runs, seed, mebibytes, optimizer } => {
            let settings = CrashSettings { runs, seed, mebibytes };
            let mut survived = 0;
            crash(&settings, &Optimizer::by_name(&optimizer)?, &mut |run| {
                survived += 1;
                // A closed standard output must not end the test.
                let _ = writeln!(out, "{survived}/{runs} {}", serde_json::to_string(run).unwrap_or_default());
            })?;
            writeln!(out, "{survived} crashes survived: 0 files changed, every file system clean, no space lost")?;
        }
        Command::Full { seed, after, mebibytes, optimizer } => {
            let spec = VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"]);
            let (volume, _) = LoopVolume::aged(&spec, Recipe::Aged, seed)?;
            let report = fill_beside(&volume, &Optimizer::by_name(&optimizer)?, Duration::from_millis(after))?;
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
        Command::Torture { seed, seconds, mebibytes, optimizer } => {
            let beside = Duration::from_secs(seconds);
            let settings = TortureSettings { seed, alone: beside / 2, beside };
            let spec = VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"]);
            let (volume, _) = LoopVolume::aged(&spec, Recipe::Aged, seed)?;
            let report = torture(&volume, &Optimizer::by_name(&optimizer)?, &settings)?;
            writeln!(out, "0 bytes wrong\n{}", serde_json::to_string_pretty(&report)?)?;
        }
    }
    Ok(())
}
