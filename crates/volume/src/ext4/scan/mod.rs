//! Reads an ext4 volume directly from its device or image: inode tables, extent trees, bitmaps, directories.
//!
//! Owns the on-disk format. Never writes, never uses a number before it is checked, never allocates by a number that
//! the size of the device does not confirm. On a mounted volume, buffered reads of the device show what the kernel has
//! in memory; records that were read half-written are read again.
//!
//! Memory: about 28 bytes per file, 16 bytes per run and 24 bytes per area, in addition to buffers of a few MiB. While
//! the layout is built, its builder needs about 24 bytes more per run (measured: 66 MB for a million files with one run
//! each).
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod areas;
mod bitmap;
mod bytes;
pub(in crate::ext4) mod checksum;
mod collect;
pub(in crate::ext4) mod device;
pub(in crate::ext4) mod directory;
pub(in crate::ext4) mod fault;
pub(in crate::ext4) mod group;
pub(in crate::ext4) mod inode;
pub(in crate::ext4) mod map;
mod parents;
mod paths;
mod refusal;
mod source;
pub(in crate::ext4) mod superblock;
mod table;

pub use areas::{Area, AreaKind, Areas};
pub use collect::{BeyondEnd, Deleted};
pub use fault::Access;
pub use refusal::Refusal;
pub(in crate::ext4) use source::OnDisk;
pub use source::{FileSource, Source};

use crate::mounted::again::look_again;
use collect::Collector;
use device::Device;
use fault::Fault;
use longrun_engine::{NoProgress, Progress, VolumeError, unnamed};
use longrun_layout::{
    BlockSize, Blocks, Extent, FileId, FileIndex, FileView, InodeNumber, LogicalBlock, NO_DIRECTORY, PhysicalBlock,
    VolumeLayout,
};
use parents::Parents;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The source of the free space.
#[derive(Clone, Copy, Debug)]
pub enum FreeSpace<'a> {
    /// The bitmaps on the device: right when no one has the volume mounted.
    Bitmaps,
    /// The kernel, through any open file of the mounted volume. Sync the volume first: space freed since the last commit
    /// does not show.
    Kernel(BorrowedFd<'a>),
}

/// What a scan reads in addition to inodes and maps.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'a> {
    /// Where the free space is read from.
    pub free_space: FreeSpace<'a>,
    /// Whether to find out the directory of each file: groups files for placement, and makes paths cheap. Costs 0.1 to
    /// 0.2 s for a million files, so that there is seldom a reason not to.
    pub directories: bool,
    /// Whether the volume is worked on as it lies there, not mounted: directories move too, and so does what lies behind the end of
    /// files.
    pub offline: bool,
}

/// The UUID and label of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The label, as bytes chosen by the maker of the volume.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
}

/// The state of a volume at one moment.
#[derive(Clone, Debug)]
pub struct Ext4Scan {
    /// Files, directories, free space, obstacles.
    pub layout: VolumeLayout,
    /// What the obstacles are.
    pub areas: Areas,
    /// Label and UUID.
    pub identity: Identity,
    /// Blocks in an allocation cluster: 1 except with bigalloc.
    pub cluster: Blocks,
    /// Why its files must not be moved, if there are reasons.
    pub refusals: Vec<Refusal>,
    /// Preallocated space that the layout leaves out of files.
    pub beyond_end: BeyondEnd,
    /// Files without a name.
    pub deleted: Deleted,
    /// Directory blocks that could not be understood: some files have no directory in the layout then.
    pub unreadable_directory_blocks: u64,
}

/// The owner of a block.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// No one.
    Free(Extent),
    /// A file or directory, and which of its blocks this is.
    File(FileView<'a>, LogicalBlock),
    /// The file system itself, or a file in another way than by content.
    Area(Area),
    /// In use, by whom is not known.
    Unknown,
}

impl Ext4Scan {
    /// Who has `block`; `None` beyond the end of the volume.
    #[must_use]
    pub fn owner_of(&self, block: PhysicalBlock) -> Option<Owner<'_>> {
        if block.0 >= self.layout.total_blocks().0 {
            return None;
        }
        if let Some((index, run)) = self.layout.owner_of(block) {
            let file = self.layout.file(index)?;
            return Some(Owner::File(file, run.logical + (block - run.physical)));
        }
        if let Some(area) = self.areas.at(block) {
            return Some(Owner::Area(area));
        }
        let free = self.layout.free();
        let piece = free.get(free.partition_point(|e| e.end() <= block)).filter(|e| e.start <= block);
        Some(piece.map_or(Owner::Unknown, |e| Owner::Free(*e)))
    }

    /// The file with this inode number.
    #[must_use]
    pub fn file_by_inode(&self, inode: InodeNumber) -> Option<FileView<'_>> {
        file_by_inode(&self.layout, inode)
    }
}

fn file_by_inode(layout: &VolumeLayout, inode: InodeNumber) -> Option<FileView<'_>> {
    let (mut low, mut high) = (0, u32::try_from(layout.file_count()).ok()?);
    // Files are listed in order of their inode numbers.
    while low < high {
        let middle = low + (high - low) / 2;
        let file = layout.file(FileIndex(middle))?;
        match file.record.inode.cmp(&inode) {
            std::cmp::Ordering::Equal => return Some(file),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

/// How a volume is divided into block groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The block size.
    pub block_size: BlockSize,
    /// The size of the volume.
    pub total: Blocks,
    /// Where the first group starts.
    pub first_block: PhysicalBlock,
    /// The size of every group but perhaps the last.
    pub blocks_per_group: Blocks,
}

impl Geometry {
    /// The group that holds `block`; groups lie one behind the other.
    #[must_use]
    pub fn group_around(&self, block: PhysicalBlock) -> Extent {
        let length = self.blocks_per_group.0.max(1);
        let index = block.0.saturating_sub(self.first_block.0) / length;
        let start = self.first_block + Blocks(index * length);
        Extent::between(start, (start + Blocks(length)).min(PhysicalBlock(self.total.0)))
    }
}

/// An opened device or image with an ext4 (ext2, ext3) file system.
pub struct Ext4Reader {
    path: PathBuf,
    pub(in crate::ext4) device: Device,
}

impl Ext4Reader {
    /// Opens the block device or image at `path`, read-only.
    ///
    /// # Errors
    /// [`VolumeError`]: it cannot be opened, is no ext4 volume, is damaged, or has features that are not known.
    pub fn open(path: &Path, access: Access) -> Result<Self, VolumeError> {
        let source = crate::probe::open(path)
            .and_then(|file: File| FileSource::new(file).map_err(|source| Fault::Io(source).on(path)))?;
        Self::from_source(path, Box::new(source), access)
    }

    /// Reads from `source`, which errors call `path`.
    ///
    /// # Errors
    /// As [`Ext4Reader::open`].
    pub fn from_source(path: &Path, source: Box<dyn Source>, access: Access) -> Result<Self, VolumeError> {
        let device = Device::open(source, access).map_err(|fault| fault.on(path))?;
        Ok(Self { path: path.to_owned(), device })
    }

    /// Why files of the volume must not be moved, as far as the superblock says.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        refusal::refusals(&self.device.sb)
    }

    /// How the volume is cut into block groups.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let sb = &self.device.sb;
        Geometry {
            block_size: sb.block_size,
            total: Blocks(sb.blocks),
            first_block: PhysicalBlock(sb.first_data_block),
            blocks_per_group: Blocks(sb.blocks_per_group),
        }
    }

    /// Reads the whole volume as it is now.
    ///
    /// # Errors
    /// [`VolumeError`]: the device cannot be read, contradicts itself, or `progress` was cancelled.
    pub fn scan(&mut self, options: ScanOptions<'_>, progress: &dyn Progress) -> Result<Ext4Scan, VolumeError> {
        self.device.refresh().and_then(|()| self.scan_device(options, progress)).map_err(|fault| fault.on(&self.path))
    }

    fn scan_device(&self, options: ScanOptions<'_>, progress: &dyn Progress) -> Result<Ext4Scan, Fault> {
        let device = &self.device;
        let mut fixed = Vec::new();
        group::push_fixed_areas(&device.sb, &device.groups, &mut fixed);
        let fixed = Areas::new(fixed);
        let parents = options.directories.then(Parents::default);
        let mut collector = Collector::new(device, fixed.all().to_vec(), parents, options.offline);
        let total = device.groups.len() as u64;
        table::for_each_piece(device.source.as_ref(), &device.sb, device.access, &device.groups, |piece| {
            progress.give_way();
            if progress.cancelled() {
                return Err(Fault::Interrupted);
            }
            progress.at(u64::from(piece.group), total);
            piece.inodes(&device.sb).try_for_each(|(number, raw)| collector.take(number, raw))
        })?;
        let free = match options.free_space {
            FreeSpace::Bitmaps => device.free_extents(fixed.all())?,
            FreeSpace::Kernel(file) => kernel_free_extents(file, device, progress)?,
        };
        let Collector { mut builder, areas, listed, parents, beyond_end, deleted, .. } = collector;
        free.into_iter().for_each(|extent| builder.push_free(extent));
        let mut unreadable_directory_blocks = 0;
        if let Some(mut parents) = parents {
            for (parent, index) in parents.find(device, &listed)?.into_iter().zip(0..) {
                builder.set_directory(FileIndex(index), parent);
            }
            unreadable_directory_blocks = parents.unreadable_blocks;
        }
        drop(listed);
        let mut layout = builder.build().map_err(|e| Fault::Damaged(e.to_string()))?;
        if let FreeSpace::Kernel(file) = options.free_space {
            look_again(&mut layout, |doubted| self.scan_some(doubted, file))?;
        }
        progress.at(total, total);
        Ok(Ext4Scan {
            layout,
            areas: Areas::new(areas),
            identity: Identity { label: device.sb.label.clone(), uuid: device.sb.uuid },
            cluster: Blocks(device.sb.cluster_blocks),
            refusals: refusal::refusals(&device.sb),
            beyond_end,
            deleted,
            unreadable_directory_blocks,
        })
    }

    /// The layout of the free space and these files, as far as they are still there.
    fn scan_some(&self, files: &BTreeSet<FileId>, mounted: BorrowedFd<'_>) -> Result<VolumeLayout, Fault> {
        let mut collector = Collector::new(&self.device, Vec::new(), None, false);
        for number in files.iter().filter_map(|file| u32::try_from(file.inode.0).ok()) {
            let (_, raw) = self.device.read_inode(number)?;
            collector.take(number, &raw)?;
        }
        let mut builder = collector.builder;
        kernel_free_extents(mounted, &self.device, &NoProgress)?
            .into_iter()
            .for_each(|extent| builder.push_free(extent));
        builder.build().map_err(|error| Fault::Damaged(error.to_string()))
    }

    /// The path from the root of the volume of each of `inodes` that still has one, as bytes, without a leading slash.
    /// Cheap when `scan` knows the directories, else one pass over all of them.
    ///
    /// # Errors
    /// [`VolumeError`] when the device cannot be read or contradicts itself.
    pub fn paths_of(
        &self,
        scan: &Ext4Scan,
        inodes: &[InodeNumber],
    ) -> Result<BTreeMap<InodeNumber, Vec<u8>>, VolumeError> {
        self.paths_in(&scan.layout, inodes)
    }

    /// The paths of `files` of `layout`, in their order, the root of the volume being called `top`.
    ///
    /// # Errors
    /// As [`Self::paths_of`].
    pub fn names(&self, layout: &VolumeLayout, top: &Path, files: &[FileId]) -> Result<Vec<PathBuf>, VolumeError> {
        let inodes: Vec<InodeNumber> = files.iter().map(|file| file.inode).collect();
        let mut paths = self.paths_in(layout, &inodes)?;
        let mut named = |inode: &InodeNumber| paths.remove(inode).map(|path| top.join(OsString::from_vec(path)));
        Ok(inodes.iter().map(|inode| named(inode).unwrap_or_else(|| unnamed(*inode))).collect())
    }

    fn paths_in(
        &self,
        layout: &VolumeLayout,
        inodes: &[InodeNumber],
    ) -> Result<BTreeMap<InodeNumber, Vec<u8>>, VolumeError> {
        let wanted: BTreeSet<u32> = inodes.iter().filter_map(|i| u32::try_from(i.0).ok()).collect();
        let parent = |inode: &u32| {
            let record = file_by_inode(layout, InodeNumber(u64::from(*inode)))?.record;
            (record.directory != NO_DIRECTORY).then_some((*inode, record.directory))
        };
        let known = wanted.iter().filter_map(parent).collect();
        let mut directories =
            layout.files().filter(|f| f.record.is_directory).filter_map(|f| u32::try_from(f.record.inode.0).ok());
        paths::find(&self.device, &wanted, &known, &mut directories).map_err(|fault| fault.on(&self.path))
    }
}

/// Groups whose space is asked for at once: the answer names every used piece too, and must not fill the memory.
const GROUPS_PER_QUESTION: u64 = 16;

fn kernel_free_extents(file: BorrowedFd<'_>, device: &Device, progress: &dyn Progress) -> Result<Vec<Extent>, Fault> {
    let whole = device.whole();
    // At group boundaries: block 0 is in no group when blocks are 1 KiB.
    let step = device.sb.blocks_per_group.saturating_mul(GROUPS_PER_QUESTION);
    let mut free = Vec::new();
    let mut at = whole.start;
    while at < whole.end() {
        if progress.cancelled() {
            return Err(Fault::Interrupted);
        }
        let end = PhysicalBlock(device.sb.first_data_block + (at.0 / step + 1) * step).min(whole.end());
        let found = longrun_sys::free_extents(file, device.sb.block_size, Extent::between(at, end));
        free.extend(found.map_err(|errno| Fault::Io(std::io::Error::from(errno)))?);
        at = end;
    }
    Ok(free)
}
