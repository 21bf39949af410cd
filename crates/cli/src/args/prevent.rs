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
    /// Where the journal of runways is kept; one at a time may use it
    #[arg(long, value_name = "DIR", default_value = longrun_prevention::Options::STATE_DIRECTORY, value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
    /// Who notices growth
    #[arg(long, value_enum, value_name = "NAME", default_value_t = SensorName::Auto)]
    pub sensor: SensorName,
    /// The first runway of a file (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub first_runway: Option<Bytes>,
    /// The longest runway of a file
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub longest_runway: Option<Bytes>,
    /// Leave this much of each volume free in any case
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub floor: Option<Bytes>,
    /// On XFS, give directories whose files keep fragmenting an extent-size hint that new files inherit
    #[arg(long)]
    pub xfs_hint: bool,
    /// Take back the extent-size hints that were given to directories of these volumes, and end
    #[arg(long, conflicts_with = "xfs_hint")]
    pub undo_hints: bool,
    /// Print JSON: one line when it is at work, and the totals at the end
    #[arg(long)]
    pub json: bool,
}
