//! Reads a mounted XFS volume by the kernel's own calls: all inodes by BULKSTAT, the maps of files by FIEMAP, the free
//! space by GETFSMAP.
//!
//! Owns the layout of a volume. Never writes (it only syncs the volume), and opens only files and directories. Blocks
//! with no known owner are treated as immovable: metadata, directories, and blocks beyond the end of files.

use super::reserve::regions;
use crate::mounted::again::look_again;
use longrun_engine::{NoProgress, Progress, VolumeError};
use longrun_layout::{Blocks, Extent, ExtentSet, LayoutBuilder, NO_DIRECTORY, PhysicalBlock, Pin, Run, VolumeLayout};
use longrun_sys::{
    ByteRange, Errno, InodeKind, InodeRecord, Mapping, OFlags, SpaceOwner, SpaceRecord, XfsGeometry, for_each_extent,
    for_each_inode, free_extents, map_space, open_xfs_by_id,
};
use std::fs::File;
use std::path::Path;

/// Between two looks at whether to go on.
const FILES_BETWEEN_REPORTS: u64 = 256;

/// The state of a volume at one moment.
#[derive(Clone, Debug)]
pub struct XfsScan {
    /// Files, directories, free space, obstacles.
    pub layout: VolumeLayout,
    /// How the volume is made.
    pub geometry: XfsGeometry,
    /// What the kernel names of the rest, ascending.
    pub areas: Vec<SpaceRecord>,
}

impl XfsScan {
    /// What the kernel says that holds `block`, if it is not free and belongs to no file.
    #[must_use]
    pub fn area_at(&self, block: PhysicalBlock) -> Option<SpaceRecord> {
        let behind = self.areas.partition_point(|area| area.extent.start <= block);
        self.areas.get(behind.checked_sub(1)?).filter(|area| area.extent.end() > block).copied()
    }
}

/// Reads the volume that `root`, its root directory, belongs to; errors call it `path`.
///
/// # Errors
/// [`VolumeError`]: the kernel refuses, contradicts itself, or `progress` was cancelled.
pub fn scan(root: &File, path: &Path, progress: &dyn Progress) -> Result<XfsScan, VolumeError> {
    let failed = |act| move |errno: Errno| io(path, act, errno);
    // What has no blocks yet would be missing.
    longrun_sys::sync_volume(root).map_err(failed("syncing the volume"))?;
    let geometry = longrun_sys::xfs_geometry(root).map_err(failed("reading the geometry"))?;
    let (mut layout, areas) = read(root, path, geometry, |_| true, progress)?;
    look_again(&mut layout, |doubted| {
        read(root, path, geometry, |inode| doubted.contains(&inode.id), &NoProgress).map(|(layout, _)| layout)
    })?;
    let available = longrun_sys::capacity(root).map_err(failed("reading the free space"))?.available;
    layout.set_regions(regions(&geometry, layout.free_blocks(), available));
    Ok(XfsScan { layout, geometry, areas })
}

/// The layout of the free space and those files that are `wanted`, and what the kernel names of the rest.
fn read(
    root: &File,
    path: &Path,
    geometry: XfsGeometry,
    wanted: impl Fn(&InodeRecord) -> bool,
    progress: &dyn Progress,
) -> Result<(VolumeLayout, Vec<SpaceRecord>), VolumeError> {
    let failed = |act| move |errno: Errno| io(path, act, errno);
    let mut inodes = Vec::new();
    for_each_inode(root, |inode| {
        if inode.links > 0 && inode.kind != InodeKind::Other && wanted(&inode) {
            inodes.push(inode);
        }
        progress.give_way();
        !progress.cancelled()
    })
    .map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => {
            VolumeError::NotPermitted { path: path.to_owned(), act: "reading all inodes".into() }
        }
        errno => io(path, "reading all inodes", errno),
    })?;
    let mut builder = LayoutBuilder::new(geometry.block_size, geometry.total);
    let mut mapper = Mapper { root, geometry, runs: Vec::new() };
    let total = inodes.len() as u64;
    for (number, inode) in (0..).zip(&inodes) {
        if number % FILES_BETWEEN_REPORTS == 0 {
            progress.give_way();
            if progress.cancelled() {
                return Err(VolumeError::Interrupted);
            }
            progress.at(number, total);
        }
        let Some(found) = mapper.map(inode).map_err(failed("mapping a file"))? else { continue };
        let is_directory = inode.kind == InodeKind::Directory;
        let file = builder.push_file(inode.id, NO_DIRECTORY, is_directory, found.pin, &mut mapper.runs);
        if found.shares {
            builder.shares_blocks(file);
        }
    }
    drop(inodes);
    let mut areas = Vec::new();
    let mut at = PhysicalBlock(0);
    // Group by group, since the kernel names each extent of a file, too: these must not fill the memory.
    while at.0 < geometry.total.0 {
        if progress.cancelled() {
            return Err(VolumeError::Interrupted);
        }
        let end = PhysicalBlock((at + geometry.group_blocks.max(Blocks(1))).0.min(geometry.total.0));
        let group = Extent::between(at, end);
        for record in map_space(root, geometry.block_size, group).map_err(failed("reading the free space"))? {
            // Records that begin in another group are that group's.
            match record.owner {
                _ if record.extent.start < at || record.extent.start >= end => {}
                SpaceOwner::Other(_) => {}
                SpaceOwner::Free => builder.push_free(record.extent),
                _ => areas.push(record),
            }
        }
        at = end;
    }
    progress.at(total, total);
    let layout = builder.build().map_err(|error| damaged(path, error.to_string()))?;
    Ok((layout, areas))
}

/// The free parts of `within`.
///
/// # Errors
/// The kernel's.
pub(super) fn free_in(root: &File, geometry: &XfsGeometry, within: Extent) -> Result<ExtentSet, Errno> {
    let free = free_extents(root, geometry.block_size, within)?;
    Ok(free.iter().filter_map(|piece| piece.intersection(&within)).collect())
}

/// What there is to know of a file besides its runs.
#[derive(Default)]
struct Found {
    /// Why it must stay, if so.
    pin: Option<Pin>,
    /// Some of its blocks belong to other files too.
    shares: bool,
}

impl From<Option<Pin>> for Found {
    fn from(pin: Option<Pin>) -> Self {
        Self { pin, shares: false }
    }
}

struct Mapper<'a> {
    root: &'a File,
    geometry: XfsGeometry,
    runs: Vec<Run>,
}

impl Mapper<'_> {
    /// Reads the runs of a file up to its end; `None` when it is gone.
    fn map(&mut self, inode: &InodeRecord) -> Result<Option<Found>, Errno> {
        self.runs.clear();
        match inode.kind {
            InodeKind::Directory => return Ok(Some(Found::default())),
            InodeKind::Symlink => return Ok(Some((inode.extents > 0).then_some(Pin::Symlink).into())),
            InodeKind::File | InodeKind::Other => {}
        }
        if inode.extents == 0 {
            return Ok(Some(Found::default()));
        }
        if inode.is_realtime() {
            return Ok(Some(Some(Pin::Realtime).into()));
        }
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match open_xfs_by_id(self.root, inode.id, flags) {
            Ok(file) => file,
            Err(Errno::STALE | Errno::NOENT) => return Ok(None),
            // Another process's lease: it can be moved another time.
            Err(Errno::AGAIN | Errno::PERM | Errno::ACCESS) => return Ok(Some(Some(Pin::Immutable).into())),
            Err(errno) => return Err(errno),
        };
        let end = self.geometry.block_size.to_blocks(inode.size);
        let (mut found, block_size) = (Found::default(), self.geometry.block_size);
        let runs = &mut self.runs;
        for_each_extent(&file, ByteRange::ALL, Mapping::AsIs, |extent| {
            let Some(mut run) = extent.run(block_size) else { return true };
            let inside = Blocks(end.0.saturating_sub(run.logical.0)).min(run.length);
            if inside.0 == 0 {
                return true;
            }
            found.shares |= extent.flags.is_shared();
            if extent.flags.is_unwritten() {
                found.pin = Some(Pin::Preallocated);
            }
            run.length = inside;
            runs.push(run);
            true
        })?;
        if inode.is_immutable() {
            found.pin = Some(Pin::Immutable);
        } else if inode.is_unwanted() {
            found.pin = Some(Pin::Unwanted);
        }
        Ok(Some(found))
    }
}

fn damaged(path: &Path, detail: String) -> VolumeError {
    VolumeError::Damaged { path: path.to_owned(), filesystem: "xfs".to_owned(), detail }
}

fn io(path: &Path, act: &'static str, errno: Errno) -> VolumeError {
    VolumeError::Io { path: path.to_owned(), act, source: errno.into() }
}
