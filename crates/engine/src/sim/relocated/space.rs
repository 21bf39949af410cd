//! The allocator: chunks by size class, and the longest free piece of the first suitable chunk. A new chunk is
//! preferred to one of another class. Freed space becomes free only after a commit.

use crate::relocated::{ChunkKey, DataChunk, Picture};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, ExtentSet, PhysicalBlock};

/// Extents of like size go to the same chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Nothing was allocated in it yet.
    None,
    Small,
    Medium,
    Large,
}

impl Class {
    fn of(length: Blocks, block_size: BlockSize) -> Self {
        match block_size.to_bytes(length) {
            Bytes(bytes) if bytes <= 128 << 10 => Self::Small,
            Bytes(bytes) if bytes <= 8 << 20 => Self::Medium,
            Bytes(_) => Self::Large,
        }
    }
}

#[derive(Clone, Debug)]
struct SimChunk {
    key: ChunkKey,
    extent: Extent,
    free: ExtentSet,
    class: Class,
}

/// All space.
#[derive(Clone, Debug)]
pub(super) struct Space {
    block_size: BlockSize,
    chunks: Vec<SimChunk>,
    unallocated: ExtentSet,
    chunk_length: Blocks,
    next_key: u64,
    /// Freed, not committed.
    pinned: ExtentSet,
    /// Emptied chunks, not committed.
    leaving: ExtentSet,
}

impl Space {
    pub(super) fn of(picture: &Picture) -> Self {
        let block_size = picture.layout.block_size();
        let mut small = vec![(0_u64, 0_u64); picture.chunks.len()];
        for run in picture.layout.files().flat_map(|file| file.runs()) {
            let holder = picture.chunks.iter().position(|chunk| chunk.extent.contains(&run.extent()));
            if let Some((few, all)) = holder.and_then(|at| small.get_mut(at)) {
                *few += u64::from(Class::of(run.length, block_size) == Class::Small);
                *all += 1;
            }
        }
        let chunks = picture.chunks.iter().zip(small).map(|(chunk, (few, all))| SimChunk {
            key: chunk.key,
            extent: chunk.extent,
            free: chunk.free.iter().copied().collect(),
            // The kernel looks at some extents and takes the least.
            class: match all {
                0 => Class::None,
                _ if few * 20 < all => Class::Medium,
                _ => Class::Small,
            },
        });
        let chunks: Vec<SimChunk> = chunks.collect();
        let in_chunks: ExtentSet = chunks.iter().map(|chunk| chunk.extent).collect();
        let mut unallocated = ExtentSet::new();
        for piece in picture.layout.free() {
            unallocated.extend(in_chunks.gaps(*piece));
        }
        let next_key = chunks.iter().map(|chunk| chunk.key.0 + 1).max().unwrap_or(1);
        Self {
            block_size,
            chunks,
            unallocated,
            chunk_length: picture.chunk_length,
            next_key,
            pinned: ExtentSet::new(),
            leaving: ExtentSet::new(),
        }
    }

    /// One piece, near `hint` if that can be.
    pub(super) fn whole(
        &mut self,
        length: Blocks,
        hint: Option<PhysicalBlock>,
        except: Option<ChunkKey>,
    ) -> Option<Extent> {
        let class = Class::of(length, self.block_size);
        let usable = |chunk: &SimChunk| Some(chunk.key) != except;
        let near = hint.and_then(|hint| {
            let here = Extent { start: hint, length };
            self.chunks
                .iter_mut()
                .find(|chunk| usable(chunk) && chunk.class == class && chunk.free.covers(here))
                .map(|chunk| chunk.take(here, class))
        });
        if near.is_some() {
            return near;
        }
        for accepted in [Some(class), Some(Class::None), None] {
            if accepted.is_none() {
                self.add_chunk(length);
            }
            let fits = |chunk: &SimChunk| {
                usable(chunk)
                    && (accepted.is_none_or(|accepted| chunk.class == accepted)
                        || chunk.class == Class::None && accepted.is_none())
                    && chunk.free.largest().is_some_and(|piece| piece.length >= length)
            };
            // A new chunk comes before those of the wrong class.
            let fresh = if accepted.is_none() {
                self.chunks.iter().position(|chunk| fits(chunk) && chunk.class == Class::None)
            } else {
                None
            };
            let found = fresh.or_else(|| self.chunks.iter().position(fits));
            if let Some(chunk) = found.and_then(|at| self.chunks.get_mut(at)) {
                let start = chunk.free.largest()?.start;
                return Some(chunk.take(Extent { start, length }, class));
            }
        }
        None
    }

    /// As many pieces as it takes; `None` when there is not so much.
    pub(super) fn pieces(&mut self, length: Blocks) -> Option<Vec<Extent>> {
        let (mut got, mut left, mut next) = (Vec::new(), length, length);
        while left.0 > 0 {
            let hint = got.last().map(Extent::end);
            match self.whole(next.min(left), hint, None) {
                Some(piece) => {
                    left -= piece.length;
                    got.push(piece);
                }
                None if next.0 > 1 => next = Blocks(next.0 / 2),
                None => {
                    got.iter().for_each(|piece| self.unused(*piece));
                    return None;
                }
            }
        }
        Some(got)
    }

    fn add_chunk(&mut self, least: Blocks) {
        let Some(piece) = self.unallocated.largest() else { return };
        let length = piece.length.min(self.chunk_length);
        if length < least || length.0 == 0 {
            return;
        }
        let extent = Extent { start: piece.start, length };
        self.unallocated.remove(extent);
        let key = ChunkKey(self.next_key);
        self.next_key += 1;
        self.chunks.push(SimChunk { key, extent, free: [extent].into_iter().collect(), class: Class::None });
    }

    /// Gives back at once what was never written.
    pub(super) fn unused(&mut self, extent: Extent) {
        if let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.extent.contains(&extent)) {
            chunk.free.insert(extent);
        }
    }

    /// Frees blocks, from the next commit on.
    pub(super) fn free(&mut self, extents: &ExtentSet) {
        self.pinned.extend(extents.iter());
    }

    /// Makes what was freed free.
    pub(super) fn commit(&mut self) {
        for extent in std::mem::take(&mut self.pinned).iter() {
            for chunk in &mut self.chunks {
                if let Some(part) = chunk.extent.intersection(&extent) {
                    chunk.free.insert(part);
                }
            }
        }
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.free.covers(chunk.extent)) {
            chunk.class = Class::None;
        }
        self.unallocated.extend(std::mem::take(&mut self.leaving).iter());
    }

    /// What of a chunk is in use or waits for a commit, and the chunk; `None` when there is no such chunk.
    pub(super) fn used_in(&self, key: ChunkKey) -> Option<(Extent, ExtentSet)> {
        let chunk = self.chunks.iter().find(|chunk| chunk.key == key)?;
        let mut used: ExtentSet = chunk.free.gaps(chunk.extent).into_iter().collect();
        for waiting in self.pinned.overlapping(chunk.extent) {
            used.remove(waiting);
        }
        Some((chunk.extent, used))
    }

    /// Takes an empty chunk away.
    pub(super) fn remove(&mut self, key: ChunkKey) {
        if let Some(at) = self.chunks.iter().position(|chunk| chunk.key == key) {
            let chunk = self.chunks.remove(at);
            self.pinned.remove(chunk.extent);
            self.leaving.insert(chunk.extent);
        }
    }

    pub(super) fn data_chunks(&self) -> Vec<DataChunk> {
        let mut chunks: Vec<DataChunk> = self
            .chunks
            .iter()
            .map(|chunk| DataChunk { key: chunk.key, extent: chunk.extent, free: chunk.free.iter().collect() })
            .collect();
        chunks.sort_unstable_by_key(|chunk| chunk.key);
        chunks
    }

    pub(super) fn unallocated(&self) -> &ExtentSet {
        &self.unallocated
    }

    pub(super) fn free_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.free.iter()).chain(self.unallocated.iter())
    }

    pub(super) fn free_blocks(&self) -> Blocks {
        self.free_extents().map(|extent| extent.length).sum()
    }

    /// All that belongs to chunks or could: never more, never less.
    pub(super) fn total(&self) -> Blocks {
        let chunks: Blocks = self.chunks.iter().map(|chunk| chunk.extent.length).sum();
        chunks + self.unallocated.total() + self.leaving.total()
    }
}

impl SimChunk {
    fn take(&mut self, extent: Extent, class: Class) -> Extent {
        self.free.remove(extent);
        if self.class == Class::None {
            self.class = class;
        }
        extent
    }
}
