//! A volume of which only some files may be moved: what the user gets who names a file or a directory.
//!
//! Owns the choice of files, nothing else: every primitive is the inner volume's. The files that were not chosen are left
//! out of the layout, so that their blocks are obstacles like any block whose owner is unknown.

use crate::{Exchanged, MoveError, Part, Progress, Volume, VolumeError, VolumeInfo};
use longrun_layout::{
    Blocks, ExtentSet, FileId, FileIndex, FileView, InodeNumber, LayoutBuilder, LogicalBlock, PhysicalBlock, Run,
    VolumeLayout,
};
use std::collections::BTreeSet;

/// A volume that shows only the chosen files.
pub struct Subset<'a> {
    inner: &'a mut dyn Volume,
    chosen: BTreeSet<InodeNumber>,
}

impl<'a> Subset<'a> {
    /// Only files with an inode number in `chosen` are moved.
    pub fn new(inner: &'a mut dyn Volume, chosen: BTreeSet<InodeNumber>) -> Self {
        Self { inner, chosen }
    }
}

/// The layout with the files in `chosen` alone, and those that lie in the same blocks as one of them; the blocks of all
/// others are obstacles.
///
/// # Errors
/// [`VolumeError::Damaged`] when the layout contradicts itself, which a layout that was built before does not.
pub fn restrict(layout: &VolumeLayout, chosen: &BTreeSet<InodeNumber>) -> Result<VolumeLayout, VolumeError> {
    let mut builder =
        LayoutBuilder::new(layout.block_size(), layout.total_blocks()).sharing(!layout.shared().is_empty());
    let mut runs: Vec<Run> = Vec::new();
    let leader = |file: &FileView<'_>| layout.leader_of(file.index).unwrap_or(file.index);
    let is_chosen = |file: &FileView<'_>| chosen.contains(&file.record.inode);
    let sharers = layout.sharers();
    // None of those that lie in the same blocks can move without the others.
    let groups: BTreeSet<FileIndex> =
        sharers.iter().filter_map(|index| layout.file(*index).filter(is_chosen).map(|file| leader(&file))).collect();
    for file in layout.files() {
        let shares = sharers.contains(&file.index);
        let comes_along = shares && groups.contains(&leader(&file));
        if !is_chosen(&file) && !comes_along {
            continue;
        }
        runs.clear();
        runs.extend(file.runs());
        let record = file.record;
        let pin = if shares { None } else { record.pin };
        let index = builder.push_file(file.id(), record.directory, record.is_directory, pin, &mut runs);
        if shares {
            builder.shares_blocks(index);
        }
    }
    for piece in layout.free() {
        builder.push_free(*piece);
    }
    let built = builder.build();
    let mut restricted =
        built.map_err(|error| VolumeError::Damaged { path: "the volume".into(), detail: error.to_string() })?;
    restricted.set_regions(layout.regions().to_vec());
    Ok(restricted)
}

impl Volume for Subset<'_> {
    fn info(&self) -> VolumeInfo {
        self.inner.info()
    }

    fn scan(&mut self, progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        let layout = self.inner.scan(progress)?;
        restrict(&layout, &self.chosen)
    }

    fn unavailable(&mut self) -> Result<ExtentSet, VolumeError> {
        self.inner.unavailable()
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.inner.unclaimed()
    }

    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        self.inner.capture(wanted)
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.inner.release(extents)
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        self.inner.owned()
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        self.inner.map(file)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.inner.bring_in(part, pieces)
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.inner.await_pieces(part, pieces)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        self.inner.exchange(file, logical, target, length)
    }

    fn barrier(&mut self) -> Result<(), VolumeError> {
        self.inner.barrier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{BlockSize, Extent, NO_DIRECTORY};

    #[test]
    fn files_that_were_not_chosen_become_obstacles() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        for (inode, start) in [(11, 10), (12, 30), (13, 50)] {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            b.push_file(id, NO_DIRECTORY, false, None, &mut vec![Run::new(0, start, 5), Run::new(5, start + 10, 5)]);
        }
        b.push_free(Extent::new(70, 30));
        let layout = b.build().unwrap();
        let only = restrict(&layout, &[InodeNumber(12)].into()).unwrap();
        assert_eq!(only.files().map(|f| f.record.inode.0).collect::<Vec<_>>(), [12]);
        assert_eq!(only.free(), layout.free());
        assert_eq!(only.fragmentation().excess_fragments, 1);
        assert!(only.obstacles().iter().any(|o| o.contains(&Extent::new(50, 5))));
    }

    #[test]
    fn a_file_that_shares_its_blocks_brings_those_that_share_them() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        for (inode, start) in [(11, 10), (12, 30), (13, 10), (14, 10), (15, 30)] {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            let file = b.push_file(id, NO_DIRECTORY, false, None, &mut vec![Run::new(0, start, 5)]);
            b.shares_blocks(file);
        }
        let only = restrict(&b.build().unwrap(), &[InodeNumber(13)].into()).unwrap();
        assert_eq!(only.files().map(|f| f.record.inode.0).collect::<Vec<_>>(), [11, 13, 14]);
        assert_eq!(only.owners(FileIndex(0)), 3);
    }
}
