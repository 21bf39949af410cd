//! A window: the part of a volume that is planned at once, with all data that this needs.

use crate::unit::Unit;
use longrun_layout::{Extent, ExtentSet, FileIndex};

/// What is planned at once. Files that have blocks outside the window are imported: they bring those blocks in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Obstacle-free stretches, ascending, not adjacent.
    pub(crate) segments: Vec<Extent>,
    /// Everything that lies in them and may move, or must be respected.
    pub(crate) units: Vec<Unit>,
    /// Their free blocks.
    pub(crate) free: ExtentSet,
}

impl Window {
    /// Builds the window from its units and free space: what neither claims is an obstacle.
    pub(crate) fn new(units: Vec<Unit>, free: ExtentSet, within: &ExtentSet) -> Self {
        let pieces = units.iter().flat_map(|u| &u.pieces);
        let inside = pieces.flat_map(|piece| within.overlapping(Extent::new(piece.at, piece.length)));
        // All at once: one after the other takes a tenth of the time of a plan.
        let space: ExtentSet = inside.chain(free.iter()).collect();
        let segments = space.iter().collect();
        Self { segments, units, free }
    }

    /// Blocks of all units.
    pub(crate) fn used(&self) -> u64 {
        self.units.iter().map(|u| u.size).sum()
    }

    /// Blocks of the units that are in pieces.
    pub(crate) fn in_pieces(&self) -> u64 {
        self.units.iter().filter(|u| u.fragments() > 1).map(|u| u.size).sum()
    }

    /// Blocks of all segments.
    pub(crate) fn capacity(&self) -> u64 {
        self.segments.iter().map(|s| s.length.0).sum()
    }

    /// Excess fragments of the files in the window, whose units follow each other: the sum of (fragments - 1).
    pub(crate) fn excess(&self) -> u64 {
        let mut count = 0;
        let mut last: Option<(FileIndex, u64)> = None;
        for unit in &self.units {
            for piece in &unit.pieces {
                if last.is_some_and(|(before, end)| before == unit.file && end != piece.at) {
                    count += unit.owners;
                }
                last = Some((unit.file, piece.end()));
            }
        }
        count
    }
}
