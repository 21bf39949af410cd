//! Arguments of `daemon`, `status`, `top` and `config`.

use super::sensor::SensorName;
use crate::text::parse_duration;
use clap::{Args, Subcommand, ValueHint};
use longrun_api::DEFAULT_SOCKET;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Read this configuration file instead of /etc/longrun/longrun.toml; without a file the defaults apply
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Listen on this socket; overrides the configuration
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Keep the journal, the learned history and the ledger here; overrides the configuration
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_directory: Option<PathBuf>,
    /// Choose the sensor that notices growing files
    #[arg(long, value_enum, value_name = "KIND", default_value_t = SensorName::Auto)]
    pub sensor: SensorName,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Connect to the service on this socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print one frame and exit
    #[arg(long)]
    pub once: bool,
    /// Update the view this often (1s, 5s)
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub every: Duration,
    /// Connect to the service on this socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// What is passed on to longrun-fleet.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// What longrun-fleet is to do
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// The commands of `config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check the configuration and name each wrong line
    Check {
        /// The configuration file; the default is /etc/longrun/longrun.toml
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the settings in effect, including defaults, as a configuration file
    Show {
        /// The configuration file; the default is /etc/longrun/longrun.toml
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}
