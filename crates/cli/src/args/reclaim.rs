//! Arguments of `reclaim`.

use super::PaceName;
use crate::text::{parse_duration, parse_size};
use clap::{Args, ValueHint};
use longrun_governor::{Duty, MinProgress};
use longrun_layout::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `reclaim`.
#[derive(Debug, Args)]
pub struct ReclaimArgs {
    /// Mount point or block device of a mounted volume, or a disk image
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Give back only free pieces of at least this size (k, M, G, T: powers of 1024); by default all that the storage can take
    /// back
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub min_extent: Option<Bytes>,
    /// Consolidate the free space first, as optimize --mode full does, if otherwise more than a tenth of it cannot be given back
    #[arg(long)]
    pub consolidate: bool,
    /// Give back at most this much in a second (500M)
    #[arg(long, value_name = "BYTES/S", value_parser = parse_rate)]
    pub rate: Option<Bytes>,
    /// Set how much to give way to other I/O on the device
    #[arg(long, value_enum, default_value_t = PaceName::Invisible)]
    pub pace: PaceName,
    /// Work for at most this share of the time (40%), at every pace
    #[arg(long, value_name = "PERCENT")]
    pub max_duty: Option<Duty>,
    /// Work for this share of the time even if other I/O is delayed more than the pace allows; 0% waits for ever
    #[arg(long, value_name = "PERCENT", default_value_t = MinProgress::default())]
    pub min_progress: MinProgress,
    /// Stop after this time (90s, 30m, 1h30m); the next run goes on from there
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub deadline: Option<Duration>,
    /// Confirm that the virtual machine of a disk image is shut down, where that cannot be seen (btrfs)
    #[arg(long)]
    pub machine_is_off: bool,
    /// Print what could be given back, and give nothing back
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Reads `500M` or `500M/s`.
fn parse_rate(text: &str) -> Result<Bytes, String> {
    parse_size(text.trim().strip_suffix("/s").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_size_for_each_second() {
        assert_eq!((parse_rate("500M"), parse_rate("2G/s")), (Ok(Bytes(500 << 20)), Ok(Bytes(2 << 30))));
        assert!(parse_rate("fast").is_err() && parse_rate("/s").is_err());
    }
}
