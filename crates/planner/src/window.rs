//! A window: the part of a volume that is planned at once, with all data that this needs.

use crate::target::outside;
use crate::unit::{Piece, Unit, UnitIndex};
use longrun_layout::{Extent, ExtentSet, FileIndex, PhysicalBlock};
use std::collections::{BTreeMap, BTreeSet};

/// So many parts of a large unit find room in the free space at once.
const FREE_FOR_A_PART: u64 = 8;

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

    /// The same window, in which the pieces of fragmented units stay that lie in small segments without free blocks. `None` when there are
    /// none.
    ///
    /// Such a segment, between inode tables for example, is too small for any of these units as a whole. If nothing has just its size, it
    /// becomes one more free piece when its piece leaves.
    pub(crate) fn leaving_full_segments(&self) -> Option<Self> {
        let smallest = self.units.iter().filter(|unit| unit.fragments() > 1).map(|unit| unit.size).min()?;
        let is_full =
            |segment: &&Extent| segment.length.0 < smallest && self.free.overlapping(**segment).next().is_none();
        let full: ExtentSet = self.segments.iter().filter(is_full).copied().collect();
        let stays = |piece: &Piece| full.extent_at(PhysicalBlock(piece.at)).is_some();
        let mut units = Vec::with_capacity(self.units.len());
        for unit in &self.units {
            if unit.fixed || unit.fragments() == 1 || !unit.pieces.iter().any(stays) {
                units.push(unit.clone());
                continue;
            }
            // What stays and what does not lie in different segments: no cut is between pieces that touch.
            for pieces in unit.pieces.chunk_by(|a, b| stays(a) == stays(b) && (!stays(a) || a.end() == b.at)) {
                units.push(unit.part(pieces.to_vec(), pieces.first().is_some_and(stays)));
            }
        }
        (units.len() > self.units.len()).then(|| Self { units, ..self.clone() })
    }

    /// The same window, in which fragmented units that are large for the free space are cut into parts. `None` when there are none.
    ///
    /// A unit saves nothing before it is whole, and what steps aside for it splits others meanwhile. On a volume that is nearly full, whose
    /// largest files have a good part of it, no split was permitted any more before one of them was.
    pub(crate) fn with_large_ones_in_parts(&self) -> Option<Self> {
        let most = self.free.total().0 / FREE_FOR_A_PART;
        let is_large = |(_, unit): &(UnitIndex, &Unit)| unit.size > most && unit.fragments() > 1 && !unit.fixed;
        let large: Vec<UnitIndex> = self.units.iter().enumerate().filter(is_large).map(|(index, _)| index).collect();
        (most > 0 && !large.is_empty()).then(|| self.dividing(&large, most))
    }

    /// The same window, in which large units that lie in several places outside the `zone` are cut where the place changes. `None` where that
    /// alone would not save most of the excess.
    ///
    /// File systems take blocks for their trees while a pass moves a large file; its parts go around them, and afterwards they are free.
    /// These parts lie where they may stay, but for a few blocks. As a whole the file would have to move once more.
    pub(crate) fn by_place(&self, zone: &[Extent]) -> Option<Self> {
        let space = outside(&self.segments, zone);
        let mut in_parts: BTreeMap<UnitIndex, Vec<Unit>> =
            self.units.iter().enumerate().filter_map(|(index, unit)| Some((index, unit.by_place(&space)?))).collect();
        let saves = |(index, parts): (&UnitIndex, &Vec<Unit>)| {
            let unit = self.units.get(*index)?;
            Some(unit.fragments().saturating_sub(parts.len() as u64) * unit.owners)
        };
        if in_parts.iter().filter_map(saves).sum::<u64>() * 2 <= self.excess() {
            return None;
        }
        let units = self.units.iter().enumerate();
        let units = units.flat_map(|(index, unit)| in_parts.remove(&index).unwrap_or_else(|| vec![unit.clone()]));
        Some(Self { units: units.collect(), ..self.clone() })
    }

    /// The same window, in which these units, for which there is no place, are [`divided`].
    pub(crate) fn dividing(&self, homeless: &[UnitIndex], most: u64) -> Self {
        Self { units: divided(self.units.clone(), homeless, most), ..self.clone() }
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

/// The units, of which these, for which there is no place, are cut into parts of at most `most` blocks. Of those that are small enough, and of
/// fragments that are larger, each fragment stays where it is.
pub(crate) fn divided(units: Vec<Unit>, homeless: &[UnitIndex], most: u64) -> Vec<Unit> {
    let homeless: BTreeSet<UnitIndex> = homeless.iter().copied().collect();
    let mut all = Vec::with_capacity(units.len() + homeless.len());
    for (index, unit) in units.into_iter().enumerate() {
        if !homeless.contains(&index) {
            all.push(unit);
            continue;
        }
        let stays = unit.size <= most;
        let mut part = Vec::new();
        let mut size = 0;
        for fragment in unit.pieces.chunk_by(|a, b| a.end() == b.at) {
            let length: u64 = fragment.iter().map(|piece| piece.length).sum();
            if size > 0 && (stays || size + length > most) {
                all.push(unit.part(std::mem::take(&mut part), stays || size > most));
                size = 0;
            }
            part.extend_from_slice(fragment);
            size += length;
        }
        all.push(unit.part(part, stays || size > most));
    }
    all
}
