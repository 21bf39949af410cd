//! The layout of a whole volume, packed: 24 bytes per file and 16 bytes per run.

use crate::sharing::Sharing;
use crate::{
    BlockSize, Blocks, Extent, ExtentSet, FileIndex, FileRecord, FileView, PackedRun, PhysicalBlock, Pin, Run,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A part of the volume in which a number of free blocks is reserved. It is not known which ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The part.
    pub extent: Extent,
    /// The number of free blocks in it that cannot be allocated.
    pub kept_free: Blocks,
}

/// The layout of a volume at one moment. Built by [`crate::LayoutBuilder`], immutable afterwards.
///
/// Every block is in exactly one of: a movable file's runs, the free space, an obstacle. Blocks with no known owner are
/// obstacles: the model never assumes that an unknown block may be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLayout {
    pub(crate) block_size: BlockSize,
    pub(crate) total_blocks: Blocks,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) runs: Vec<PackedRun>,
    pub(crate) free: Vec<Extent>,
    pub(crate) obstacles: Vec<Extent>,
    pub(crate) shared: Vec<Extent>,
    #[serde(default)]
    pub(crate) sharing: Sharing,
    #[serde(default)]
    pub(crate) regions: Vec<Region>,
    /// Whether directories can be moved as files are.
    #[serde(default)]
    pub(crate) moves_directories: bool,
    /// The file in which all others are listed, and which grows with their number.
    #[serde(default)]
    pub(crate) table: Option<FileIndex>,
}

/// What was before [`VolumeLayout::withhold_files`].
#[derive(Debug)]
pub struct WithheldFiles(Vec<Extent>, Sharing);

impl VolumeLayout {
    /// The file-system block size.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The size of the volume.
    #[must_use]
    pub fn total_blocks(&self) -> Blocks {
        self.total_blocks
    }

    /// The whole volume as one extent.
    #[must_use]
    pub fn whole(&self) -> Extent {
        Extent { start: PhysicalBlock(0), length: self.total_blocks }
    }

    /// The number of files and directories.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The number of runs of all files.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The file at `index`.
    #[must_use]
    pub fn file(&self, index: FileIndex) -> Option<FileView<'_>> {
        let at = index.0 as usize;
        let record = self.files.get(at)?;
        let end = self.files.get(at + 1).map_or(self.runs.len(), |next| next.first_run as usize);
        Some(FileView { index, record, runs: self.runs.get(record.first_run as usize..end)? })
    }

    /// The run numbered `number`, counted over all files in index order.
    #[must_use]
    pub fn run(&self, number: u32) -> Option<Run> {
        self.runs.get(number as usize).map(|run| run.unpack())
    }

    /// The file that the run numbered `number` belongs to.
    #[must_use]
    pub fn owner_of_run(&self, number: u32) -> Option<FileIndex> {
        let at = self.files.partition_point(|file| file.first_run <= number).checked_sub(1)?;
        u32::try_from(at).ok().map(FileIndex)
    }

    /// All files and directories, in index order.
    pub fn files(&self) -> impl Iterator<Item = FileView<'_>> {
        (0..self.files.len() as u32).filter_map(|i| self.file(FileIndex(i)))
    }

    /// The free pieces, ascending, disjoint and not adjacent.
    #[must_use]
    pub fn free(&self) -> &[Extent] {
        &self.free
    }

    /// The free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.free.iter().map(|e| e.length).sum()
    }

    /// The immovable areas: metadata, directories, pinned files, blocks with no known owner. Ascending, disjoint,
    /// not adjacent.
    #[must_use]
    pub fn obstacles(&self) -> &[Extent] {
        &self.obstacles
    }

    /// Turns free blocks into obstacles, because they cannot be allocated. Returns those that were free.
    pub fn withhold(&mut self, blocks: &ExtentSet) -> ExtentSet {
        let of_piece = |piece: &Extent| blocks.overlapping(*piece).collect::<Vec<_>>();
        let withheld: ExtentSet = self.free.iter().flat_map(of_piece).collect();
        transfer(&withheld, &mut self.free, &mut self.obstacles);
        withheld
    }

    /// Reverses [`Self::withhold`].
    pub fn readmit(&mut self, withheld: &ExtentSet) {
        transfer(withheld, &mut self.obstacles, &mut self.free);
    }

    /// Makes files immovable.
    pub fn pin(&mut self, files: &[FileIndex], pin: Pin) {
        let mut obstacles: ExtentSet = self.obstacles.iter().copied().collect();
        for index in files {
            obstacles.extend(self.file(*index).into_iter().flat_map(|file| file.runs().map(|run| run.extent())));
            if let Some(record) = self.files.get_mut(index.0 as usize) {
                record.pin = record.pin.or(Some(pin));
            }
            self.sharing.dissolve(*index);
        }
        self.obstacles = obstacles.iter().collect();
    }

    /// Makes files immovable until [`Self::readmit_files`].
    pub fn withhold_files(&mut self, files: &[FileIndex]) -> WithheldFiles {
        let were = WithheldFiles(self.obstacles.clone(), self.sharing.clone());
        self.pin(files, Pin::Refused);
        were
    }

    /// Reverses [`Self::withhold_files`], the last thing that was done to the layout.
    pub fn readmit_files(&mut self, were: WithheldFiles) {
        (self.obstacles, self.sharing) = (were.0, were.1);
        self.files.iter_mut().for_each(|record| record.pin = record.pin.filter(|pin| *pin != Pin::Refused));
    }

    /// The files whose maps are inconsistent, in themselves, with each other, or with the free space.
    pub fn contradicting(&self) -> impl Iterator<Item = FileView<'_>> + '_ {
        self.files().filter(|file| file.record.pin == Some(Pin::DamagedMap))
    }

    /// Marks some of them as changed while the volume was read. They stay immovable.
    pub fn excuse(&mut self, files: &[FileIndex]) {
        for index in files {
            if let Some(record) = self.files.get_mut(index.0 as usize)
                && record.pin == Some(Pin::DamagedMap)
            {
                record.pin = Some(Pin::Changed);
            }
        }
    }

    /// The parts of the volume with reserved free blocks. Ascending, disjoint; often none.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Sets the parts with reserved free blocks.
    pub fn set_regions(&mut self, mut regions: Vec<Region>) {
        regions.sort_unstable_by_key(|region| region.extent);
        self.regions = regions;
    }

    /// The file in which all others are listed, where that is a file of its own ($MFT of NTFS). It grows with their number.
    #[must_use]
    pub fn table(&self) -> Option<FileIndex> {
        self.table
    }

    /// Names that file.
    pub fn set_table(&mut self, table: Option<FileIndex>) {
        self.table = table;
    }

    /// Blocks that more than one file owns, or one file more than once. Ascending, disjoint. Empty unless the builder
    /// was told that files may share blocks: where they may not, such files contradict each other.
    #[must_use]
    pub fn shared(&self) -> &[Extent] {
        &self.shared
    }

    /// The files that share all blocks with `leader`, a movable file, and move with it.
    #[must_use]
    pub fn followers(&self, leader: FileIndex) -> &[FileIndex] {
        self.sharing.followers(leader)
    }

    /// The leader that `follower` moves with, if it is in a group. A follower cannot move by itself.
    #[must_use]
    pub fn leader_of(&self, follower: FileIndex) -> Option<FileIndex> {
        self.sharing.leader_of(follower)
    }

    /// Whether a file shares no blocks with others: it moves by itself, and nothing moves with it.
    #[must_use]
    pub fn shares_nothing(&self, file: FileIndex) -> bool {
        self.owners(file) == 1 && self.leader_of(file).is_none()
    }

    /// The number of files that move when `file` moves. The fragments of each change by the same number.
    #[must_use]
    pub fn owners(&self, file: FileIndex) -> u64 {
        1 + self.sharing.followers(file).len() as u64
    }

    /// All files that share all their blocks with others and move together.
    #[must_use]
    pub fn sharers(&self) -> BTreeSet<FileIndex> {
        self.sharing.members()
    }

    /// The obstacle-free segments: the volume minus the immovable areas, ascending.
    #[must_use]
    pub fn segments(&self) -> Vec<Extent> {
        let mut segments = Vec::with_capacity(self.obstacles.len() + 1);
        let mut at = PhysicalBlock(0);
        for obstacle in &self.obstacles {
            if obstacle.start > at {
                segments.push(Extent::between(at, obstacle.start));
            }
            at = obstacle.end();
        }
        let end = PhysicalBlock(self.total_blocks.0);
        if at < end {
            segments.push(Extent::between(at, end));
        }
        segments
    }

    /// The run of a file (movable or pinned) that holds `block`. Linear in the number of runs.
    #[must_use]
    pub fn owner_of(&self, block: PhysicalBlock) -> Option<(FileIndex, Run)> {
        let wanted = Extent { start: block, length: Blocks(1) };
        self.files()
            .find_map(|file| file.runs().find(|run| run.extent().contains(&wanted)).map(|run| (file.index, run)))
    }
}

fn transfer(blocks: &ExtentSet, from: &mut Vec<Extent>, to: &mut Vec<Extent>) {
    let (mut less, mut more): (ExtentSet, ExtentSet) = (from.iter().copied().collect(), to.iter().copied().collect());
    blocks.iter().for_each(|extent| {
        less.remove(extent);
    });
    more.extend(blocks.iter());
    (*from, *to) = (less.iter().collect(), more.iter().collect());
}
