//! Arguments of `heat`.

use super::ReadingArgs;
use clap::{Args, ValueHint};
use longrun_api::DEFAULT_SOCKET;
use std::path::PathBuf;

/// Arguments of `heat`.
#[derive(Debug, Args)]
pub struct HeatArgs {
    /// Mount point, block device, or any path on a mounted volume
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// List this many files, and as many directories
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Connect to the service on this socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// Take kept profiles, and without a service its last counts, from this state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/longrun", value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
    /// How reading the volume gives way to other I/O.
    #[command(flatten)]
    pub reading: ReadingArgs,
}
