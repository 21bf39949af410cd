//! Applies moves to the model: the layout of a volume after them.

use crate::{
    Blocks, Extent, ExtentSet, FileIndex, LayoutBuilder, LayoutError, LogicalBlock, PhysicalBlock, Run, VolumeLayout,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One exchange: a logical range of a file leaves `source` for the free blocks at `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMove {
    /// Which file.
    pub file: FileIndex,
    /// First block of the file that moves.
    pub logical: LogicalBlock,
    /// Where it lies now, contiguously.
    pub source: PhysicalBlock,
    /// Where it will lie.
    pub target: PhysicalBlock,
    /// How many blocks.
    pub length: Blocks,
}

impl FileMove {
    /// The blocks that it leaves.
    #[must_use]
    pub fn vacates(&self) -> Extent {
        Extent { start: self.source, length: self.length }
    }

    /// The blocks that it takes.
    #[must_use]
    pub fn occupies(&self) -> Extent {
        Extent { start: self.target, length: self.length }
    }
}

/// A move that the layout does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The file does not exist or must not move.
    #[error("file {} of the layout does not exist or must not move", .0.file.0)]
    NotMovable(FileMove),
    /// The file's range does not lie at the source.
    #[error("block {} of file {} of the layout does not lie at block {}", .0.logical, .0.file.0, .0.source)]
    WrongSource(FileMove),
    /// The target is not free.
    #[error("block {} is not free for file {} of the layout", .0.target, .0.file.0)]
    TargetTaken(FileMove),
    /// The result is no valid layout.
    #[error(transparent)]
    Layout(LayoutError),
}

/// The layout after `moves`, each of which must find its source as stated and its target free (space vacated by
/// earlier moves counts as free: barriers are the engine's concern, not the model's).
///
/// # Errors
/// [`ApplyError`] names the first move that does not fit.
pub fn apply_moves(
    layout: &VolumeLayout,
    moves: impl IntoIterator<Item = FileMove>,
) -> Result<VolumeLayout, ApplyError> {
    let mut free: ExtentSet = layout.free().iter().copied().collect();
    let mut changed: BTreeMap<FileIndex, Vec<Run>> = BTreeMap::new();
    for step in moves {
        let file = layout.file(step.file).filter(|f| f.is_movable()).ok_or(ApplyError::NotMovable(step))?;
        let runs = changed.entry(step.file).or_insert_with(|| file.runs().collect());
        if !free.covers(step.occupies()) {
            return Err(ApplyError::TargetTaken(step));
        }
        if !relocate(runs, &step) {
            return Err(ApplyError::WrongSource(step));
        }
        free.remove(step.occupies());
        free.insert(step.vacates());
    }
    let mut builder = LayoutBuilder::like(layout);
    let sharers = layout.sharers();
    for file in layout.files() {
        let leader = layout.leader_of(file.index).unwrap_or(file.index);
        let mut runs = changed.get(&leader).map_or_else(|| file.runs().collect(), Vec::clone);
        let (record, shares) = (file.record, sharers.contains(&file.index));
        let pin = if shares { None } else { record.pin };
        let index = builder.push_file(file.id(), record.directory, record.is_directory, pin, &mut runs);
        if shares {
            builder.shares_blocks(index);
        }
    }
    for extent in free.iter() {
        builder.push_free(extent);
    }
    let mut applied = builder.build().map_err(ApplyError::Layout)?;
    applied.set_regions(layout.regions().to_vec());
    applied.set_table(layout.table());
    Ok(applied)
}

/// Rewrites `runs` (ascending by logical address) so that the moved range lies at its target; false when it does not
/// lie at the source. Neighbours that continue each other are joined.
fn relocate(runs: &mut Vec<Run>, step: &FileMove) -> bool {
    let end = step.logical + step.length;
    let at = runs.partition_point(|run| run.logical_end() <= step.logical);
    let Some(&whole) = runs.get(at).filter(|run| run.logical <= step.logical && end <= run.logical_end()) else {
        return false;
    };
    let before = step.logical - whole.logical;
    if whole.physical + before != step.source || step.length.0 == 0 {
        return false;
    }
    let after = whole.logical_end() - end;
    let mut parts = Vec::with_capacity(3);
    if before.0 > 0 {
        parts.push(Run { length: before, ..whole });
    }
    parts.push(Run { logical: step.logical, physical: step.target, length: step.length });
    if after.0 > 0 {
        parts.push(Run { logical: end, physical: step.source + step.length, length: after });
    }
    // With its neighbours, which it may join: the others are not looked at, however many there are.
    let around = at.saturating_sub(1)..(at + 2).min(runs.len());
    let neighbours = runs.get(around.clone()).unwrap_or_default();
    let [first, last] = [neighbours.first(), neighbours.last()].map(|run| run.filter(|run| **run != whole));
    let mut parts: Vec<Run> = first.into_iter().copied().chain(parts).chain(last.copied()).collect();
    parts.dedup_by(|next, kept| {
        let joined = kept.continues_into(next);
        if joined {
            kept.length += next.length;
        }
        joined
    });
    runs.splice(around, parts);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSize, FileId, InodeNumber, NO_DIRECTORY};

    fn layout() -> VolumeLayout {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        let id = FileId { inode: InodeNumber(1), generation: 1 };
        b.push_file(id, NO_DIRECTORY, false, None, &mut vec![Run::new(0, 10, 5), Run::new(5, 30, 5)]);
        b.push_free(Extent::new(15, 15));
        b.push_free(Extent::new(50, 10));
        b.build().unwrap()
    }

    fn step(logical: u64, source: u64, target: u64, length: u64) -> FileMove {
        FileMove {
            file: FileIndex(0),
            logical: LogicalBlock(logical),
            source: PhysicalBlock(source),
            target: PhysicalBlock(target),
            length: Blocks(length),
        }
    }

    #[test]
    fn moving_the_second_run_behind_the_first_joins_them() {
        let after = apply_moves(&layout(), [step(5, 30, 15, 5)]).unwrap();
        let runs: Vec<Run> = after.file(FileIndex(0)).unwrap().runs().collect();
        assert_eq!(runs, [Run::new(0, 10, 10)]);
        assert_eq!(after.free(), [Extent::new(20, 15), Extent::new(50, 10)]);
        assert_eq!(after.obstacles(), layout().obstacles());
    }

    #[test]
    fn files_that_share_their_blocks_move_together() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        for inode in [1, 2] {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            let mut runs = vec![Run::new(0, 10, 5), Run::new(5, 30, 5)];
            let file = b.push_file(id, NO_DIRECTORY, false, None, &mut runs);
            b.shares_blocks(file);
        }
        b.push_free(Extent::new(15, 15));
        let before = b.build().unwrap();
        let after = apply_moves(&before, [step(5, 30, 15, 5)]).unwrap();
        assert!(after.files().all(|file| file.runs().eq([Run::new(0, 10, 10)])));
        assert_eq!(after.followers(FileIndex(0)), [FileIndex(1)]);
        assert_eq!((before.fragmentation().excess_fragments, after.fragmentation().excess_fragments), (2, 0));
    }

    #[test]
    fn moves_that_do_not_fit_are_refused() {
        let l = layout();
        assert!(matches!(apply_moves(&l, [step(5, 31, 15, 4)]), Err(ApplyError::WrongSource(_))));
        assert!(matches!(apply_moves(&l, [step(5, 30, 58, 5)]), Err(ApplyError::TargetTaken(_))));
        assert!(matches!(apply_moves(&l, [step(4, 14, 15, 3)]), Err(ApplyError::WrongSource(_))));
        let mut other = step(5, 30, 15, 5);
        other.file = FileIndex(1);
        assert!(matches!(apply_moves(&l, [other]), Err(ApplyError::NotMovable(_))));
    }
}
