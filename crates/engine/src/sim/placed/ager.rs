//! Ages an empty simulated volume as years of use would. Owns an allocator (goal, then first fit, then the best piece
//! in range) and the operations of users (create, append, delete). Stores nothing per block.

use super::geometry::Geometry;
use fastrand::Rng;
use longrun_layout::{
    BlockSize, Blocks, Extent, ExtentSet, FileId, InodeNumber, LayoutBuilder, PhysicalBlock, Run, VolumeLayout,
};

/// Inodes below this one belong to the file system itself.
pub(super) const FIRST_INODE: u64 = 12;

/// A log-uniform range of sizes in blocks: small files are many, large ones few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub least: u64,
    pub most: u64,
}

impl Sizes {
    pub(super) fn draw(self, rng: &mut Rng) -> u64 {
        let (low, high) = ((self.least as f64).ln(), (self.most as f64 + 1.0).ln());
        ((low + rng.f64() * (high - low)).exp() as u64).clamp(self.least, self.most)
    }
}

#[derive(Clone, Debug)]
struct Aged {
    directory: u32,
    runs: Vec<Run>,
}

/// A volume that is being used.
#[derive(Clone, Debug)]
pub(super) struct Ager {
    pub rng: Rng,
    total: u64,
    usable: u64,
    /// Free pieces that the allocator looks at before it takes the best of them.
    search: usize,
    free: ExtentSet,
    directories: Vec<Run>,
    goals: Vec<u64>,
    files: Vec<Option<Aged>>,
}

impl Ager {
    /// An empty volume with metadata in its usual places and `directories` directories spread over it.
    pub(super) fn new(seed: u64, total: u64, directories: u32, search: usize) -> Self {
        let mut free = ExtentSet::new();
        free.insert(Extent::new(0, total));
        for taken in Geometry::ext4_default(total).metadata() {
            free.remove(taken);
        }
        let mut ager = Self {
            rng: Rng::with_seed(seed),
            total,
            usable: free.total().0,
            search,
            free,
            directories: Vec::new(),
            goals: Vec::new(),
            files: Vec::new(),
        };
        for index in 0..directories.max(1) {
            // As on ext4: directories of a flex group start near its head, and grow block by block much later.
            let goal = total / 16 * (u64::from(index) % 16) + total / 64;
            for run in ager.allocate(0, goal, 1) {
                ager.goals.push(run.physical.0);
                ager.directories.push(run);
            }
        }
        ager
    }

    /// The used share of the space that is not metadata.
    pub(super) fn fill(&self) -> f64 {
        1.0 - self.free.total().0 as f64 / self.usable as f64
    }

    /// Creates a file in the directory `directory` (modulo their number) and returns its handle.
    pub(super) fn create(&mut self, directory: u32, blocks: u64) -> usize {
        let slot = directory as usize % self.goals.len().max(1);
        let goal = self.goals.get(slot).copied().unwrap_or_default();
        let runs = self.allocate(0, goal, blocks);
        if let (Some(goal), Some(last)) = (self.goals.get_mut(slot), runs.last()) {
            *goal = last.extent().end().0;
        }
        self.files.push(Some(Aged { directory: slot as u32, runs }));
        self.files.len() - 1
    }

    /// Appends to a file.
    pub(super) fn append(&mut self, handle: usize, blocks: u64) {
        let Some(Some(file)) = self.files.get(handle) else { return };
        let (logical, goal) = file.runs.last().map_or((0, self.total / 2), |r| (r.logical_end().0, r.extent().end().0));
        let runs = self.allocate(logical, goal, blocks);
        if let Some(Some(file)) = self.files.get_mut(handle) {
            file.runs.extend(runs);
        }
    }

    /// Deletes a file.
    pub(super) fn delete(&mut self, handle: usize) {
        if let Some(file) = self.files.get_mut(handle).and_then(Option::take) {
            self.free.extend(file.runs.iter().map(Run::extent));
        }
    }

    /// The handles of all files, in order of creation.
    pub(super) fn handles(&self) -> Vec<usize> {
        (0..self.files.len()).filter(|h| self.files.get(*h).is_some_and(Option::is_some)).collect()
    }

    /// The blocks of a file.
    pub(super) fn size(&self, handle: usize) -> u64 {
        self.files.get(handle).and_then(Option::as_ref).map_or(0, |f| f.runs.iter().map(|r| r.length.0).sum())
    }

    /// The volume as the model sees it.
    pub(super) fn layout(self) -> VolumeLayout {
        let mut builder = LayoutBuilder::new(block_size(), Blocks(self.total));
        let mut inode = FIRST_INODE;
        let mut id = |rng: &mut Rng| {
            inode += 1;
            FileId { inode: InodeNumber(inode - 1), generation: rng.u32(1..) }
        };
        let mut rng = self.rng;
        for run in self.directories {
            builder.push_file(id(&mut rng), super::recipes::ROOT, true, None, &mut vec![run]);
        }
        for mut file in self.files.into_iter().flatten() {
            let directory = FIRST_INODE as u32 + file.directory;
            builder.push_file(id(&mut rng), directory, false, None, &mut file.runs);
        }
        for extent in self.free.iter() {
            builder.push_free(extent);
        }
        super::recipes::built(builder)
    }

    fn allocate(&mut self, mut logical: u64, mut goal: u64, mut blocks: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        while blocks > 0 {
            let Some(piece) = self.find(goal, blocks) else { break };
            let length = piece.length.0.min(blocks);
            self.free.remove(Extent::new(piece.start.0, length));
            runs.push(Run::new(logical, piece.start.0, length));
            logical += length;
            blocks -= length;
            goal = piece.start.0 + length;
        }
        runs
    }

    /// The free range to take from: at the goal itself, else the first behind it that is long enough, else the longest
    /// of those in sight; from the start of the volume when nothing is left behind the goal.
    fn find(&self, goal: u64, blocks: u64) -> Option<Extent> {
        if let Some(piece) = self.free.extent_at(PhysicalBlock(goal)) {
            return Some(Extent::between(PhysicalBlock(goal), piece.end()));
        }
        let in_sight = |from: u64| {
            let range = Extent::between(PhysicalBlock(from), PhysicalBlock(self.total));
            let mut best: Option<Extent> = None;
            for piece in self.free.overlapping(range).take(self.search) {
                if piece.length.0 >= blocks {
                    return Some(aligned(piece, blocks));
                }
                if best.is_none_or(|b| piece.length > b.length) {
                    best = Some(piece);
                }
            }
            best
        };
        in_sight(goal).or_else(|| in_sight(0))
    }
}

/// The part of `piece` to start from when `blocks` are wanted of it. Buddy allocators like aligned starts, and leave the
/// blocks before them as the small change that aged volumes are full of.
fn aligned(piece: Extent, blocks: u64) -> Extent {
    let step = (blocks / 2 + 1).next_power_of_two().min(16);
    let start = piece.start.0.next_multiple_of(step);
    let rest = Extent::between(PhysicalBlock(start), piece.end());
    if rest.length.0 >= blocks { rest } else { piece }
}

/// 4 KiB, the only block size of the recipes.
pub(super) fn block_size() -> BlockSize {
    // The fallback is never taken: 4096 is a power of two in range, which the tests of the recipes show.
    BlockSize::try_from(4096).unwrap_or_else(|_| unreachable!("4096 is a block size"))
}
