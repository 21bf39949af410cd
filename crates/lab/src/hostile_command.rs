//! `longrun-lab hostile`: hostile users and stuck volumes.

use crate::kernels_command::medium;
use crate::{all_unless, file_system};
use anyhow::Result;
use clap::Args;
use longrun_lab::{FileSystemKind, HostileSettings, Judge, Medium, hostile, run_user};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Args)]
pub(crate) struct HostileArguments {
    /// Seed the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this many seconds on each volume.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run only on these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// Use only these media: rotating, solid-state.
    #[arg(long, value_parser = medium)]
    medium: Vec<Medium>,
    /// Use this program of the crate fsx as an additional judge.
    #[arg(long)]
    fsx: Option<PathBuf>,
    /// Do not use fio and stress-ng as judges.
    #[arg(long)]
    no_judges: bool,
    /// Leave out an act by its name in the report, to find out which act does harm.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
}

/// The directories that the user attacks.
#[derive(Args)]
pub(crate) struct HostileUserArguments {
    prey: PathBuf,
    outside: PathBuf,
    socket: PathBuf,
    seed: u64,
    without: Vec<String>,
}

impl HostileUserArguments {
    pub(crate) fn run(&self) -> Result<()> {
        run_user(&self.prey, &self.outside, &self.socket, self.seed, &self.without)
    }
}

/// Runs the campaign on each volume, and prints the counts.
pub(crate) fn run_hostile(arguments: HostileArguments) -> Result<()> {
    let HostileArguments { seed, seconds, filesystem, medium, fsx, no_judges, without } = arguments;
    let usual = if no_judges { Vec::new() } else { vec![Judge::Fio, Judge::StressNg] };
    let judges: Vec<_> = usual.into_iter().chain(fsx.map(Judge::Fsx)).collect();
    for kind in all_unless(filesystem, &FileSystemKind::ALL) {
        for medium in all_unless(medium.clone(), &Medium::ALL) {
            let time = Duration::from_secs(seconds);
            let (judges, without) = (judges.clone(), without.clone());
            let report = hostile(&HostileSettings { kind, medium, seed, time, judges, without })?;
            writeln!(
                std::io::stdout(),
                "{} {}, seed {seed}: {} bytes wrong, {} hangs, {} privileges gained\n{}",
                kind.name(),
                medium.name(),
                report.bytes_wrong,
                report.hangs,
                report.privileges_gained,
                serde_json::to_string_pretty(&report)?
            )?;
        }
    }
    Ok(())
}
