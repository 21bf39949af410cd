//! Allocates at a chosen place.
//!
//! XFS has no call to allocate at a chosen place. But when a file is allocated beyond its last extent, the allocator
//! aims as far beyond this extent on the volume as the new range is beyond it in the file, and prefers the free extent
//! around that aim to all others of its allocation group (Linux 6.18: 687 of 687 allocations exact on an aged volume, 6
//! µs each). So each group gets a nameless file with one block in it, the anchor. To allocate at a distance from the
//! anchor on the volume, we allocate at the same distance from it in the file. Only places beyond the anchor can be
//! reached. The anchor is therefore the lowest block of a movable file, which the two files share during the pass.
//!
//! Never relies on the aim: the place of every allocation is read from the kernel, and an allocation at another place
//! is given back.

use super::reserve::group_extent;
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex, FileView, LogicalBlock, PhysicalBlock, Pin, Run,
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
pub(super) struct AnchorFile {
    file: File,
    anchor: PhysicalBlock,
    block_size: BlockSize,
}

impl AsFd for AnchorFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Blocks of an anchor file, allocated at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnchoredRange {
    /// Where they lie in its file.
    pub(super) logical: LogicalBlock,
    /// Which they are.
    pub(super) extent: Extent,
}

impl AnchorFile {
    /// Allocates exactly `wanted`; `None` when it cannot be obtained, and then nothing was taken.
    pub(super) fn take(&self, wanted: Extent) -> Result<Option<AnchoredRange>, Errno> {
        let Some(distance) = wanted.start.0.checked_sub(self.anchor.0).filter(|d| *d > 0) else { return Ok(None) };
        let logical = ANCHOR + Blocks(distance);
        let anchored = AnchoredRange { logical, extent: wanted };
        // The file must end before it: only then does what is written to it make the file end with the data.
        longrun_sys::set_length(&self.file, self.block_size.to_bytes(Blocks(logical.0)))?;
        match longrun_sys::allocate(&self.file, self.range(&anchored)) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                self.give_back(&anchored)?;
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        }
        if self.lies(&anchored)? {
            return Ok(Some(anchored));
        }
        self.give_back(&anchored)?;
        Ok(None)
    }

    /// Whether the range's blocks are where they should be.
    pub(super) fn lies(&self, anchored: &AnchoredRange) -> Result<bool, Errno> {
        let expected =
            Run { logical: anchored.logical, physical: anchored.extent.start, length: anchored.extent.length };
        let mut done = Blocks(0);
        for extent in longrun_sys::map_file(&self.file, self.range(anchored), Mapping::AsIs)? {
            let Some(run) = extent.run(self.block_size) else { return Ok(false) };
            // What was merged with a neighbour may reach further.
            let at = expected.logical + done;
            if run.logical > at || run.physical.0 + (at.0 - run.logical.0) != (expected.physical + done).0 {
                return Ok(false);
            }
            done = (run.logical_end().min(expected.logical_end())) - expected.logical;
        }
        Ok(done == anchored.extent.length)
    }

    /// Gives the range's blocks up; a file that shares them keeps them.
    pub(super) fn give_back(&self, anchored: &AnchoredRange) -> Result<(), Errno> {
        longrun_sys::punch(&self.file, self.range(anchored))
    }

    /// Writes the content of a range, which need not fill its last block.
    pub(super) fn write(&self, anchored: &AnchoredRange, content: &[u8]) -> Result<(), Errno> {
        let written = self.file.write_all_at(content, self.range(anchored).start.0);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The bytes of a range in its file.
    pub(super) fn range(&self, anchored: &AnchoredRange) -> ByteRange {
        ByteRange::of_blocks(self.block_size, anchored.logical, anchored.extent.length)
    }
}

/// The anchor files of a volume, one for each allocation group that can have one.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    files: BTreeMap<u64, Arc<AnchorFile>>,
}

/// A block of a user's file that an anchor file can be anchored at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnchorBlock {
    index: FileIndex,
    file: FileId,
    logical: LogicalBlock,
    block: PhysicalBlock,
    /// The file lies in one piece.
    is_whole: bool,
}

impl Anchors {
    /// Makes an anchor file in each group where a movable file has a block, as low as there is one, and takes from plans for
    /// `layout` what they cannot have then: the answer is which free blocks are out of reach.
    pub(super) fn anchor(
        &mut self,
        root: &File,
        geometry: &XfsGeometry,
        layout: &mut VolumeLayout,
    ) -> Result<ExtentSet, Errno> {
        let anchor_blocks = anchor_blocks(geometry, layout);
        for (group, anchor_block) in &anchor_blocks {
            match anchored(root, geometry, *anchor_block) {
                Ok(anchor_file) if anchor_file.anchor == anchor_block.block => {
                    self.files.insert(*group, Arc::new(anchor_file));
                }
                // The file is gone, has changed, or must not be shared: its group is left alone this time.
                Ok(anchor_file) => longrun_sys::set_length(&anchor_file.file, Bytes(0))?,
                Err(Errno::IO | Errno::UCLEAN) => return Err(Errno::IO),
                Err(_) => {}
            }
        }
        Ok(withhold(geometry, &anchor_blocks, |group| self.files.contains_key(&group), layout))
    }

    /// The anchor file that can take places in `group`.
    pub(super) fn anchor_file(&self, group: u64) -> Option<Arc<AnchorFile>> {
        self.files.get(&group).map(Arc::clone)
    }

    /// Whether an anchor file is anchored at this one block.
    pub(super) fn is_anchor(&self, extent: Extent) -> bool {
        extent.length == Blocks(1) && self.files.values().any(|anchor_file| anchor_file.anchor == extent.start)
    }

    /// The blocks of `extent` but for anchors.
    pub(super) fn without_anchors(&self, extent: Extent) -> Vec<Extent> {
        let anchors: ExtentSet =
            self.files.values().map(|anchor_file| Extent { start: anchor_file.anchor, length: Blocks(1) }).collect();
        anchors.gaps(extent)
    }

    /// Gives the anchors back. At once: what is left to the closing of a file comes back some time later.
    pub(super) fn give_back_all(&mut self) -> Result<(), Errno> {
        let emptied = self.files.values().map(|v| longrun_sys::set_length(&v.file, Bytes(0))).fold(Ok(()), Result::and);
        self.files.clear();
        emptied
    }
}

impl Drop for Anchors {
    fn drop(&mut self) {
        // If this fails, the end of the process gives the blocks back.
        let _ = self.give_back_all();
    }
}

/// What [`Anchors::anchor`] would take from plans for `layout`, a scan of a volume without anchors. For a dry run, which
/// anchors nothing and plans from the same facts.
#[must_use]
pub fn withhold_anchors(geometry: &XfsGeometry, layout: &mut VolumeLayout) -> ExtentSet {
    let anchor_blocks = anchor_blocks(geometry, layout);
    withhold(geometry, &anchor_blocks, |_| true, layout)
}

/// Pins the files that an anchor is in and that lie in one piece: there is no need to move them, and as long as they share a
/// block with an anchor file they had better stay. When one in several pieces moves, the anchor file keeps the block until the pass
/// ends. What lies before an anchor, or in a group without an anchor file, is out of reach.
fn withhold(
    geometry: &XfsGeometry,
    anchor_blocks: &BTreeMap<u64, AnchorBlock>,
    has_file: impl Fn(u64) -> bool,
    layout: &mut VolumeLayout,
) -> ExtentSet {
    let mut unavailable = ExtentSet::new();
    let mut whole = Vec::new();
    for group in 0..geometry.total.0.div_ceil(geometry.group_blocks.0.max(1)) {
        let extent = group_extent(geometry, group);
        let anchor_block = anchor_blocks.get(&group).filter(|_| has_file(group));
        let reach = anchor_block.map_or(extent.end(), |anchor_block| anchor_block.block + Blocks(1));
        unavailable.insert(Extent::between(extent.start, reach));
        whole.extend(anchor_block.filter(|anchor_block| anchor_block.is_whole).map(|anchor_block| anchor_block.index));
    }
    layout.pin(&whole, Pin::Shared);
    unavailable
}

/// The lowest block of a movable file in each group. Of a longer run, so that it is not the block that the file ends in:
/// such a block can be shared only at the end of another file. Of a file that shares nothing.
fn anchor_blocks(geometry: &XfsGeometry, layout: &VolumeLayout) -> BTreeMap<u64, AnchorBlock> {
    let mut lowest: BTreeMap<u64, AnchorBlock> = BTreeMap::new();
    let is_alone = |file: &FileView<'_>| layout.owners(file.index) == 1;
    for file in layout.files().filter(FileView::is_movable).filter(is_alone) {
        let is_whole = file.runs().len() == 1;
        for run in file.runs().filter(|run| run.length > Blocks(1)) {
            let (logical, block) = (run.logical, run.physical);
            let anchor_block = AnchorBlock { index: file.index, file: file.id(), logical, block, is_whole };
            let known = lowest.entry(geometry.group_of_block(run.physical)).or_insert(anchor_block);
            if anchor_block.block < known.block {
                *known = anchor_block;
            }
        }
    }
    lowest
}

/// A nameless file that shares one block with a user's file.
fn anchored(root: &File, geometry: &XfsGeometry, anchor_block: AnchorBlock) -> Result<AnchorFile, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
    let user = longrun_sys::open_xfs_by_id(root, anchor_block.file, flags)?;
    let file = File::from(longrun_sys::temporary_file(root)?);
    let block_size = geometry.block_size;
    let range = ByteRange::of_blocks(block_size, ANCHOR, Blocks(1));
    let of_user = ByteRange::of_blocks(block_size, anchor_block.logical, Blocks(1));
    longrun_sys::share_blocks_of(&user, of_user, &file, range.start)?;
    let extents = longrun_sys::map_file(&file, range, Mapping::AsIs)?;
    let run = extents.first().and_then(|extent| extent.run(block_size)).ok_or(Errno::STALE)?;
    Ok(AnchorFile { file, anchor: run.physical, block_size })
}
