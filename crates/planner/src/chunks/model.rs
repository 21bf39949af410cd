//! The model: chunks and their areas, how full they are, and the units in them.

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
    /// Its length.
    pub length: Blocks,
    /// The lengths of its free pieces.
    pub free: Vec<Blocks>,
    /// Emptying it failed, and is not tried again.
    pub stays: bool,
}

impl Chunk {
    /// Its free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.free.iter().copied().sum()
    }

    /// Its used blocks.
    #[must_use]
    pub fn used(&self) -> Blocks {
        self.length.saturating_sub(self.free_blocks())
    }
}

/// An area with fewer free pieces than this counts as cleared.
const FEW: usize = 3;

/// A part of a chunk. It becomes one free piece when all its data is rewritten elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The chunk that it is a part of.
    pub chunk: ChunkIndex,
    /// Its data has been there since before the pass.
    pub old: bool,
    /// It was already cleared to consolidate free space.
    pub tidied: bool,
    /// Its length.
    pub length: Blocks,
    /// Its used blocks.
    pub used: Blocks,
    /// The lengths of the free pieces that begin in it.
    pub free: Vec<Blocks>,
}

impl Area {
    /// Its free blocks in pieces that are too short to be useful; 0 if it has few pieces.
    pub(super) fn scattered(&self) -> u64 {
        let short = self.free.iter().map(|piece| piece.0).filter(|piece| *piece < LEAST);
        if self.free.len() < FEW { 0 } else { short.sum() }
    }
}

/// Files that share blocks and can therefore only be rewritten together; usually a single file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The decrease of their fragments by rewriting them. If it is 0, they are moved only to make room.
    pub excess: u64,
    /// The blocks to write, into one piece.
    pub written: Blocks,
    /// The blocks that become free, by area.
    pub vacates: Vec<(AreaIndex, Blocks)>,
    /// Its part in one area can be moved without the rest.
    pub divisible: bool,
}

/// A unit, or its part in some areas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Portion {
    /// The unit.
    pub unit: UnitIndex,
    /// The areas, ascending. If empty, the whole unit.
    pub within: Vec<AreaIndex>,
}

impl Portion {
    pub(super) fn whole(unit: UnitIndex) -> Self {
        Self { unit, within: Vec::new() }
    }
}

/// The input of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMap {
    /// The chunks that hold data.
    pub chunks: Vec<Chunk>,
    /// All areas of all chunks.
    pub areas: Vec<Area>,
    /// Space that belongs to no chunk.
    pub unallocated: Blocks,
    /// The length of a chunk that would be allocated from it.
    pub chunk_length: Blocks,
    /// Consecutive areas of at most this total length are cleared together if it does not matter which files they hold.
    pub cleared_alone: Blocks,
    /// The units that may be rewritten.
    pub units: Vec<Unit>,
}

impl ChunkMap {
    pub(super) fn unit(&self, index: UnitIndex) -> Option<&Unit> {
        self.units.get(index.0 as usize)
    }

    /// The free blocks of the volume.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.chunks.iter().map(Chunk::free_blocks).sum::<Blocks>() + self.unallocated
    }

    /// For each area the units that have blocks in it, and how many.
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

    /// The used blocks of all chunks.
    pub(super) fn used(&self) -> Blocks {
        self.chunks.iter().map(Chunk::used).sum()
    }

    /// The number of free pieces.
    #[must_use]
    pub fn free_pieces(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.free.len() as u64).sum::<u64>() + u64::from(self.unallocated.0 > 0)
    }
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The mode: how far the plan goes.
    pub mode: Mode,
    /// The maximum number of blocks to write, including those of emptied chunks.
    pub budget: Option<Blocks>,
    /// The maximum of these that is written to defragment files; the rest is for consolidating free space.
    pub for_files: Blocks,
    /// The free blocks that must remain at any moment while files are rewritten.
    pub reserve: Blocks,
    /// The same while a chunk is emptied. Its own free space cannot be allocated meanwhile.
    pub reserve_beside: Blocks,
    /// The last stage emptied a chunk. Its data may have caused the allocation of another one.
    pub has_just_emptied: bool,
    /// How consolidation of free space has worked so far in this pass.
    pub space: Consolidation,
    /// The number of excess fragments that is good enough.
    pub goal: u64,
    /// A first long free piece may be made out of short ones: it has not come to nothing yet.
    pub makes_room: bool,
    /// Units for which there is no room in one piece are rewritten too: the volume knows when it makes them no better.
    pub into_pieces: bool,
}

/// Whether consolidation of free space achieves the expected result. This is uncertain, because the volume chooses the
/// places itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consolidation {
    /// Nothing was tried yet, or the last stage did not achieve it: a little is tried.
    #[default]
    OnTrial,
    /// The last stage achieved it.
    Pays,
    /// The trial did not achieve it. Nothing more is done.
    Disappoints,
}

impl Consolidation {
    /// The state after a stage; `kept` says whether the stage achieved its expected result.
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
    /// The same limits with a budget of at most `most`.
    pub(super) fn at_most(&self, most: Blocks) -> Self {
        Self { budget: Some(self.budget.map_or(most, |budget| budget.min(most))), ..*self }
    }

    pub(super) fn affords(&self, blocks: u64) -> bool {
        self.budget.is_none_or(|budget| blocks <= budget.0)
    }
}
