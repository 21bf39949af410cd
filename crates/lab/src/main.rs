//! `longrun-lab`: the laboratory from the command line.

use anyhow::Result;
use clap::{Parser, Subcommand};
use longrun_lab::{CrashSettings, Optimizer, crash};
use std::io::Write;

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
    }
    Ok(())
}
