//! The layout of a whole volume, packed: 24 bytes per file and 16 bytes per run.

use crate::claims::{complement, doubtful_files, overlaps};
use crate::sharing::Sharing;
use crate::{
    BlockSize, Blocks, Extent, ExtentSet, FileIndex, FileRecord, FileView, LayoutError, PackedRun, PhysicalBlock, Pin,
    Run,
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

/// The layout of a volume at one moment. Built by [`LayoutBuilder`], immutable afterwards.
///
/// Every block is in exactly one of: a movable file's runs, the free space, an obstacle. Blocks with no known owner are
/// obstacles: the model never assumes that an unknown block may be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLayout {
    block_size: BlockSize,
    total_blocks: Blocks,
    files: Vec<FileRecord>,
    runs: Vec<PackedRun>,
    free: Vec<Extent>,
    obstacles: Vec<Extent>,
    shared: Vec<Extent>,
    #[serde(default)]
    sharing: Sharing,
    #[serde(default)]
    regions: Vec<Region>,
}

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

/// Collects files and free space into a [`VolumeLayout`].
#[derive(Clone, Debug)]
pub struct LayoutBuilder {
    layout: VolumeLayout,
    free: Vec<Extent>,
    may_share: bool,
    /// Files that share blocks with others.
    sharers: BTreeSet<FileIndex>,
    error: Option<LayoutError>,
}

impl LayoutBuilder {
    /// An empty volume of `total_blocks`, all of it obstacle until claimed.
    #[must_use]
    pub fn new(block_size: BlockSize, total_blocks: Blocks) -> Self {
        let layout = VolumeLayout {
            block_size,
            total_blocks,
            files: Vec::new(),
            runs: Vec::new(),
            free: Vec::new(),
            obstacles: Vec::new(),
            shared: Vec::new(),
            sharing: Sharing::default(),
            regions: Vec::new(),
        };
        Self { layout, free: Vec::new(), may_share: false, sharers: BTreeSet::new(), error: None }
    }

    /// Permits files to share blocks. [`VolumeLayout::shared`] returns these blocks, and they are not an inconsistency.
    #[must_use]
    pub fn sharing(mut self, may_share: bool) -> Self {
        self.may_share = may_share;
        self
    }

    /// Adds a file with its runs, which are sorted by logical address here and joined where they continue each other.
    /// A file whose addresses cannot be packed or contradict each other is pinned.
    pub fn push_file(
        &mut self,
        id: crate::FileId,
        directory: u32,
        is_directory: bool,
        pin: Option<Pin>,
        runs: &mut Vec<Run>,
    ) -> FileIndex {
        let (Ok(index), Ok(first_run)) =
            (u32::try_from(self.layout.files.len()), u32::try_from(self.layout.runs.len()))
        else {
            self.error = Some(LayoutError::TooMany);
            return FileIndex(u32::MAX);
        };
        let mut pin = pin;
        runs.retain(|r| r.length.0 > 0);
        runs.sort_unstable_by_key(|r| r.logical);
        runs.dedup_by(|next, kept| {
            let joined = kept.continues_into(next);
            if joined {
                kept.length += next.length;
            }
            joined
        });
        if runs.windows(2).any(|w| matches!(w, [a, b] if a.logical_end() > b.logical)) {
            pin = pin.or(Some(Pin::DamagedMap));
        }
        let limit = self.layout.total_blocks.0;
        for run in runs.iter() {
            // Physical block 0 holds the boot sector: no file owns it; it is how delayed allocation shows in some dumps.
            let end = run.physical.0.checked_add(run.length.0);
            if run.physical.0 == 0 || end.is_none_or(|end| end > limit) {
                pin = pin.or(Some(Pin::DamagedMap));
                continue;
            }
            match PackedRun::pack(*run) {
                Some(packed) => self.layout.runs.push(packed),
                None => pin = pin.or(Some(Pin::TooLarge)),
            }
        }
        self.layout.files.push(FileRecord {
            inode: id.inode,
            generation: id.generation,
            directory,
            first_run,
            pin,
            is_directory,
        });
        FileIndex(index)
    }

    /// Marks a file as sharing blocks with others. If all of them are known and share all blocks, they move together;
    /// otherwise they stay.
    pub fn shares_blocks(&mut self, file: FileIndex) {
        self.sharers.insert(file);
    }

    /// Groups the files that move together, and pins those that share blocks but cannot be grouped.
    fn group_sharers(&mut self) {
        let of_group = |file: &FileView<'_>| self.sharers.contains(&file.index) && file.is_movable();
        let sharing = Sharing::of(&self.layout.files().filter(of_group).collect::<Vec<_>>());
        let leaders: BTreeSet<FileIndex> = sharing.leaders().collect();
        for sharer in self.sharers.iter().filter(|sharer| !leaders.contains(sharer)) {
            if let Some(record) = self.layout.files.get_mut(sharer.0 as usize) {
                record.pin = record.pin.or(Some(Pin::Shared));
            }
        }
        self.layout.sharing = sharing;
    }

    /// Names the directory of a file that was pushed before its directory was known.
    pub fn set_directory(&mut self, file: FileIndex, directory: u32) {
        if let Some(record) = self.layout.files.get_mut(file.0 as usize) {
            record.directory = directory;
        }
    }

    /// Adds a free piece.
    pub fn push_free(&mut self, extent: Extent) {
        let end = extent.start.0.checked_add(extent.length.0);
        if end.is_none_or(|end| end > self.layout.total_blocks.0) {
            self.error.get_or_insert(LayoutError::BeyondEnd(extent));
        } else if !extent.is_empty() {
            self.free.push(extent);
        }
    }

    /// Finishes: sorts the free space, pins files whose runs overlap anything, and derives the obstacles.
    ///
    /// # Errors
    /// [`LayoutError`] when free space lies outside the volume or there are too many files.
    pub fn build(mut self) -> Result<VolumeLayout, LayoutError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let free: ExtentSet = self.free.drain(..).collect();
        self.group_sharers();
        let mut claims: Vec<(Extent, u32)> = Vec::with_capacity(self.layout.runs.len());
        // Those that follow another claim the same blocks as that.
        for file in self.layout.files().filter(|file| self.layout.leader_of(file.index).is_none()) {
            claims.extend(file.runs().map(|r| (r.extent(), file.index.0)));
        }
        claims.sort_unstable();
        if self.may_share {
            self.layout.shared = overlaps(&claims);
        }
        let doubted = doubtful_files(&claims, &free, self.may_share);
        for index in doubted {
            let reason = if self.sharers.contains(&FileIndex(index)) { Pin::Shared } else { Pin::DamagedMap };
            if let Some(record) = self.layout.files.get_mut(index as usize) {
                record.pin = record.pin.or(Some(reason));
            }
            self.layout.sharing.dissolve(FileIndex(index));
        }
        // Blocks that a pinned file claims are not free, even if another source says so.
        let mut free = free;
        let movable = |layout: &VolumeLayout, index: u32| layout.file(FileIndex(index)).is_some_and(|f| f.is_movable());
        for (extent, index) in &claims {
            if !movable(&self.layout, *index) {
                free.remove(*extent);
            }
        }
        self.layout.free = free.iter().collect();
        let usable = claims.iter().filter(|(_, index)| movable(&self.layout, *index)).map(|(extent, _)| *extent);
        self.layout.obstacles = complement(usable, &self.layout.free, self.layout.total_blocks);
        Ok(self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, InodeNumber, NO_DIRECTORY};

    fn builder() -> LayoutBuilder {
        LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000))
    }

    fn add(b: &mut LayoutBuilder, inode: u64, pin: Option<Pin>, runs: &[Run]) -> FileIndex {
        let id = FileId { inode: InodeNumber(inode), generation: 1 };
        b.push_file(id, NO_DIRECTORY, false, pin, &mut runs.to_vec())
    }

    #[test]
    fn figures_segments_and_obstacles_follow_from_the_claims() {
        let mut b = builder();
        add(&mut b, 11, None, &[Run::new(0, 100, 50), Run::new(50, 300, 50)]);
        add(&mut b, 12, Some(Pin::Immutable), &[Run::new(0, 200, 10)]);
        b.push_free(Extent::new(150, 50));
        b.push_free(Extent::new(400, 600));
        let layout = b.build().unwrap();
        let expected = [Extent::new(0, 100), Extent::new(200, 100), Extent::new(350, 50)];
        assert_eq!(layout.obstacles(), expected);
        assert_eq!(layout.segments(), [Extent::new(100, 100), Extent::new(300, 50), Extent::new(400, 600)]);
        let figures = layout.fragmentation();
        assert_eq!((figures.files, figures.excess_fragments, figures.fragmented_files), (2, 1, 1));
        assert_eq!(figures.free_space.pieces, 2);
        assert_eq!(figures.free_space.floor_pieces, 2, "650 free blocks need the segments of 600 and 100");
        assert_eq!(layout.owner_of(PhysicalBlock(205)).unwrap().0, FileIndex(1));
    }

    #[test]
    fn withheld_blocks_are_obstacles_and_no_longer_free() {
        let mut b = builder();
        add(&mut b, 11, None, &[Run::new(0, 100, 50)]);
        b.push_free(Extent::new(150, 50));
        let mut layout = b.build().unwrap();
        layout.withhold(&[Extent::new(140, 20), Extent::new(180, 5)].into_iter().collect());
        assert_eq!(layout.free(), [Extent::new(160, 20), Extent::new(185, 15)]);
        let obstacles = [Extent::new(0, 100), Extent::new(150, 10), Extent::new(180, 5), Extent::new(200, 800)];
        assert_eq!(layout.obstacles(), obstacles, "a file's blocks stay the file's");
    }

    #[test]
    fn a_file_that_is_pinned_later_becomes_an_obstacle() {
        let mut b = builder();
        let file = add(&mut b, 11, None, &[Run::new(0, 100, 50)]);
        b.push_free(Extent::new(150, 850));
        let mut layout = b.build().unwrap();
        layout.pin(&[file], Pin::Shared);
        assert_eq!(layout.obstacles(), [Extent::new(0, 150)]);
        assert!(!layout.file(file).unwrap().is_movable());
    }

    #[test]
    fn files_that_claim_the_same_block_are_pinned() {
        let mut b = builder();
        add(&mut b, 11, None, &[Run::new(0, 100, 50)]);
        add(&mut b, 12, None, &[Run::new(0, 149, 5)]);
        add(&mut b, 13, None, &[Run::new(0, 500, 5)]);
        add(&mut b, 14, None, &[Run::new(0, 600, 5)]);
        b.push_free(Extent::new(500, 1));
        let layout = b.build().unwrap();
        let pins: Vec<bool> = layout.files().map(|f| f.record.pin.is_some()).collect();
        assert_eq!(pins, [true, true, true, false]);
        assert!(layout.free().is_empty(), "a block that a doubtful file claims is not offered as free");
    }

    #[test]
    fn where_files_may_share_blocks_these_are_told_and_nobody_is_pinned() {
        let mut b = builder().sharing(true);
        add(&mut b, 11, None, &[Run::new(0, 100, 50)]);
        add(
            &mut b,
            12,
            None,
            &[Run::new(0, 140, 30), Run::new(30, 100, 5), Run::new(40, 300, 5), Run::new(50, 300, 5)],
        );
        add(&mut b, 13, None, &[Run::new(0, 500, 5)]);
        b.push_free(Extent::new(170, 10));
        b.push_free(Extent::new(504, 10));
        let layout = b.build().unwrap();
        assert_eq!(layout.shared(), [Extent::new(100, 5), Extent::new(140, 10), Extent::new(300, 5)]);
        let pins: Vec<bool> = layout.files().map(|f| f.record.pin.is_some()).collect();
        assert_eq!(pins, [false, false, true], "what is free is nobody's");
        let obstacles = [(0, 100), (180, 120), (305, 200), (514, 486)];
        assert_eq!(layout.obstacles(), obstacles.map(|(start, length)| Extent::new(start, length)));
    }

    #[test]
    fn runs_outside_the_volume_or_at_block_zero_pin_their_file() {
        let mut b = builder();
        add(&mut b, 11, None, &[Run::new(0, 0, 5)]);
        add(&mut b, 12, None, &[Run::new(0, 998, 5)]);
        add(&mut b, 13, None, &[Run::new(0, u64::MAX - 1, 5)]);
        let layout = b.build().unwrap();
        assert!(layout.files().all(|f| f.record.pin == Some(Pin::DamagedMap)));
        let mut b = builder();
        b.push_free(Extent::new(999, 2));
        assert!(matches!(b.build(), Err(LayoutError::BeyondEnd(_))));
    }
}
