//! Arguments of `trace`.

use crate::text::parse_duration;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Block device, mount point, or anything on a mounted volume
    #[arg(required_unless_present = "compare", value_hint = ValueHint::AnyPath)]
    pub target: Option<PathBuf>,
    /// End after this time (30s, 5m); without it on Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Show what happens this often: redrawn in place on a terminal, a line each elsewhere (there only when given)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Count the requests of this process apart, as ours (may be given several times)
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Trace what the file of a loop device lies on, not the loop device
    #[arg(long)]
    pub below_files: bool,
    /// Keep the recording in this file, for --compare
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,
    /// Also write a page with charts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Trace nothing: lay two recordings side by side
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], value_hint = ValueHint::FilePath,
        conflicts_with_all = ["target", "duration", "interval", "pid", "below_files", "save"])]
    pub compare: Option<Vec<PathBuf>>,
}
