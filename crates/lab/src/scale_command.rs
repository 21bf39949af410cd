//! The commands of `longrun-lab` that measure the cost of many files.

use crate::results::Results;
use anyhow::{Context, Result};
use clap::Args;
use longrun_lab::{FileSystemKind, PLAN_COMMAND, plan_many_files, real, scale_report, simulated};
use longrun_planner::Mode;
use std::fs;
use std::io::Write;

/// Arguments of `scale`.
#[derive(Args)]
pub struct ScaleArguments {
    /// Plan for 1, 2, 3 … times so many simulated files.
    #[arg(long, default_value_t = 1_000_000)]
    step: u32,
    /// Up to this many times; 0 for none.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// Make a real ext4 volume with this many files; 0 for none.
    #[arg(long, default_value_t = 2_000_000)]
    ext4_files: u64,
    /// Make a real XFS volume with this many files; 0 for none.
    #[arg(long, default_value_t = 1_000_000)]
    xfs_files: u64,
    /// Set the size of the sparse images in GiB.
    #[arg(long, default_value_t = 200)]
    gibibytes: u64,
    /// Where the report goes.
    #[command(flatten)]
    to: Results,
}

/// Arguments of the hidden command that plans in a process of its own.
#[derive(Args)]
pub struct PlanArguments {
    #[arg(long)]
    files: u32,
    #[arg(long, default_value = "full")]
    mode: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl PlanArguments {
    /// Plans, and prints the cost.
    pub fn run(&self) -> Result<()> {
        let mode: Mode = serde_json::from_value(self.mode.clone().into()).context(PLAN_COMMAND)?;
        let cost = plan_many_files(self.files, mode, self.seed)?;
        Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&cost)?)?)
    }
}

/// Measures all sizes.
pub fn run_scale(arguments: &ScaleArguments) -> Result<()> {
    let mut plans = Vec::new();
    for times in 1..=arguments.steps {
        let files = arguments.step.saturating_mul(times);
        eprintln!("planning for {files} files");
        plans.push(simulated(files, "full", arguments.to.seed)?);
    }
    let mut volumes = Vec::new();
    for (kind, files) in [(FileSystemKind::Ext4, arguments.ext4_files), (FileSystemKind::Xfs, arguments.xfs_files)] {
        if files > 0 {
            volumes.push(real(kind, files, arguments.gibibytes, &mut |what| eprintln!("{what}"))?);
        }
    }
    const PICTURE: &str = "scale.svg";
    let (text, picture) = scale_report(&plans, u64::from(arguments.step), &volumes, PICTURE)?;
    if let Some(path) = &arguments.to.output {
        let beside = path.with_file_name(PICTURE);
        fs::write(&beside, picture).with_context(|| format!("cannot write {}", beside.display()))?;
    }
    arguments.to.publish("scale", &text)
}
