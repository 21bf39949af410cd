//! Arguments of `reclaim`.

use super::Manner;
use crate::text::{parse_duration, parse_size};
use clap::{Args, ValueHint};
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
    /// Rewrite the disk image afterwards, so that it becomes smaller in any format
    ///
    /// VMDK, VHDX, VHD and VDI keep the space that they have. This writes a new image beside the old one without what is zeros,
    /// compares the two, and puts the new one in the old one's place, with the same owner, permissions, attributes and identity.
    /// It needs qemu-img, and as much free space as the image takes. Images with snapshots, bitmaps or compressed blocks inside, of
    /// several files or of fixed size are refused.
    #[arg(long)]
    pub compact: bool,
    /// Give back at most this much in a second (500M)
    #[arg(long, value_name = "BYTES/S", value_parser = parse_rate)]
    pub rate: Option<Bytes>,
    /// How it gives way.
    #[command(flatten)]
    pub manner: Manner,
    /// Stop after this time (90s, 30m, 1h30m); the next run goes on from there
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub deadline: Option<Duration>,
    /// Confirm that the virtual machine of a disk image is shut down, where that cannot be seen (btrfs)
    #[arg(long)]
    pub machine_is_off: bool,
    /// Give back the free space of an NTFS volume although it has shadow copies (restore points, previous versions, backups): they
    /// become wrong
    ///
    /// What a shadow copy shows of deleted files can still lie in free space. It is lost when that is given back, and with
    /// --consolidate blocks move besides. See optimize --spoil-shadow-copies.
    #[arg(long)]
    pub spoil_shadow_copies: bool,
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
