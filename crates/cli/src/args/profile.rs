//! Arguments of `profile`.

use super::Manner;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Block device (a disk or a partition), mount point, or any path on a mounted volume
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Measure again, even if a profile of the last 30 days is kept
    #[arg(long)]
    pub again: bool,
    /// Measure a solid-state, virtual or thin disk, too: they have no fast and slow places of their own
    #[arg(long)]
    pub any_disk: bool,
    /// How it gives way.
    #[command(flatten)]
    pub manner: Manner,
    /// Write a chart to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write an HTML page with the charts to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Keep profiles in this state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/longrun", value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
}
