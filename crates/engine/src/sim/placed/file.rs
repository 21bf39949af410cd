//! A simulated file: its map, and what a reader must find in it.

use super::content::Content;
use crate::range_map::RangeMap;
use longrun_layout::{Blocks, Extent, FileId, FileView, LogicalBlock, PhysicalBlock, Run};

/// A file that differs from the layout that the simulation began with.
#[derive(Clone, Debug)]
pub(super) struct SimFile {
    pub id: FileId,
    pub directory: u32,
    pub deleted: bool,
    /// Ascending by logical address, joined where they continue each other.
    pub runs: Vec<Run>,
    /// What each block must hold, by logical address.
    pub expected: RangeMap<Content>,
}

/// A logical range, in the type that sets and maps of ranges use.
pub(super) fn logical_range(start: LogicalBlock, length: Blocks) -> Extent {
    Extent::new(start.0, length.0)
}

impl SimFile {
    pub(super) fn new(id: FileId, directory: u32) -> Self {
        Self { id, directory, deleted: false, runs: Vec::new(), expected: RangeMap::default() }
    }

    /// A file of the beginning: each block holds what its place held then.
    pub(super) fn original(file: &FileView<'_>) -> Self {
        let mut original = Self::new(file.id(), file.record.directory);
        for run in file.runs() {
            original.expected.assign(logical_range(run.logical, run.length), Content::Original(run.physical));
            original.runs.push(run);
        }
        original
    }

    /// The first logical block behind the last mapped one.
    pub(super) fn end(&self) -> LogicalBlock {
        self.runs.last().map_or(LogicalBlock(0), Run::logical_end)
    }

    /// Where `logical` lies, and how far from there the file goes on contiguously.
    pub(super) fn at(&self, logical: LogicalBlock) -> Option<Extent> {
        let run = self.runs.iter().find(|r| r.logical <= logical && logical < r.logical_end())?;
        Some(Extent::between(run.physical + (logical - run.logical), run.extent().end()))
    }

    /// Takes a logical range out of the map and returns the blocks that it had.
    pub(super) fn unmap(&mut self, logical: LogicalBlock, length: Blocks) -> Vec<Extent> {
        let cut = logical_range(logical, length);
        let (mut kept, mut freed) = (Vec::with_capacity(self.runs.len() + 1), Vec::new());
        for run in self.runs.drain(..) {
            let whole = logical_range(run.logical, run.length);
            let Some(gone) = whole.intersection(&cut) else {
                kept.push(run);
                continue;
            };
            let offset = gone.start.0 - run.logical.0;
            freed.push(Extent::new(run.physical.0 + offset, gone.length.0));
            if offset > 0 {
                kept.push(Run { length: Blocks(offset), ..run });
            }
            if gone.end() < whole.end() {
                let skipped = offset + gone.length.0;
                kept.push(Run::new(gone.end().0, run.physical.0 + skipped, run.length.0 - skipped));
            }
        }
        self.runs = kept;
        freed
    }

    /// Maps an unmapped logical range.
    pub(super) fn map(&mut self, logical: LogicalBlock, place: Extent) {
        let at = self.runs.partition_point(|r| r.logical < logical);
        self.runs.insert(at, Run { logical, physical: place.start, length: place.length });
        self.runs.dedup_by(|next, kept| {
            let joined = kept.continues_into(next);
            if joined {
                kept.length += next.length;
            }
            joined
        });
    }

    /// Maps a range elsewhere; the range must be mapped contiguously.
    pub(super) fn remap(&mut self, logical: LogicalBlock, target: PhysicalBlock, length: Blocks) {
        self.unmap(logical, length);
        self.map(logical, Extent { start: target, length });
    }
}
