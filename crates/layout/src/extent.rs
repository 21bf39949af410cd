//! Physical ranges.

use crate::{Blocks, PhysicalBlock};
use serde::{Deserialize, Serialize};

/// A contiguous range of physical blocks, never empty in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// First block.
    pub start: PhysicalBlock,
    /// Number of blocks.
    pub length: Blocks,
}

impl Extent {
    /// The range of `length` blocks from `start`.
    #[must_use]
    pub const fn new(start: u64, length: u64) -> Self {
        Self { start: PhysicalBlock(start), length: Blocks(length) }
    }

    /// The range from `start` up to, not including, `end`; empty when they meet.
    #[must_use]
    pub fn between(start: PhysicalBlock, end: PhysicalBlock) -> Self {
        Self { start, length: Blocks(end.0.saturating_sub(start.0)) }
    }

    /// The first block behind the range.
    #[must_use]
    pub fn end(&self) -> PhysicalBlock {
        self.start + self.length
    }

    /// Whether the range has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length.0 == 0
    }

    /// The blocks that both ranges have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let common = Self::between(self.start.max(other.start), self.end().min(other.end()));
        (!common.is_empty()).then_some(common)
    }

    /// Whether all of `other` lies in `self`.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// The same blocks as ascending, disjoint, non-adjacent extents.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.retain(|extent| !extent.is_empty());
    extents.sort_unstable();
    extents.dedup_by(|next, kept| {
        let touches = next.start <= kept.end();
        if touches {
            *kept = Extent::between(kept.start, kept.end().max(next.end()));
        }
        touches
    });
    extents
}
