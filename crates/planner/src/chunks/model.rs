//! The model: chunks and the areas that they are looked at in, how full they are, and what lies in them.

use super::room::LEAST;
use crate::Mode;
use longrun_layout::Blocks;
use serde::{Deserialize, Serialize};

/// The number of a chunk in its [`ChunkMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkIndex(
    /// The bare number.
    pub u32,
);

/// The number of an area in its [`ChunkMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AreaIndex(
    /// The bare number.
    pub u32,
);

/// The number of a unit in its [`ChunkMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitIndex(
    /// The bare number.
    pub u32,
);

/// A range of the volume that holds data, and that the volume can empty as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// All of it.
    pub length: Blocks,
    /// The lengths of its free pieces.
    pub free: Vec<Blocks>,
    /// It could not be emptied, and is not tried again.
    pub stays: bool,
}

impl Chunk {
    /// What of it is free.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.free.iter().copied().sum()
    }

    /// What of it is used.
    #[must_use]
    pub fn used(&self) -> Blocks {
        self.length.saturating_sub(self.free_blocks())
    }
}

/// An area with fewer free pieces is as good as one that is cleared.
const FEW: usize = 3;

/// A part of a chunk that becomes free in one piece when all that lies in it is written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The chunk that it is a part of.
    pub chunk: ChunkIndex,
    /// What lies in it lay there before the pass began.
    pub old: bool,
    /// It was cleared for the free space's sake before, and is not again.
    pub tidied: bool,
    /// All of it.
    pub length: Blocks,
    /// What of it is used.
    pub used: Blocks,
    /// The lengths of the free pieces that begin in it.
    pub free: Vec<Blocks>,
}

impl Area {
    /// What of it is free in pieces that are too short to be of use, when it has several.
    pub(super) fn scattered(&self) -> u64 {
        let short = self.free.iter().map(|piece| piece.0).filter(|piece| *piece < LEAST);
        if self.free.len() < FEW { 0 } else { short.sum() }
    }
}

/// Files that share blocks, and thus can only be written anew together; most often one, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Fragments that they would have less, all together. With none they are moved only to make room.
    pub excess: u64,
    /// What is to be written, and to lie in one piece.
    pub written: Blocks,
    /// What becomes free, by area.
    pub vacates: Vec<(AreaIndex, Blocks)>,
    /// What of it lies in one area can be moved without the rest.
    pub divisible: bool,
}

/// A unit, or what of it lies in some areas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Portion {
    /// Which unit.
    pub unit: UnitIndex,
    /// In which areas, ascending; all of it when there are none.
    pub within: Vec<AreaIndex>,
}

impl Portion {
    pub(super) fn whole(unit: UnitIndex) -> Self {
        Self { unit, within: Vec::new() }
    }
}

/// What a plan is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMap {
    /// The chunks that hold data.
    pub chunks: Vec<Chunk>,
    /// All areas of all chunks.
    pub areas: Vec<Area>,
    /// Space that belongs to no chunk.
    pub unallocated: Blocks,
    /// How long a chunk would be that is made of it.
    pub chunk_length: Blocks,
    /// Areas in a row that are no longer than this together are cleared as one, where they are not told apart.
    pub cleared_alone: Blocks,
    /// What may be written anew.
    pub units: Vec<Unit>,
}

impl ChunkMap {
    pub(super) fn unit(&self, index: UnitIndex) -> Option<&Unit> {
        self.units.get(index.0 as usize)
    }

    /// All that is free.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.chunks.iter().map(Chunk::free_blocks).sum::<Blocks>() + self.unallocated
    }

    /// Which units have something in each area, and how many blocks.
    pub(super) fn tenants(&self) -> Vec<Vec<(UnitIndex, u64)>> {
        let mut tenants = vec![Vec::new(); self.areas.len()];
        for (number, unit) in self.units.iter().enumerate() {
            for (area, blocks) in &unit.vacates {
                if let Some(units) = tenants.get_mut(area.0 as usize) {
                    units.push((UnitIndex(number as u32), blocks.0));
                }
            }
        }
        tenants
    }

    /// All that is used.
    pub(super) fn used(&self) -> Blocks {
        self.chunks.iter().map(Chunk::used).sum()
    }

    /// In how many pieces.
    #[must_use]
    pub fn free_pieces(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.free.len() as u64).sum::<u64>() + u64::from(self.unallocated.0 > 0)
    }
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// How far to go.
    pub mode: Mode,
    /// The most blocks to write, those of emptied chunks included.
    pub budget: Option<Blocks>,
    /// The most of them to write towards files in one piece; the rest is for the free space.
    pub for_files: Blocks,
    /// Free blocks that must be left at any moment while files are written anew.
    pub reserve: Blocks,
    /// The same while a chunk is emptied: meanwhile its own free space is nobody's.
    pub reserve_beside: Blocks,
    /// The last stage emptied a chunk: what was in it may just have made another one.
    pub has_just_emptied: bool,
    /// What became of gathering the free space so far in this pass.
    pub space: Gathering,
    /// Excess fragments that are good enough.
    pub goal: u64,
}

/// Whether gathering the free space does what was promised: where things come to lie is the volume's decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gathering {
    /// Nothing was done for it yet, or the last stage did not: a little is tried.
    #[default]
    OnTrial,
    /// The last stage did.
    Pays,
    /// What was tried did not. No more is done.
    Disappoints,
}

impl Gathering {
    /// What becomes of it by a stage that did or did not.
    #[must_use]
    pub const fn after(self, kept: bool) -> Self {
        match (self, kept) {
            (_, true) => Self::Pays,
            (Self::Pays, false) => Self::OnTrial,
            (Self::OnTrial | Self::Disappoints, false) => Self::Disappoints,
        }
    }
}

impl ChunkLimits {
    /// The same with a budget of no more than `most`.
    pub(super) fn at_most(&self, most: Blocks) -> Self {
        Self { budget: Some(self.budget.map_or(most, |budget| budget.min(most))), ..*self }
    }

    pub(super) fn affords(&self, blocks: u64) -> bool {
        self.budget.is_none_or(|budget| blocks <= budget.0)
    }
}
