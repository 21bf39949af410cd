//! The used space of a volume, as counted by the file system.
//!
//! The files do not show it: btrfs keeps whole extents of which a file refers to a part, and neither FIEMAP nor
//! `st_blocks` reports that.

use super::btrfs_usage;
use crate::{FileSystemKind, LoopVolume, tool};
use anyhow::Result;
use longrun_layout::Bytes;
use std::fs::File;

/// What data takes on a mounted volume (on ext4 and XFS with what describes it), after everything was written and
/// what has been deleted was freed, subvolumes included.
///
/// # Errors
/// When the volume cannot be asked.
pub fn used_space(volume: &LoopVolume) -> Result<Bytes> {
    let point = volume.mount_point();
    if volume.kind() == FileSystemKind::Btrfs {
        // Wakes the thread that cleans up deleted subvolumes, which else begins at the next commit, half a minute later.
        tool::run("btrfs", ["filesystem".as_ref(), "sync".as_ref(), point.as_os_str()])?;
        // Returns when what was deleted is gone; else the tool has nothing to wait for.
        tool::run("btrfs", ["subvolume".as_ref(), "sync".as_ref(), point.as_os_str()])?;
        // What was freed by one commit counts as free from the next on.
        tool::run("btrfs", ["filesystem".as_ref(), "sync".as_ref(), point.as_os_str()])?;
        return Ok(Bytes(btrfs_usage(&point)?.data));
    }
    let root = File::open(&point)?;
    longrun_sys::sync_volume(&root)?;
    let capacity = longrun_sys::capacity(&root)?;
    Ok(capacity.block_size.to_bytes(longrun_layout::Blocks(capacity.total.0 - capacity.free.0)))
}
