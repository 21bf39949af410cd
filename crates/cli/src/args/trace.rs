//! Arguments of `trace`.

use crate::text::parse_duration;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Block device, mount point, or any path on a mounted volume
    #[arg(required_unless_present = "compare", value_hint = ValueHint::AnyPath)]
    pub target: Option<PathBuf>,
    /// End the trace after this time (30s, 5m) instead of on Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Update the view this often: a terminal is redrawn (by default every second), elsewhere a line is printed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Count the requests of this process separately, as "ours" (can be repeated)
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Trace the device below the backing file of a loop device instead of the loop device
    #[arg(long)]
    pub below_files: bool,
    /// Write the recording to this file, for --compare
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,
    /// Write an HTML page with charts to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Compare two recordings instead of tracing
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], value_hint = ValueHint::FilePath,
        conflicts_with_all = ["target", "duration", "interval", "pid", "below_files", "save"])]
    pub compare: Option<Vec<PathBuf>>,
}
