//! How FITRIM goes over btrfs: block group by block group, and over the parts of its devices that belong to none.
//!
//! Owns the slices of btrfs, and the free space by its places. Never writes.

use super::trees::Trees;
use super::{chunks, free};
use crate::Target;
use crate::mounted::io;
use crate::reclaim::{Cuts, FreePieces, Slice, Trimming};
use longrun_engine::{NoProgress, Progress, VolumeError};
use longrun_layout::{Bytes, Extent, ExtentSet};
use longrun_sys::{ByteRange, btrfs_info};
use std::fs::File;
use std::path::Path;

/// No slice is cut: the kernel leaves out a block group that begins before the range, also where the range begins within it
/// (measured on Linux 6.18).
const NO_CUT: Cuts = Cuts::each(Bytes(u64::MAX));

/// An address that no block group has. Each call trims what belongs to none, whatever range it is for: a call for this one does
/// nothing else.
const NOWHERE: Bytes = Bytes(1 << 62);

/// What the kernel remembers.
pub(super) const SKIPS: &str =
    "btrfs skips space outside its block groups that it has trimmed since it was mounted and has not used since then";

/// The slices of the volume of `root`. New block groups get addresses behind all others: they belong to the last slice.
pub(super) fn trimming(root: &File, target: &Target) -> Result<Trimming, VolumeError> {
    let path = &target.given;
    let mut trees = Trees::new(root, path, &NoProgress);
    let info = btrfs_info(root).map_err(io(path, "reading the parameters of the volume"))?;
    if let Some(what) = chunks::refusal(&info) {
        return Err(trees.unsupported(what));
    }
    let map = chunks::read(&mut trees, &info)?;
    let areas =
        map.chunks.iter().map(|chunk| ByteRange { start: Bytes(chunk.start.0), length: chunk.length }).collect();
    let unallocated: Bytes = map.devices.iter().map(|device| device.unallocated).sum();
    let least = u64::from(info.block_size.bytes());
    let first = Slice { range: ByteRange { start: NOWHERE, length: Bytes(least) }, length: unallocated };
    Ok(Trimming { areas, cuts: NO_CUT, first: Some(first), longest: None, is_counted: true, memory: None })
}

/// The free space of the only device: in block groups, in each of their copies, and outside. None of several devices.
pub(super) fn free_pieces(
    root: &File,
    path: &Path,
    progress: &dyn Progress,
) -> Result<Option<FreePieces>, VolumeError> {
    let mut trees = Trees::new(root, path, progress);
    let info = btrfs_info(root).map_err(trees.failed("reading the parameters of the volume"))?;
    if let Some(what) = chunks::refusal(&info) {
        return Err(trees.unsupported(what));
    }
    let mut map = chunks::read(&mut trees, &info)?;
    if map.devices.len() > 1 {
        return Ok(None);
    }
    free::read(&mut trees, &info, &mut map.chunks)?;
    let in_copies = map.chunks.iter().flat_map(|chunk| {
        let places = std::iter::once(&chunk.position).chain(&chunk.copies);
        places.flat_map(|place| {
            let moved = |piece: &Extent| Extent { start: *place + (piece.start - chunk.position), ..*piece };
            chunk.free.iter().map(moved)
        })
    });
    let pieces: ExtentSet = in_copies.chain(map.unallocated.iter().copied()).collect();
    Ok(Some(FreePieces { block_size: info.block_size, pieces: pieces.iter().collect() }))
}
