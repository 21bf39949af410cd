//! Runs: physically contiguous ranges of a file.

use crate::{Blocks, Extent, LogicalBlock, PhysicalBlock};
use serde::{Deserialize, Serialize};

/// A physically and logically contiguous range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Where it lies in the file.
    pub logical: LogicalBlock,
    /// Where it lies on the volume.
    pub physical: PhysicalBlock,
    /// Number of blocks.
    pub length: Blocks,
}

impl Run {
    /// A run of `length` blocks.
    #[must_use]
    pub const fn new(logical: u64, physical: u64, length: u64) -> Self {
        Self { logical: LogicalBlock(logical), physical: PhysicalBlock(physical), length: Blocks(length) }
    }

    /// The physical blocks of the run.
    #[must_use]
    pub fn extent(&self) -> Extent {
        Extent { start: self.physical, length: self.length }
    }

    /// The blocks of the file that the run maps.
    #[must_use]
    pub fn logical_range(&self) -> LogicalRange {
        LogicalRange { start: self.logical, length: self.length }
    }

    /// The first logical block behind the run.
    #[must_use]
    pub fn logical_end(&self) -> LogicalBlock {
        self.logical + self.length
    }

    /// Whether `next` goes on where this run ends, in the file and on the volume.
    #[must_use]
    pub fn continues_into(&self, next: &Self) -> bool {
        self.logical_end() == next.logical && self.extent().end() == next.physical
    }
}

/// A contiguous range of a file, wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalRange {
    /// First block.
    pub start: LogicalBlock,
    /// Number of blocks.
    pub length: Blocks,
}

impl LogicalRange {
    /// Every block that a file can have.
    pub const ALL: Self = Self { start: LogicalBlock(0), length: Blocks(u64::MAX) };

    /// The range from `start` up to, not including, `end`; empty when they meet.
    #[must_use]
    pub fn between(start: LogicalBlock, end: LogicalBlock) -> Self {
        Self { start, length: Blocks(end.0.saturating_sub(start.0)) }
    }

    /// The first block behind it.
    #[must_use]
    pub fn end(&self) -> LogicalBlock {
        LogicalBlock(self.start.0.saturating_add(self.length.0))
    }

    /// The shortest range that has this one and `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self::between(self.start.min(other.start), self.end().max(other.end()))
    }

    /// The range of one block.
    #[must_use]
    pub const fn one(block: LogicalBlock) -> Self {
        Self { start: block, length: Blocks(1) }
    }
}

/// A run in 16 bytes: 48-bit addresses (1 EiB of 4 KiB blocks) and a 32-bit length, so that a volume of 10 million
/// files is held in a few hundred MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedRun {
    logical_low: u32,
    physical_low: u32,
    length: u32,
    logical_high: u16,
    physical_high: u16,
}

const ADDRESS_LIMIT: u64 = 1 << 48;

impl PackedRun {
    /// `None` when an address needs more than 48 bits or the length more than 32.
    #[must_use]
    pub fn pack(run: Run) -> Option<Self> {
        let fits = run.logical.0.checked_add(run.length.0)? <= ADDRESS_LIMIT
            && run.physical.0.checked_add(run.length.0)? <= ADDRESS_LIMIT;
        let length = u32::try_from(run.length.0).ok()?;
        fits.then_some(Self {
            logical_low: run.logical.0 as u32,
            logical_high: (run.logical.0 >> 32) as u16,
            physical_low: run.physical.0 as u32,
            physical_high: (run.physical.0 >> 32) as u16,
            length,
        })
    }

    /// The run that was packed.
    #[must_use]
    pub fn unpack(self) -> Run {
        Run::new(
            u64::from(self.logical_high) << 32 | u64::from(self.logical_low),
            u64::from(self.physical_high) << 32 | u64::from(self.physical_low),
            u64::from(self.length),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_keeps_every_run_that_fits(logical in 0u64..1 << 50, physical in 0u64..1 << 50, length in 1u64..1 << 34) {
            let run = Run::new(logical, physical, length);
            match PackedRun::pack(run) {
                Some(packed) => prop_assert_eq!(packed.unpack(), run),
                None => prop_assert!(length >= 1 << 32 || logical + length > 1 << 48 || physical + length > 1 << 48),
            }
        }
    }

    #[test]
    fn a_packed_run_takes_16_bytes() {
        assert_eq!(std::mem::size_of::<PackedRun>(), 16);
    }
}
