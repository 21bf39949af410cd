//! Reads the free space of a volume and its pieces, as cheaply as the file system allows.
//!
//! Owns the reading of statfs, of GETFSMAP on XFS, and of sysfs on btrfs. Never scans a device.

use super::health::{Figures, possible_inodes};
use crate::volumes::Found;
use longrun_api::model::Space;
use longrun_sys::{Capacity, FileSystem, Superblock, format_uuid};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The figures of one examination of a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// How full it is.
    pub space: Space,
    /// What its health depends on, where that could be found out.
    pub figures: Option<Figures>,
}

/// Looks at a volume. With `pieces`, those of the free space are asked for where that is cheap (XFS).
///
/// # Errors
/// The kernel's; `ESTALE` when it is no longer mounted.
pub fn look(found: &Found, superblock: &Superblock, pieces: bool) -> io::Result<Look> {
    let root = found.watched.open_root()?;
    let capacity = longrun_sys::capacity(&root)?;
    let bytes = |blocks| capacity.block_size.to_bytes(blocks).0;
    let mut space = Space {
        total_bytes: bytes(capacity.total),
        free_bytes: bytes(capacity.free),
        available_bytes: bytes(capacity.available),
        ..Space::default()
    };
    let figures = match found.watched.filesystem {
        FileSystem::Ext4 => longrun_sys::free_inodes(&root).ok().map(|free_inodes| Figures::Ext4 { free_inodes }),
        FileSystem::Xfs if pieces => {
            let free = free_pieces(&root, &capacity)?;
            space.free_pieces = Some(free.len() as u64);
            space.largest_free_bytes = Some(free.iter().map(|piece| piece.1).max().unwrap_or(0));
            let free_inodes = longrun_sys::xfs_free_inodes(&root)?;
            superblock.inodes.as_ref().map(|chunks| Figures::Xfs {
                free_inodes,
                possible_inodes: possible_inodes(free.iter().copied(), chunks),
            })
        }
        FileSystem::Xfs => None,
        // Not the UUID on the device: a clone has another one for as long as its origin is mounted.
        FileSystem::Btrfs => longrun_sys::btrfs_info(&root).ok().and_then(|info| btrfs_figures(&info.uuid)),
    };
    Ok(Look { space, figures })
}

/// The free pieces of an XFS volume, start and length in bytes.
fn free_pieces(root: &File, capacity: &Capacity) -> io::Result<Vec<(u64, u64)>> {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(capacity.block_size.bytes()));
    let free = longrun_sys::all_free_extents(root, capacity.block_size)?;
    Ok(free.iter().map(|piece| (bytes(piece.start.0), bytes(piece.length.0))).collect())
}

/// What sysfs tells about the volume `uuid`.
fn btrfs_figures(uuid: &[u8; 16]) -> Option<Figures> {
    let base = PathBuf::from("/sys/fs/btrfs").join(format_uuid(uuid));
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let of = |kind: &str, name: &str| number(&base.join("allocation").join(kind).join(name));
    let given: u64 = ["data", "metadata", "system"].iter().filter_map(|kind| of(kind, "disk_total")).sum();
    // Sizes of devices are in sectors of 512 bytes.
    let devices = fs::read_dir(base.join("devices")).ok()?.flatten();
    let size: u64 = devices.filter_map(|device| number(&device.path().join("size"))).map(|sectors| sectors * 512).sum();
    let metadata = of("metadata", "total_bytes")?;
    let used: u64 =
        ["bytes_used", "bytes_reserved", "bytes_pinned"].iter().filter_map(|name| of("metadata", name)).sum();
    let reserve = number(&base.join("allocation/global_rsv_size")).unwrap_or(0);
    Some(Figures::Btrfs {
        unallocated: size.saturating_sub(given),
        metadata,
        metadata_used: used + reserve,
        copies: (of("metadata", "disk_total")? / metadata.max(1)).max(1),
    })
}
