//! Arguments of `boot`.

use crate::text::parse_duration;
use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What is done about the boot.
#[derive(Debug, Subcommand)]
pub enum Boot {
    /// Record what is read from the disk while the system starts, and merge it into the list
    ///
    /// Needs root. It ends 30 seconds after multi-user.target, after 120 seconds at the latest, or after --for.
    Record(RecordArgs),
    /// Show what is known of each list, whether it pays, and why not
    Status(StatusArgs),
    /// Show what will be read ahead next time, after finding out anew where it lies
    Plan(PlanArgs),
    /// Install the units and the hooks of the initramfs that record and read ahead, and switch reading ahead on
    Enable(InstallArgs),
    /// Remove what enable installed; the lists stay
    Disable(InstallArgs),
    /// Read ahead what the list says; units and hooks call it
    ///
    /// It gives up after 10 seconds at the latest, uses at most 512 MiB and a quarter of the memory that can be had, and its exit
    /// status is always 0.
    Preload(PreloadArgs),
    /// Record what a command, or a unit of systemd, reads while it starts
    ///
    /// Needs root. What is in memory already is not read from the disk, and so not noted: --drop-caches empties the page cache first.
    Learn(LearnArgs),
    /// Write a list to a file, for systems that are made from an image of this one
    Export(ExportArgs),
    /// Take a list from a file, as far as its files are on this volume
    Import(ImportArgs),
}

/// Where everything is.
#[derive(Debug, Args)]
pub struct Place {
    /// Use the system whose root directory is this
    #[arg(long, value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
    pub root: PathBuf,
    /// Keep lists in this state directory of the system
    #[arg(long, value_name = "DIR", default_value = "/var/lib/longrun", value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
    /// Use the volume of this directory; the default is that of the root
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub volume: Option<PathBuf>,
}

/// Arguments of `boot record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Record for this time (90s, 2m)
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Record for this list
    #[arg(long, value_name = "NAME", default_value = "boot")]
    pub list: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Take the root directory from standard input, which a hook has opened before it is moved
    #[arg(long, conflicts_with = "root")]
    pub root_on_stdin: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `boot status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print a JSON array instead of text
    #[arg(long)]
    pub json: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `boot plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Of this list
    #[arg(long, value_name = "NAME", default_value = "boot")]
    pub list: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `boot enable` and `boot disable`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// For the start of this unit, not for the boot
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `boot preload`.
#[derive(Debug, Args)]
pub struct PreloadArgs {
    /// Read ahead this list
    #[arg(long, value_name = "NAME", default_value = "boot")]
    pub list: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Take the root directory from standard input, which a hook has opened before it is moved
    #[arg(long, conflicts_with = "root")]
    pub root_on_stdin: bool,
}

/// Arguments of `boot learn`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["unit", "command"]))]
pub struct LearnArgs {
    /// Restart this unit, and record until this long after it is active (see --for)
    pub unit: Option<String>,
    /// Keep the list under this name; the default is the name of the unit, or of the command's program
    #[arg(long, value_name = "NAME")]
    pub list: Option<String>,
    /// Record for this time after a unit is active
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    pub duration: Duration,
    /// Empty the page cache of the whole machine first: everything is read from the disk again, by everyone
    #[arg(long)]
    pub drop_caches: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Run this command, and record until it ends
    #[arg(last = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Arguments of `boot export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Write to this file
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Of this list
    #[arg(long, value_name = "NAME", default_value = "boot")]
    pub list: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `boot import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Read this file, which only root may change
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// As this list
    #[arg(long, value_name = "NAME", default_value = "boot")]
    pub list: String,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}
