//! `longrun-lab unmounted`: large NTFS volumes that are not mounted.

use anyhow::Result;
use clap::{Args, ValueEnum};
use longrun_lab::ntfs::Spec;
use longrun_lab::{UnmountedSettings, unmounted};
use std::io::Write;

/// The volumes that there are.
#[derive(Clone, Copy, ValueEnum)]
enum Volume {
    /// 512 MiB with more than 13,000 files.
    Full,
    /// 4 GiB with large files, nine tenths full.
    NearlyFull,
}

/// The modes of Longrun.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Full,
    Efficient,
    Files,
}

/// What to do.
#[derive(Args)]
pub(crate) struct UnmountedArguments {
    /// Make only these volumes.
    #[arg(long, value_enum)]
    volume: Vec<Volume>,
    /// Run in this mode.
    #[arg(long, value_enum, default_value = "full")]
    mode: Mode,
    /// Repeat each measurement this often, on copies of the same image.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seed the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs on each volume, and prints what was found.
pub(crate) fn run_unmounted(arguments: &UnmountedArguments) -> Result<()> {
    let mut out = std::io::stdout();
    for volume in crate::all_unless(arguments.volume.clone(), &[Volume::Full, Volume::NearlyFull]) {
        let spec = match volume {
            Volume::Full => Spec::full(),
            Volume::NearlyFull => Spec::nearly_full(),
        };
        let mode = match arguments.mode {
            Mode::Full => "full",
            Mode::Efficient => "efficient",
            Mode::Files => "files",
        };
        let report = unmounted(&UnmountedSettings { spec: spec.seed(arguments.seed), runs: arguments.runs, mode })?;
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        writeln!(out, "nothing changed but places; {:.2} of the speed of a plain copy", report.speed())?;
    }
    Ok(())
}
