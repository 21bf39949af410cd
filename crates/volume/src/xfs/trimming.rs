//! How FITRIM goes over XFS: by parts of allocation groups.
//!
//! Owns the slices of XFS. Never writes to the volume.

use crate::Target;
use crate::mounted::io;
use crate::reclaim::Trimming;
use longrun_engine::VolumeError;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, xfs_geometry};
use std::fs::{self, File};

/// Where a slice may be cut.
const PART: Bytes = Bytes(16 << 20);

/// Since then the kernel looks up a part of an allocation group by its place. Before, each call for a part read all free pieces
/// of its group, by their length ("xfs: fix performance problems when fstrimming a subset of a fragmented AG").
const KNOWS_PARTS: (u32, u32) = (6, 11);

/// The slices of the volume of `root`.
pub(super) fn trimming(root: &File, target: &Target) -> Result<Trimming, VolumeError> {
    let geometry = xfs_geometry(root).map_err(io(&target.given, "reading the geometry"))?;
    let bytes = |blocks| geometry.block_size.to_bytes(blocks);
    let group = bytes(geometry.group_blocks);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let unit = if version(&release).is_some_and(|version| version >= KNOWS_PARTS) { PART } else { group };
    // The realtime device, if there is one, lies behind the end of the last slice, which is open.
    let all = ByteRange { start: Bytes(0), length: bytes(geometry.total) };
    // It answers with the length of the range (measured on Linux 6.18).
    Ok(Trimming { areas: vec![all], unit, first: None, longest: Some(group), is_counted: false, memory: None })
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_kernel_is_in_its_release() {
        for (release, expected) in [
            ("6.18.44-fc-v769\n", Some((6, 18))),
            ("6.1.0-56-cloud-amd64", Some((6, 1))),
            ("6.11-rc1", Some((6, 11))),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
