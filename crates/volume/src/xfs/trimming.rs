//! How FITRIM goes over XFS: by parts of allocation groups, never by whole ones.
//!
//! Owns the slices of XFS. One call for a whole volume left most of its free pieces out on Linux 6.18 (628 of 650 MiB stayed
//! allocated where 357 were in use: 3000 pieces of one length), calls for halves of groups none. Why is not known: for a whole
//! group the kernel goes by the length of the pieces, for a part of one by their place. Never writes to the volume.

use crate::Target;
use crate::mounted::io;
use crate::reclaim::{Cuts, Trimming};
use longrun_engine::VolumeError;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, xfs_geometry};
use std::fs::{self, File};

/// Where a slice may be cut.
const PART: Bytes = Bytes(16 << 20);

/// The largest block of XFS.
const BLOCK: u64 = 64 << 10;

/// Since then the kernel looks up a part of an allocation group by its place. Before, each call for a part read all free pieces
/// of its group, by their length ("xfs: fix performance problems when fstrimming a subset of a fragmented AG").
const KNOWS_PARTS: (u32, u32) = (6, 11);

/// The slices of the volume of `root`.
pub(super) fn trimming(root: &File, target: &Target) -> Result<Trimming, VolumeError> {
    let geometry = xfs_geometry(root).map_err(io(&target.given, "reading the geometry"))?;
    let bytes = |blocks| geometry.block_size.to_bytes(blocks);
    let group = bytes(geometry.group_blocks);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let all = bytes(geometry.total);
    let (areas, cuts) = if version(&release).is_some_and(|version| version >= KNOWS_PARTS) {
        (halves(all, group), Cuts::each(PART))
    } else {
        (vec![ByteRange { start: Bytes(0), length: all }], Cuts::each(group))
    };
    // The realtime device, if there is one, lies behind the end of the last slice, which is open. The kernel answers with the
    // length of the range.
    Ok(Trimming { areas, cuts, first: None, longest: Some(group), is_counted: false, memory: None })
}

/// All groups in two parts each.
fn halves(all: Bytes, group: Bytes) -> Vec<ByteRange> {
    let starts = (0..all.0).step_by(usize::try_from(group.0.max(1)).unwrap_or(usize::MAX));
    let parts = starts.flat_map(|start| {
        let end = all.0.min(start.saturating_add(group.0));
        let middle = start + (end - start) / 2;
        // Where a storage cuts its blocks, too; tiny groups have no such place.
        let cut = middle / PART.0 * PART.0;
        let middle = if cut > start { cut } else { middle / BLOCK * BLOCK };
        [(start, middle), (middle, end)]
    });
    let range = |(start, end)| ByteRange { start: Bytes(start), length: Bytes(end - start) };
    parts.map(range).filter(|range| range.length.0 > 0).collect()
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
    fn no_range_is_a_whole_group() {
        let (group, all) = (Bytes(300 << 20), Bytes(1000 << 20));
        let halves = halves(all, group);
        assert_eq!(halves.len(), 8);
        let mut at = 0;
        for half in halves {
            assert_eq!(half.start.0, at);
            at += half.length.0;
            assert!(half.length < Bytes(200 << 20), "{half:?}");
        }
        assert_eq!(at, all.0);
    }

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
