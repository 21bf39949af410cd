//! The command of `longrun-lab` that lets volumes age for weeks.

use crate::{all_unless, file_system};
use anyhow::{Context, Result};
use clap::Args;
use longrun_lab::{AgeingSettings, FileSystemKind, ageing, ageing_report, replace_section};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `ageing`.
#[derive(Args)]
pub struct AgeingArguments {
    /// Only these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// How many days.
    #[arg(long, default_value_t = 28)]
    days: u32,
    /// Size of each volume in MiB.
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// How full it is kept, in per cent.
    #[arg(long, default_value_t = 60)]
    full: u64,
    /// How much is written on a day, in per cent of the size of the volume.
    #[arg(long, default_value_t = 5)]
    daily: u64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write each result as JSON into this directory, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Put the report into this document, and the picture beside it, instead of the report to standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Lets volumes age, one file system after the other.
pub fn run_ageing(arguments: &AgeingArguments) -> Result<()> {
    for kind in all_unless(arguments.filesystem.clone(), &FileSystemKind::ALL) {
        let settings = AgeingSettings {
            kind,
            mebibytes: arguments.mebibytes,
            days: arguments.days,
            full_percent: arguments.full,
            daily_percent: arguments.daily,
            seed: arguments.seed,
        };
        eprintln!("{}", kind.name());
        let courses = ageing(&settings, &mut |what| eprintln!("{what}"))?;
        let section = format!("ageing-{}", kind.name());
        let name = format!("{section}.svg");
        let (text, picture) = ageing_report(&settings, &courses, &name)?;
        if let Some(directory) = &arguments.json {
            fs::create_dir_all(directory)?;
            let json = serde_json::json!({ "filesystem": kind.name(), "settings": settings, "courses": courses });
            let path = directory.join(format!("{section}.json"));
            fs::write(&path, serde_json::to_vec_pretty(&json)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        match &arguments.output {
            Some(path) => {
                let beside = path.with_file_name(&name);
                fs::write(&beside, picture).with_context(|| format!("cannot write {}", beside.display()))?;
                replace_section(path, &section, &text)?;
            }
            None => std::io::stdout().write_all(text.as_bytes())?,
        }
    }
    Ok(())
}
