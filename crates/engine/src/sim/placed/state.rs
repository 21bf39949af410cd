//! The simulated file system: files, free space and the disk, both live and as of the last commit. Owns the guarantees
//! of the journal. Knows nothing of balloons, faults or other users.

use super::content::{Content, Disk};
use super::file::{SimFile, logical_range};
use longrun_layout::{
    Blocks, Extent, ExtentSet, FileId, FileIndex, InodeNumber, LayoutBuilder, LayoutError, LogicalBlock, PhysicalBlock,
    Pin, VolumeLayout,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A write that has not reached the disk for certain.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWrite {
    pub place: Extent,
    pub content: Content,
}

/// Files that differ from the beginning, by number, and the blocks written since.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub files: BTreeMap<u32, SimFile>,
    pub disk: Disk,
}

/// A file system in memory. Files and blocks that were never touched are not copied from the layout of the beginning,
/// so that memory grows with what happens and not with the volume.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub base: Arc<VolumeLayout>,
    /// File numbers of the beginning, ordered by inode.
    by_inode: Arc<Vec<u32>>,
    /// Numbers of the files created since.
    created: BTreeMap<InodeNumber, u32>,
    pub live: Image,
    pub durable: Image,
    pub pending: Vec<PendingWrite>,
    changed: BTreeSet<u32>,
    /// Ranges that users wrote since the last commit: a crash may leave any of the versions there.
    pub loose: BTreeMap<u32, ExtentSet>,
    /// What anybody may allocate.
    pub free: ExtentSet,
    /// Freed since the last commit: no one may allocate it yet.
    pub freed: ExtentSet,
    /// Held by the optimizer.
    pub owned: ExtentSet,
    versions: u32,
}

impl State {
    pub(super) fn new(base: Arc<VolumeLayout>) -> Self {
        let mut by_inode: Vec<u32> = (0..base.file_count() as u32).collect();
        let inode = |number: &u32| base.file(FileIndex(*number)).map(|f| f.record.inode);
        if !by_inode.is_sorted_by_key(inode) {
            by_inode.sort_unstable_by_key(inode);
        }
        Self {
            free: base.free().iter().copied().collect(),
            base,
            by_inode: Arc::new(by_inode),
            created: BTreeMap::new(),
            live: Image::default(),
            durable: Image::default(),
            pending: Vec::new(),
            changed: BTreeSet::new(),
            loose: BTreeMap::new(),
            freed: ExtentSet::new(),
            owned: ExtentSet::new(),
            versions: 0,
        }
    }

    /// The number of the live file with this identity.
    pub(super) fn number(&self, id: FileId) -> Option<u32> {
        let base_inode = |n: &u32| self.base.file(FileIndex(*n)).map(|f| f.record.inode);
        let number = match self.by_inode.binary_search_by_key(&Some(id.inode), base_inode) {
            Ok(at) => *self.by_inode.get(at)?,
            Err(_) => *self.created.get(&id.inode)?,
        };
        match self.live.files.get(&number) {
            Some(file) => (!file.deleted && file.id == id).then_some(number),
            None => (self.base.file(FileIndex(number))?.id() == id).then_some(number),
        }
    }

    /// The file and those that move with it.
    fn group(&self, number: u32) -> Vec<u32> {
        let followers = self.base.followers(FileIndex(number)).iter().map(|follower| follower.0);
        std::iter::once(number).chain(followers).collect()
    }

    /// Whether it shares its blocks with other files.
    pub(super) fn is_shared(&self, number: u32) -> bool {
        self.base.owners(FileIndex(number)) > 1 || self.base.leader_of(FileIndex(number)).is_some()
    }

    /// Why the file must not move, if so.
    pub(super) fn pin(&self, number: u32) -> Option<Pin> {
        self.base.file(FileIndex(number))?.record.pin
    }

    pub(super) fn is_directory(&self, number: u32) -> bool {
        self.base.file(FileIndex(number)).is_some_and(|f| f.record.is_directory)
    }

    /// The live file, ready to be changed; the change becomes durable with the next commit.
    pub(super) fn change(&mut self, number: u32) -> Option<&mut SimFile> {
        self.changed.insert(number);
        if !self.live.files.contains_key(&number) {
            let original = SimFile::original(&self.base.file(FileIndex(number))?);
            self.live.files.insert(number, original);
        }
        self.live.files.get_mut(&number)
    }

    /// The file as it is now, without preparing a change.
    pub(super) fn view(&self, number: u32) -> Option<SimFile> {
        match self.live.files.get(&number) {
            Some(file) => Some(file.clone()),
            None => Some(SimFile::original(&self.base.file(FileIndex(number))?)),
        }
    }

    /// All file numbers, deleted files included.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..(self.base.file_count() + self.created.len()) as u32
    }

    /// A new, empty file.
    pub(super) fn create(&mut self) -> u32 {
        let number = self.numbers().end;
        let last = self.created.keys().next_back().copied();
        let highest = self.by_inode.last().and_then(|n| self.base.file(FileIndex(*n))).map(|f| f.record.inode);
        let inode = InodeNumber(last.max(highest).map_or(12, |i| i.0 + 1));
        self.created.insert(inode, number);
        let id = FileId { inode, generation: 1 };
        self.live.files.insert(number, SimFile::new(id, super::recipes::ROOT));
        self.changed.insert(number);
        number
    }

    /// Exchanges a contiguously mapped range of a file with owned blocks.
    pub(super) fn exchange(&mut self, number: u32, logical: LogicalBlock, source: Extent, target: PhysicalBlock) {
        let place = Extent { start: target, length: source.length };
        for (part, content) in self.live.disk.read(source) {
            let copy = Extent { start: target + (part.start - source.start), length: part.length };
            self.live.disk.write(copy, content);
            self.pending.push(PendingWrite { place: copy, content });
        }
        for number in self.group(number) {
            if let Some(file) = self.change(number) {
                file.remap(logical, target, source.length);
            }
        }
        self.owned.remove(place);
        self.owned.insert(source);
    }

    /// A user writes to a mapped range of a file.
    pub(super) fn write(&mut self, number: u32, logical: LogicalBlock, length: Blocks) {
        self.versions += 1;
        let content = Content::Written { file: number, logical, version: self.versions };
        let Some(file) = self.change(number) else { return };
        file.expected.assign(logical_range(logical, length), content);
        let (mut at, end, mut places) = (logical, logical + length, Vec::new());
        while at < end {
            let Some(place) = file.at(at) else { break };
            let part = place.length.min(end - at);
            places.push((Extent { start: place.start, length: part }, at));
            at = at + part;
        }
        for (place, at) in places {
            let content = Content::Written { file: number, logical: at, version: self.versions };
            self.live.disk.write(place, content);
            self.pending.push(PendingWrite { place, content });
        }
        self.loose.entry(number).or_default().insert(logical_range(logical, length));
    }

    /// Gives a file free blocks at an unmapped range, and lets its user write them.
    pub(super) fn extend(&mut self, number: u32, logical: LogicalBlock, place: Extent) {
        self.free.remove(place);
        if let Some(file) = self.change(number) {
            file.map(logical, place);
        }
        self.write(number, logical, place.length);
    }

    /// Frees a range of a file (truncate, punch, delete).
    pub(super) fn cut(&mut self, number: u32, logical: LogicalBlock, length: Blocks) {
        let Some(file) = self.change(number) else { return };
        file.expected.clear(logical_range(logical, length));
        let gone = file.unmap(logical, length);
        self.freed.extend(gone);
    }

    /// Makes everything durable; what was freed before may be allocated again.
    pub(super) fn commit(&mut self) {
        for write in self.pending.drain(..) {
            self.durable.disk.write(write.place, write.content);
        }
        for number in std::mem::take(&mut self.changed) {
            if let Some(file) = self.live.files.get(&number) {
                self.durable.files.insert(number, file.clone());
            }
        }
        self.loose.clear();
        self.free.extend(std::mem::take(&mut self.freed).iter());
    }

    /// The state after a crash and the journal's recovery: `survive` decides the result of each pending write. The
    /// optimizer's space is free again, since its files had no name.
    pub(super) fn recover(mut self, survive: impl FnMut(PendingWrite) -> Vec<PendingWrite>) -> Self {
        for write in self.pending.drain(..).flat_map(survive).collect::<Vec<_>>() {
            self.durable.disk.write(write.place, write.content);
        }
        self.live = self.durable.clone();
        self.changed.clear();
        self.created.retain(|_, number| self.durable.files.contains_key(number));
        self.owned = ExtentSet::new();
        self.freed = ExtentSet::new();
        self.free = self.base.segments().into_iter().collect();
        for file in self.live_files() {
            file.runs.iter().for_each(|run| {
                self.free.remove(run.extent());
            });
        }
        self
    }

    /// All live movable files; of those that share their blocks the one that leads the others.
    pub(super) fn live_files(&self) -> Vec<SimFile> {
        let movable = |n: &u32| self.pin(*n).is_none() && !self.is_directory(*n);
        self.numbers().filter(movable).filter_map(|n| self.view(n)).filter(|f| !f.deleted).collect()
    }

    /// The layout as a scan sees it.
    pub(super) fn layout(&self) -> Result<VolumeLayout, LayoutError> {
        let mut builder = LayoutBuilder::new(self.base.block_size(), self.base.total_blocks());
        for number in self.numbers() {
            let base = self.base.file(FileIndex(number));
            match (self.live.files.get(&number), base) {
                (Some(file), _) if file.deleted => continue,
                (Some(file), _) => {
                    let index = builder.push_file(file.id, file.directory, false, None, &mut file.runs.clone());
                    if self.is_shared(number) {
                        builder.shares_blocks(index);
                    }
                }
                (None, Some(file)) => {
                    let (record, shares) = (file.record, self.is_shared(number));
                    let mut runs = file.runs().collect();
                    let pin = if shares { None } else { record.pin };
                    let index = builder.push_file(file.id(), record.directory, record.is_directory, pin, &mut runs);
                    if shares {
                        builder.shares_blocks(index);
                    }
                }
                (None, None) => continue,
            }
        }
        for extent in self.free.iter() {
            builder.push_free(extent);
        }
        builder.build()
    }
}
