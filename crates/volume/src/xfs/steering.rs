//! Allocating at a chosen place.
//!
//! XFS cannot be told a place either, but where a file is allocated behind all that it has, the allocator aims as far
//! behind the file's last extent on the volume as the new range lies behind it in the file; and the free extent around
//! that aim is taken before any other of its allocation group (Linux 6.18: 687 of 687 allocations exact on an aged
//! volume, 6 µs each). So for each group there is a nameless file with one block in it, the anchor; what is to be allocated
//! at a distance from it on the volume is allocated at that distance from it in the file. Only places behind the anchor
//! can be aimed at: it is the lowest block of a movable file, which the two files share while the pass lasts.
//!
//! Never trusts the aim: where an allocation came to lie is asked of the kernel, and one that missed is given back.

use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex, FileView, LogicalBlock, PhysicalBlock, Run,
    VolumeLayout,
};
use longrun_sys::{ByteRange, Errno, Mapping, OFlags, XfsGeometry};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Where the anchor lies in its file.
const ANCHOR: LogicalBlock = LogicalBlock(0);

/// A file without a name that is anchored in one allocation group. It vanishes with its descriptor, with the process, and
/// at log recovery.
#[derive(Debug)]
pub(super) struct Vessel {
    file: File,
    anchor: PhysicalBlock,
    block_size: BlockSize,
}

impl AsFd for Vessel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Blocks of a vessel, allocated at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Berth {
    /// Where they lie in the vessel's file.
    pub(super) logical: LogicalBlock,
    /// Which they are.
    pub(super) extent: Extent,
}

impl Vessel {
    /// Allocates exactly `wanted`; `None` when it cannot be had, and then nothing was taken.
    pub(super) fn take(&self, wanted: Extent) -> Result<Option<Berth>, Errno> {
        let Some(distance) = wanted.start.0.checked_sub(self.anchor.0).filter(|d| *d > 0) else { return Ok(None) };
        let logical = ANCHOR + Blocks(distance);
        let berth = Berth { logical, extent: wanted };
        // The file must end before it: only then does what is written to it make the file end with the data.
        longrun_sys::set_length(&self.file, self.block_size.to_bytes(Blocks(logical.0)))?;
        match longrun_sys::allocate(&self.file, self.range(&berth)) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                self.give_back(&berth)?;
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        }
        if self.lies(&berth)? {
            return Ok(Some(berth));
        }
        self.give_back(&berth)?;
        Ok(None)
    }

    /// Whether the berth's blocks are where they should be.
    pub(super) fn lies(&self, berth: &Berth) -> Result<bool, Errno> {
        let expected = Run { logical: berth.logical, physical: berth.extent.start, length: berth.extent.length };
        let mut done = Blocks(0);
        for extent in longrun_sys::map_file(&self.file, self.range(berth), Mapping::AsIs)? {
            let Some(run) = extent.run(self.block_size) else { return Ok(false) };
            // What was merged with a neighbour may reach further.
            let at = expected.logical + done;
            if run.logical > at || run.physical.0 + (at.0 - run.logical.0) != (expected.physical + done).0 {
                return Ok(false);
            }
            done = (run.logical_end().min(expected.logical_end())) - expected.logical;
        }
        Ok(done == berth.extent.length)
    }

    /// Gives the berth's blocks up; a file that shares them keeps them.
    pub(super) fn give_back(&self, berth: &Berth) -> Result<(), Errno> {
        longrun_sys::punch(&self.file, self.range(berth))
    }

    /// Writes the content of a berth, which need not fill its last block.
    pub(super) fn write(&self, berth: &Berth, content: &[u8]) -> Result<(), Errno> {
        let written = self.file.write_all_at(content, self.range(berth).start.0);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The bytes of a berth in the vessel's file.
    pub(super) fn range(&self, berth: &Berth) -> ByteRange {
        ByteRange::of_blocks(self.block_size, berth.logical, berth.extent.length)
    }
}

/// The vessels of a volume, one for each allocation group that can have one.
#[derive(Debug, Default)]
pub(super) struct Steering {
    vessels: BTreeMap<u64, Arc<Vessel>>,
}

/// A block of a user's file that a vessel can be anchored at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mooring {
    index: FileIndex,
    file: FileId,
    logical: LogicalBlock,
    block: PhysicalBlock,
    /// The file lies in one piece.
    is_whole: bool,
}

impl Steering {
    /// Anchors a vessel in each group where a movable file has a block, as low as there is one. Answers which of these files
    /// lie in one piece: there is no need to move them, and as long as they share a block with a vessel they had better
    /// stay. When one in several pieces moves, the vessel keeps the block until the pass ends.
    pub(super) fn anchor(
        &mut self,
        root: &File,
        geometry: &XfsGeometry,
        layout: &VolumeLayout,
    ) -> Result<Vec<FileIndex>, Errno> {
        let mut anchored_at = Vec::new();
        for (group, mooring) in moorings(geometry, layout) {
            match anchored(root, geometry, mooring) {
                Ok(vessel) if geometry.group_of_block(vessel.anchor) == group => {
                    self.vessels.insert(group, Arc::new(vessel));
                    anchored_at.extend(mooring.is_whole.then_some(mooring.index));
                }
                // The file is gone, has changed, or must not be shared: its group is left alone this time.
                Ok(vessel) => longrun_sys::set_length(&vessel.file, Bytes(0))?,
                Err(Errno::IO | Errno::UCLEAN) => return Err(Errno::IO),
                Err(_) => {}
            }
        }
        Ok(anchored_at)
    }

    /// The vessel that can take places in `group`.
    pub(super) fn vessel(&self, group: u64) -> Option<Arc<Vessel>> {
        self.vessels.get(&group).map(Arc::clone)
    }

    /// The first block of `group` that can be taken: what lies before it is out of reach.
    pub(super) fn reach(&self, group: u64) -> Option<PhysicalBlock> {
        self.vessels.get(&group).map(|vessel| vessel.anchor + Blocks(1))
    }

    /// Whether a vessel is anchored at this one block.
    pub(super) fn is_anchor(&self, extent: Extent) -> bool {
        extent.length == Blocks(1) && self.vessels.values().any(|vessel| vessel.anchor == extent.start)
    }

    /// The blocks of `extent` but for anchors.
    pub(super) fn without_anchors(&self, extent: Extent) -> Vec<Extent> {
        let anchors: ExtentSet =
            self.vessels.values().map(|vessel| Extent { start: vessel.anchor, length: Blocks(1) }).collect();
        anchors.gaps(extent)
    }

    /// Gives the anchors back. At once: what is left to the closing of a file comes back some time later.
    pub(super) fn moor(&mut self) -> Result<(), Errno> {
        let emptied =
            self.vessels.values().map(|v| longrun_sys::set_length(&v.file, Bytes(0))).fold(Ok(()), Result::and);
        self.vessels.clear();
        emptied
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // If this fails, the end of the process gives the blocks back.
        let _ = self.moor();
    }
}

/// The lowest block of a movable file in each group. Of a longer run, so that it is not the block that the file ends in:
/// such a block can be shared only at the end of another file. Of a file that shares nothing.
fn moorings(geometry: &XfsGeometry, layout: &VolumeLayout) -> BTreeMap<u64, Mooring> {
    let mut lowest: BTreeMap<u64, Mooring> = BTreeMap::new();
    let is_alone = |file: &FileView<'_>| layout.owners(file.index) == 1;
    for file in layout.files().filter(FileView::is_movable).filter(is_alone) {
        let is_whole = file.runs().len() == 1;
        for run in file.runs().filter(|run| run.length > Blocks(1)) {
            let (logical, block) = (run.logical, run.physical);
            let mooring = Mooring { index: file.index, file: file.id(), logical, block, is_whole };
            let known = lowest.entry(geometry.group_of_block(run.physical)).or_insert(mooring);
            if mooring.block < known.block {
                *known = mooring;
            }
        }
    }
    lowest
}

/// A nameless file that shares one block with a user's file.
fn anchored(root: &File, geometry: &XfsGeometry, mooring: Mooring) -> Result<Vessel, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
    let user = longrun_sys::open_xfs_by_id(root, mooring.file, flags)?;
    let file = File::from(longrun_sys::temporary_file(root)?);
    let block_size = geometry.block_size;
    let range = ByteRange::of_blocks(block_size, ANCHOR, Blocks(1));
    let of_user = ByteRange::of_blocks(block_size, mooring.logical, Blocks(1));
    longrun_sys::share_blocks_of(&user, of_user, &file, range.start)?;
    let extents = longrun_sys::map_file(&file, range, Mapping::AsIs)?;
    let run = extents.first().and_then(|extent| extent.run(block_size)).ok_or(Errno::STALE)?;
    Ok(Vessel { file, anchor: run.physical, block_size })
}
