//! The command of `longrun-lab` that ages volumes for weeks.

use crate::results::Results;
use crate::{all_unless, file_system};
use anyhow::{Context, Result};
use clap::Args;
use longrun_bench::ageing::average_excess;
use longrun_lab::{AgeingSettings, Course, FileSystemKind, Maintenance, ageing, ageing_report, save_json};
use std::fs;

/// Arguments of `ageing`.
#[derive(Args)]
pub struct AgeingArguments {
    /// Run only on these file systems: ext4, xfs, btrfs.
    #[arg(long, value_parser = file_system)]
    filesystem: Vec<FileSystemKind>,
    /// Simulate this many days.
    #[arg(long, default_value_t = 28)]
    days: u32,
    /// Run only these methods of maintenance, and print their figures without a report.
    #[arg(long, value_enum)]
    maintenance: Vec<Maintenance>,
    /// Set the size of each volume in MiB.
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// Keep this share of the volume in use, in per cent.
    #[arg(long, default_value_t = 60)]
    full: u64,
    /// Write this much per day, in per cent of the size of the volume.
    #[arg(long, default_value_t = 5)]
    daily: u64,
    /// Where the report goes.
    #[command(flatten)]
    to: Results,
}

/// Ages volumes, one file system after the other.
pub fn run_ageing(arguments: &AgeingArguments) -> Result<()> {
    for kind in all_unless(arguments.filesystem.clone(), &FileSystemKind::ALL) {
        let settings = AgeingSettings {
            kind,
            mebibytes: arguments.mebibytes,
            days: arguments.days,
            full_percent: arguments.full,
            daily_percent: arguments.daily,
            seed: arguments.to.seed,
        };
        eprintln!("{}", kind.name());
        let methods = all_unless(arguments.maintenance.clone(), &Maintenance::ALL);
        let courses = ageing(&settings, &methods, &mut |what| eprintln!("{what}"))?;
        if methods.len() < Maintenance::ALL.len() {
            courses.iter().for_each(tell);
            continue;
        }
        let section = format!("ageing-{}", kind.name());
        let name = format!("{section}.svg");
        let (text, picture) = ageing_report(&settings, &courses, &name)?;
        if let Some(directory) = &arguments.to.json {
            let json = serde_json::json!({ "filesystem": kind.name(), "settings": settings, "courses": courses });
            save_json(directory, &section, &json)?;
        }
        if let Some(path) = &arguments.to.output {
            let beside = path.with_file_name(&name);
            fs::write(&beside, picture).with_context(|| format!("cannot write {}", beside.display()))?;
        }
        arguments.to.publish(&section, &text)?;
    }
    Ok(())
}

/// The figures of one method.
fn tell(course: &Course) {
    let last = course.evenings.last().copied().unwrap_or_default();
    eprintln!(
        "{}: {} excess fragments at the end, {:.1} on average; {:.0} MiB moved, {:.0} MiB written; {:.0} s",
        course.name,
        last.excess_fragments,
        average_excess(&course.evenings),
        last.moved.mebibytes(),
        last.written.mebibytes(),
        course.seconds
    );
}
