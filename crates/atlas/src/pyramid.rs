//! Levels of detail in one dimension: each cell says in four bytes what a range of the volume holds.
//!
//! Owns the sizes of levels and cells, and what the bytes of a cell mean. Counts are exact on every level: a cell is never
//! computed from the rounded bytes of finer ones. Pure.

use crate::piece::{Owner, Piece};
use longrun_layout::{Blocks, Extent, PhysicalBlock};

/// The bytes of a cell: the shares that are used, in fragmented files, and fixed; the logarithm of the number of pieces.
pub const BYTES_PER_CELL: usize = 4;
/// The most cells of the finest level: 16 MiB.
const MOST_CELLS: u64 = 1 << 22;
/// The fewest blocks of a cell. Who wants to see more asks for the extents.
const LEAST_CELL: u64 = 16;
/// So many cells are one cell of the next level.
const FACTOR: u64 = 4;

/// A level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The blocks of a cell.
    pub cell: Blocks,
    /// The number of cells; the last one may stand for fewer blocks.
    pub cells: u64,
}

/// The levels of a volume of `total` blocks, from the finest to that of one cell. None of an empty volume.
#[must_use]
pub fn levels(total: Blocks) -> Vec<Level> {
    let mut cell = total.0.div_ceil(MOST_CELLS).checked_next_power_of_two().unwrap_or(1 << 63).max(LEAST_CELL);
    let mut levels = Vec::new();
    if total.0 == 0 {
        return levels;
    }
    loop {
        let level = Level { cell: Blocks(cell), cells: total.0.div_ceil(cell) };
        levels.push(level);
        if level.cells == 1 {
            return levels;
        }
        cell = cell.saturating_mul(FACTOR);
    }
}

/// What was counted in a cell, in blocks and pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    blocks: u64,
    used: u64,
    fragmented: u64,
    fixed: u64,
    pieces: u64,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.used += other.used;
        self.fragmented += other.fragmented;
        self.fixed += other.fixed;
        self.pieces += other.pieces;
    }

    fn cell(&self) -> [u8; BYTES_PER_CELL] {
        let share = |part: u64| match part {
            0 => 0,
            part if part == self.blocks => u8::MAX,
            part => (part.saturating_mul(255) / self.blocks.max(1)).clamp(1, 254) as u8,
        };
        let pieces = (16.0 * (1.0 + self.pieces as f64).log2()).round().min(255.0) as u8;
        [share(self.used), share(self.fragmented), share(self.fixed), pieces]
    }
}

/// A level that is being made.
struct Making {
    level: Level,
    sum: Sum,
    cells: Vec<u8>,
}

/// All levels of a volume, being made from its pieces in ascending order.
pub(crate) struct Pyramid {
    total: Blocks,
    at: PhysicalBlock,
    levels: Vec<Making>,
}

impl Pyramid {
    pub(crate) fn new(total: Blocks) -> Self {
        let making = |level: Level| {
            let bytes = usize::try_from(level.cells).unwrap_or(0).saturating_mul(BYTES_PER_CELL);
            Making { level, sum: Sum::default(), cells: Vec::with_capacity(bytes) }
        };
        Self { total, at: PhysicalBlock(0), levels: levels(total).into_iter().map(making).collect() }
    }

    /// Adds the next piece. What lies between it and the one before counts as in use and fixed.
    pub(crate) fn add(&mut self, piece: &Piece) {
        self.unknown_up_to(piece.extent.start);
        let length = piece.extent.end().0.min(self.total.0).saturating_sub(self.at.0);
        let of = |is: bool| u64::from(is);
        let each = match piece.owner {
            Owner::Free => Sum::default(),
            Owner::Area(_) => Sum { used: 1, fixed: 1, ..Sum::default() },
            Owner::File { traits, .. } => {
                Sum { used: 1, fragmented: of(traits.fragmented), fixed: of(traits.fixed), ..Sum::default() }
            }
        };
        if length > 0
            && let Some(finest) = self.levels.first_mut()
        {
            finest.sum.pieces += 1;
        }
        self.fill(length, each);
    }

    fn unknown_up_to(&mut self, end: PhysicalBlock) {
        let gap = Extent::between(self.at, end.min(PhysicalBlock(self.total.0)));
        self.fill(gap.length.0, Sum { used: 1, fixed: 1, ..Sum::default() });
    }

    /// Adds blocks, of each of which `each` counts.
    fn fill(&mut self, mut blocks: u64, each: Sum) {
        while blocks > 0 {
            let Some(finest) = self.levels.first_mut() else { return };
            let some = blocks.min(finest.level.cell.0 - finest.sum.blocks);
            let (used, fragmented, fixed) = (each.used * some, each.fragmented * some, each.fixed * some);
            finest.sum.add(&Sum { blocks: some, used, fragmented, fixed, pieces: 0 });
            self.at = self.at + Blocks(some);
            blocks -= some;
            self.close(false);
        }
    }

    /// Ends the cells that are full; all of them `at_end`.
    fn close(&mut self, at_end: bool) {
        let mut below: Option<Sum> = None;
        for making in &mut self.levels {
            if let Some(sum) = below.take() {
                making.sum.add(&sum);
            }
            let is_full = making.sum.blocks == making.level.cell.0 || (at_end && making.sum.blocks > 0);
            if is_full {
                let sum = std::mem::take(&mut making.sum);
                making.cells.extend(sum.cell());
                below = Some(sum);
            } else if !at_end {
                return;
            }
        }
    }

    /// The bytes of the cells of each level.
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
        self.unknown_up_to(PhysicalBlock(self.total.0));
        self.close(true);
        self.levels.into_iter().map(|making| making.cells).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_at_most_four_million_cells_and_end_with_one() {
        let cells = |total| levels(Blocks(total)).iter().map(|level| (level.cell.0, level.cells)).collect::<Vec<_>>();
        assert_eq!(cells(0), []);
        assert_eq!(cells(10), [(16, 1)]);
        assert_eq!(cells(1000), [(16, 63), (64, 16), (256, 4), (1024, 1)]);
        let large = cells((16 << 40) / 4096);
        assert_eq!((large.first(), large.last(), large.len()), (Some(&(1024, 1 << 22)), Some(&(1 << 32, 1)), 12));
        for total in [(1 << 26) + 1, u64::MAX] {
            assert!(levels(Blocks(total)).iter().all(|level| level.cells <= MOST_CELLS), "{total}");
        }
    }

    #[test]
    fn a_share_is_none_or_all_only_when_it_is() {
        let cell = |used, blocks| Sum { blocks, used, ..Sum::default() }.cell()[0];
        assert_eq!(
            [cell(0, 1000), cell(1, 1000), cell(500, 1000), cell(999, 1000), cell(1000, 1000)],
            [0, 1, 127, 254, 255]
        );
        let pieces = |pieces| Sum { pieces, ..Sum::default() }.cell()[3];
        assert_eq!([pieces(0), pieces(1), pieces(3), pieces(1 << 40)], [0, 16, 32, 255]);
    }
}
