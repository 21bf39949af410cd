//! Collects files and free space into the layout of a volume.
//!
//! Owns the rules by which files that contradict each other stay where they are. Pure.

use crate::claims::{complement, doubtful, overlaps, to_free_blocks};
use crate::extent::joined;
use crate::sharing::Sharing;
use crate::{
    BlockSize, Blocks, Extent, ExtentSet, FileIndex, FileRecord, FileView, LayoutError, PackedRun, Pin, Run,
    VolumeLayout, in_order,
};
use std::collections::BTreeSet;

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
            moves_directories: false,
            table: None,
        };
        Self { layout, free: Vec::new(), may_share: false, sharers: BTreeSet::new(), error: None }
    }

    /// A builder for the same volume with other files or places.
    #[must_use]
    pub fn like(layout: &VolumeLayout) -> Self {
        let mut builder = Self::new(layout.block_size, layout.total_blocks).sharing(!layout.shared.is_empty());
        builder.layout.moves_directories = layout.moves_directories;
        builder
    }

    /// Says that directories can be moved as files are. Otherwise each is pinned.
    #[must_use]
    pub fn moving_directories(mut self) -> Self {
        self.layout.moves_directories = true;
        self
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
        let is_fixed = is_directory && !self.layout.moves_directories;
        let mut pin = pin.or(is_fixed.then_some(Pin::Directory));
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

    /// The runs that claim blocks, ascending by place. Those of files that follow another claim the same blocks as that one's.
    fn claims(&self) -> Vec<u32> {
        let layout = &self.layout;
        let leads = |file: &FileView<'_>| layout.leader_of(file.index).is_none();
        let runs = || {
            layout.files().filter(leads).flat_map(|file| (file.record.first_run..).zip(file.runs).map(|(run, _)| run))
        };
        in_order(runs, layout.total_blocks.0, |run| self.extent_of(run).map_or(0, |extent| extent.start.0))
    }

    fn extent_of(&self, run: u32) -> Option<Extent> {
        self.layout.run(run).map(|run| run.extent())
    }

    /// The blocks that runs claim.
    fn claimed(&self, claims: &[u32]) -> impl Iterator<Item = (Extent, u32)> {
        claims.iter().filter_map(|run| Some((self.extent_of(*run)?, *run)))
    }

    /// Of each run, whether its file must not move.
    fn runs_that_stay(&self) -> Vec<bool> {
        let of_file = |file: FileView<'_>| std::iter::repeat_n(!file.is_movable(), file.runs.len());
        self.layout.files().flat_map(of_file).collect()
    }

    /// Finishes: sorts the free space, pins files whose runs overlap anything, and derives the obstacles.
    ///
    /// # Errors
    /// [`LayoutError`] when free space lies outside the volume or there are too many files.
    pub fn build(mut self) -> Result<VolumeLayout, LayoutError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut free = joined(std::mem::take(&mut self.free));
        self.group_sharers();
        let claims = self.claims();
        let shared =
            if self.may_share { overlaps(self.claimed(&claims).map(|(extent, _)| extent)) } else { Vec::new() };
        let doubted = doubtful(self.claimed(&claims), &free, self.may_share);
        for index in doubted.iter().filter_map(|run| self.layout.owner_of_run(*run)).collect::<BTreeSet<FileIndex>>() {
            let reason = if self.sharers.contains(&index) { Pin::Shared } else { Pin::DamagedMap };
            if let Some(record) = self.layout.files.get_mut(index.0 as usize) {
                record.pin = record.pin.or(Some(reason));
            }
            self.layout.sharing.dissolve(index);
        }
        let stays = self.runs_that_stay();
        let stays = |run: u32| stays.get(run as usize).copied().unwrap_or(true);
        // Blocks that a pinned file claims are not free, even if another source says so.
        let pinned = self.claimed(&claims).filter(|(_, run)| stays(*run));
        let lost: Vec<Extent> = to_free_blocks(pinned, &free).map(|(extent, _)| extent).collect();
        if !lost.is_empty() {
            let mut less: ExtentSet = free.into_iter().collect();
            lost.into_iter().for_each(|extent| {
                less.remove(extent);
            });
            free = less.iter().collect();
        }
        let usable = self.claimed(&claims).filter(|(_, run)| !stays(*run)).map(|(extent, _)| extent);
        let obstacles = complement(usable, &free, self.layout.total_blocks);
        self.layout = VolumeLayout { free, obstacles, shared, ..self.layout };
        Ok(self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileId, InodeNumber, NO_DIRECTORY, PhysicalBlock};

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
