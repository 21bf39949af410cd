//! Where the metadata of a volume goes, in full mode: directories side by side, behind them the file table, and behind that free space,
//! so that the table grows in one piece.
//!
//! Owns which files these are, and whether placing them is worth it. Where everything else goes is planned as always, on the volume as
//! it is once they have their place. Only for volumes that have a file table.

use crate::{Batch, Mode, PlannedMove, Planner, Policy, Step, Why};
use longrun_layout::{
    Blocks, Extent, ExtentSet, FileIndex, FileMove, FileView, Fragmentation, Pin, VolumeLayout, apply_moves,
};
use std::panic::resume_unwind;
use std::thread;

/// Directories in so few places are side by side: new ones are made between two runs.
const AREAS: usize = 4;
/// The table can grow to twice its size, but no more than this part of the free space is kept for that.
const KEPT_FREE: u64 = 8;
/// Placing the metadata may cost this part of what a plan without it moves, or this part of all used blocks.
const COSTS: u64 = 10;
const COSTS_AT_LEAST: u64 = 50;
/// And so many free pieces: the space behind the table can be one of its own, and so can be what lies before the directories.
const MORE_PIECES: u64 = 2;

/// Plans for a whole volume. In full mode the metadata has its place first, where that is worth it.
#[must_use]
pub fn plan_whole<'l>(layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
    match Metadata::of(layout).filter(|_| policy.mode == Mode::Full) {
        Some(metadata) => Box::new(metadata.plan(policy).into_iter()),
        None => Box::new(Planner::new(layout, policy)),
    }
}

/// The files that say where others are.
struct Metadata<'l> {
    layout: &'l VolumeLayout,
    table: FileIndex,
    /// The directories, then the table.
    files: Vec<FileIndex>,
}

/// A plan, and what comes of it.
struct Drafted {
    batches: Vec<Batch>,
    after: Fragmentation,
    moved: u64,
}

impl<'l> Metadata<'l> {
    /// `None` on a volume without a table that may move.
    fn of(layout: &'l VolumeLayout) -> Option<Self> {
        let has_blocks = |file: &FileView<'_>| file.is_movable() && file.runs().next().is_some();
        let table = layout.file(layout.table()?).filter(has_blocks)?.index;
        let directories =
            layout.files().filter(|file| file.record.is_directory && has_blocks(file) && file.index != table);
        let mut directories: Vec<_> = directories.map(|file| (file.record.directory, file.index)).collect();
        // Those of one directory together.
        directories.sort_unstable();
        let files = directories.into_iter().map(|(_, file)| file).chain([table]).collect();
        Some(Self { layout, table, files })
    }

    fn plan(&self, policy: Policy) -> Vec<Batch> {
        let placed = || {
            if self.is_placed(self.layout) {
                self.drafted(self.others(self.layout, policy))
            } else {
                self.place().and_then(|first| self.drafted(self.with(first, policy)?))
            }
        };
        // Neither needs the other: where there are two processors, each has one.
        let (plain, placed) = thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, placed);
            let plain = self.drafted(Planner::new(self.layout, policy).collect());
            let placed =
                thread.map_or_else(|_| placed(), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (plain, placed)
        });
        let Some(plain) = plain else { return Vec::new() };
        match placed {
            Some(placed) if self.is_worth(&placed, &plain, policy) => placed.batches,
            _ => plain.batches,
        }
    }

    /// What comes of a plan; `None` when it does not fit the volume.
    fn drafted(&self, batches: Vec<Batch>) -> Option<Drafted> {
        let moves = || batches.iter().flat_map(Batch::moves).map(|planned| planned.step);
        let after = apply_moves(self.layout, moves()).ok()?.fragmentation();
        let moved = moves().map(|step| step.length.0).sum();
        Some(Drafted { batches, after, moved })
    }

    fn is_worth(&self, placed: &Drafted, plain: &Drafted, policy: Policy) -> bool {
        let used = self.layout.fragmentation().used_bytes.0 / u64::from(self.layout.block_size().bytes());
        let most = plain.moved + (plain.moved / COSTS).max(used / COSTS_AT_LEAST);
        let most = policy.budget.map_or(most, |budget| most.min(budget.0));
        placed.after.excess_fragments <= plain.after.excess_fragments
            && placed.after.free_space.pieces <= plain.after.free_space.pieces + MORE_PIECES
            && placed.moved <= most
    }

    /// The blocks that are kept free behind the table.
    fn room(&self) -> u64 {
        let table = self.layout.file(self.table).map_or(0, |file| file.size().0);
        table.min(self.layout.free_blocks().0 / KEPT_FREE)
    }

    /// What is kept free behind the table, as far as it is free.
    fn behind(&self, layout: &VolumeLayout) -> Option<Extent> {
        let end = layout.file(self.table)?.runs().last()?.extent().end();
        let piece = layout.free().iter().find(|piece| piece.start == end)?;
        Some(Extent { start: end, length: piece.length.min(Blocks(self.room())) })
    }

    /// Whether all of it is whole, the directories are side by side, and the table can grow.
    fn is_placed(&self, layout: &VolumeLayout) -> bool {
        let files = || self.files.iter().filter_map(|file| layout.file(*file));
        let directories = || files().filter(|file| file.index != self.table);
        let areas: ExtentSet = directories().flat_map(|file| file.runs()).map(|run| run.extent()).collect();
        files().all(|file| file.fragments() == 1)
            && areas.iter().count() <= AREAS
            && self.behind(layout).is_some_and(|room| room.length.0 >= self.room() / 2)
    }

    /// The moves that place it at the beginning of the largest free piece.
    fn place(&self) -> Option<Batch> {
        let piece = self.layout.free().iter().max_by_key(|piece| piece.length)?;
        let files = || self.files.iter().filter_map(|file| self.layout.file(*file));
        let size: u64 = files().map(|file| file.size().0).sum();
        if piece.length.0 < size + self.room() {
            return None;
        }
        let mut target = piece.start;
        let mut steps = Vec::new();
        for file in files() {
            let why = if file.fragments() > 1 { Why::Defragment } else { Why::Gather };
            for run in file.runs() {
                let step = FileMove {
                    file: file.index,
                    logical: run.logical,
                    source: run.physical,
                    target,
                    length: run.length,
                };
                steps.push(Step::Move(PlannedMove { step, why }));
                target = target + run.length;
            }
        }
        steps.push(Step::Barrier);
        let saves = files().map(|file| file.fragments().saturating_sub(1) * self.layout.owners(file.index)).sum();
        Some(Batch { steps, saves })
    }

    /// That batch, and the plan for everything else.
    fn with(&self, first: Batch, policy: Policy) -> Option<Vec<Batch>> {
        let placed = apply_moves(self.layout, first.moves().map(|planned| planned.step)).ok()?;
        let others = self.others(&placed, policy);
        Some(std::iter::once(first).chain(others).collect())
    }

    /// The plan for everything else, on a volume where the metadata has its place and keeps it.
    fn others(&self, layout: &VolumeLayout, policy: Policy) -> Vec<Batch> {
        let mut others = layout.clone();
        others.withhold(&self.behind(layout).into_iter().collect());
        others.pin(&self.files, Pin::System);
        Planner::new(&others, policy).collect()
    }
}
