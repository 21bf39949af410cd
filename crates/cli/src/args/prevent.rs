//! Arguments of `prevent`.

use super::sensor::SensorName;
use crate::text::parse_size;
use clap::{Args, ValueHint};
use longrun_layout::Bytes;
use std::path::PathBuf;

/// Arguments of `prevent`.
#[derive(Debug, Args)]
pub struct PreventArgs {
    /// Mount points of ext4, XFS or btrfs volumes
    #[arg(required = true, value_name = "MNT", value_hint = ValueHint::DirPath)]
    pub mounts: Vec<PathBuf>,
    /// Keep the journal of runways in this directory; only one process at a time can use it
    #[arg(long, value_name = "DIR", default_value = longrun_prevention::Options::STATE_DIRECTORY, value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
    /// Choose the sensor that notices growing files
    #[arg(long, value_enum, value_name = "NAME", default_value_t = SensorName::Auto)]
    pub sensor: SensorName,
    /// Set the size of a file's first runway (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub first_runway: Option<Bytes>,
    /// Set the size of a file's longest runway
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub longest_runway: Option<Bytes>,
    /// Preallocate nothing while less than this is free on a volume
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub floor: Option<Bytes>,
    /// Set an extent-size hint on XFS directories whose files keep fragmenting; new files inherit it
    #[arg(long)]
    pub xfs_hint: bool,
    /// Remove the extent-size hints that Longrun set on directories of these volumes, and exit
    #[arg(long, conflicts_with = "xfs_hint")]
    pub undo_hints: bool,
    /// Print JSON: one line when prevention has started, and the totals at the end
    #[arg(long)]
    pub json: bool,
}
