//! The figures of independent tools about a volume: filefrag for files, the file system's own tool for the free space.

use crate::oracle::{FreeFragments, btrfs_usage, filefrag, free_space, longest_possible_on_xfs};
use crate::{FileSystemKind, LoopVolume};
use anyhow::Result;

/// What judges say about a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// Regular files.
    pub(super) files: u64,
    /// Their excess fragments.
    pub(super) excess: u64,
    /// Those of directories, where these can be seen.
    pub(super) directory_excess: u64,
    /// The free space; on btrfs that in block groups for data.
    pub(super) free: FreeFragments,
    /// On btrfs what is in no block group, in bytes.
    pub(super) unallocated: Option<u64>,
    /// On btrfs bytes in data extents, shared ones once.
    pub(super) data: Option<u64>,
    /// On XFS the longest free piece that an optimizer could make, in bytes.
    pub(super) longest_possible: Option<u64>,
}

/// Asks them; the volume is mounted.
pub(super) fn judge(volume: &LoopVolume) -> Result<Judged> {
    let files = filefrag(&volume.mount_point())?;
    let usage = (volume.kind() == FileSystemKind::Btrfs).then(|| btrfs_usage(&volume.mount_point())).transpose()?;
    let longest_possible = match volume.kind() {
        FileSystemKind::Xfs => longest_possible_on_xfs(&volume.mount_point())?,
        FileSystemKind::Ext4 | FileSystemKind::Btrfs => None,
    };
    Ok(Judged {
        files: files.files,
        excess: files.excess,
        directory_excess: files.directory_excess,
        free: free_space(volume)?,
        unallocated: usage.map(|usage| usage.unallocated),
        data: usage.map(|usage| usage.data),
        longest_possible,
    })
}

/// Bytes that are not free.
pub(super) fn used_bytes(volume: &LoopVolume) -> Result<u64> {
    let capacity = longrun_sys::capacity_at(&volume.mount_point())?;
    Ok(capacity.block_size.to_bytes(capacity.total - capacity.free).0)
}
