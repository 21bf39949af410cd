//! The words of `daemon`, `status`, `top` and `config`.

use super::sensor::SensorName;
use crate::text::parse_duration;
use clap::{Args, Subcommand, ValueHint};
use longrun_service::config::DEFAULT_SOCKET;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// The configuration; /etc/longrun/longrun.toml otherwise, and the defaults when there is none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Listen at this socket, whatever is configured
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Keep journal, history and ledger here, whatever is configured
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_directory: Option<PathBuf>,
    /// How growing files are noticed
    #[arg(long, value_enum, value_name = "KIND", default_value_t = SensorName::Auto)]
    pub sensor: SensorName,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// The socket of the service
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print one frame and end
    #[arg(long)]
    pub once: bool,
    /// How often to look (1s, 5s)
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub every: Duration,
    /// The socket of the service
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// What to do about the configuration.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check the configuration: every line that is wrong is named
    Check {
        /// The file; /etc/longrun/longrun.toml otherwise
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print every setting that holds, defaults included, as a configuration
    Show {
        /// The file; /etc/longrun/longrun.toml otherwise
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}
