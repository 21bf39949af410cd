//! Reads a mounted btrfs by the kernel's own calls: every tree item by item, without opening a file.
//!
//! Owns the order of the reading. Never writes; only syncs the volume first.

use super::chunks::ChunkMap;
use super::files::{self, Files};
use super::model::{BtrfsGeometry, BtrfsScan, Owner, OwnerTraits, Subvolume};
use super::sharing::SharingSets;
use super::trees::Trees;
use super::{chunks, free, picture, roots, swap};
use crate::mounted::again::look_again;
use longrun_engine::{NoProgress, Progress, VolumeError};
use longrun_layout::VolumeLayout;
use longrun_sys::BtrfsInfo;
use std::fs::File;
use std::path::Path;

/// Reads the volume that `root`, any open directory of it, belongs to: all its subvolumes and snapshots; errors call it
/// `path`. What changes meanwhile is seen before or after; files whose extents contradict the chunks or the free space then
/// are pinned: as changed, unless a second look finds the same.
///
/// # Errors
/// [`VolumeError`]: without root; a volume with zones; the kernel refuses or contradicts itself; `progress` was cancelled.
pub fn scan(root: &File, path: &Path, progress: &dyn Progress) -> Result<BtrfsScan, VolumeError> {
    let mut trees = Trees::new(root, path, progress);
    let info = longrun_sys::btrfs_info(root).map_err(trees.failed("reading the parameters of the volume"))?;
    if let Some(what) = chunks::refusal(&info) {
        return Err(trees.unsupported(what));
    }
    // What has no place yet would be missing, and what was freed since the last commit would not be free.
    longrun_sys::sync_volume(root).map_err(trees.failed("syncing the volume"))?;
    let subvolumes = roots::read(&mut trees)?;
    let mut files = files::read(&mut trees, &subvolumes, info.block_size)?;
    swap::mark(&info, &mut files.owners);
    // Chunks after files: whatever these refer to is then known.
    let mut map = chunks::read(&mut trees, &info)?;
    let free_space = free::read(&mut trees, &info, &mut map.chunks)?;
    let sets = mark_sharing(&mut files);
    let mut layout = layout_of(&trees, &info, &files, &map)?;
    look_again(&mut layout, |doubted| {
        let doubted = doubted.iter().map(|id| Owner::of_file_id(*id));
        // What was written since the last commit still is free by the free-space tree.
        longrun_sys::sync_volume(root).map_err(trees.failed("syncing the volume"))?;
        let files = files::read_some(&mut trees, &subvolumes, doubted, info.block_size)?;
        let mut map = chunks::read(&mut trees, &info)?;
        free::read(&mut trees, &info, &mut map.chunks)?;
        layout_of(&trees, &info, &files, &map)
    })?;
    let geometry = BtrfsGeometry {
        block_size: info.block_size,
        node_bytes: info.node_bytes,
        devices: map.devices,
        free_space,
        data_profile: map.data_profile,
    };
    Ok(BtrfsScan {
        layout,
        geometry,
        chunks: map.chunks,
        unallocated: map.unallocated,
        subvolumes,
        owners: files.owners,
        extents: files.extents,
        sets,
    })
}

/// The subvolumes and snapshots of that volume, ascending by id.
///
/// # Errors
/// [`VolumeError`]: without root; the kernel refuses.
pub(super) fn subvolumes(root: &File, path: &Path) -> Result<Vec<Subvolume>, VolumeError> {
    roots::read(&mut Trees::new(root, path, &NoProgress))
}

fn layout_of(trees: &Trees<'_>, info: &BtrfsInfo, files: &Files, map: &ChunkMap) -> Result<VolumeLayout, VolumeError> {
    picture::layout(files, map, info.block_size).map_err(|error| trees.damaged(error.to_string()))
}

fn mark_sharing(files: &mut Files) -> SharingSets {
    let sets = SharingSets::of(&files.extents);
    for file in sets.sharing_files() {
        if let Some(owner) = files.owners.get_mut(file.0 as usize) {
            owner.traits.add(OwnerTraits::SHARED);
        }
    }
    sets
}

/// Why a volume as a whole cannot be scanned, whichever caller asks.
///
/// # Errors
/// [`VolumeError::Io`] when the kernel does not tell.
pub fn refusal(root: &File, path: &Path) -> Result<Option<String>, VolumeError> {
    let info: BtrfsInfo = longrun_sys::btrfs_info(root).map_err(|errno| VolumeError::Io {
        path: path.to_owned(),
        act: "reading the parameters of the volume",
        source: errno.into(),
    })?;
    Ok(chunks::refusal(&info))
}
