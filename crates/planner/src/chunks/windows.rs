//! Consolidates free space: data between many small free pieces moves into the long ones.
//!
//! Owns the choice of the stretch of a chunk that is cleared next. Its data fills the long pieces completely, the
//! largest first and the smallest last, and the stretch becomes a long free piece itself.

use super::room::Room;
use super::{AreaIndex, ChunkLimits, ChunkMap, Portion, Stage, UnitIndex};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// A stretch is worth clearing if it has more free pieces than this.
const FEW: u64 = 3;
/// An area that was cleared before is cleared again only for this fraction of the price: its data may have been
/// written into its holes, and would go there again.
const AGAIN: u64 = 16;
/// The room must exceed the data to be written by this fraction.
const SPARE: u64 = 20;

/// The stretch with the most free pieces per used block, if each piece costs at most `price` and there is room.
pub(super) fn densest(map: &ChunkMap, limits: &ChunkLimits, room: &Room, price: u64) -> Option<Stage> {
    let tenants = map.tenants();
    let best = |price, again| Search { map, limits, room, tenants: &tenants, price, again }.best();
    let (promises, range) = best(price, false).or_else(|| best(price / AGAIN, true))?;
    let areas: Vec<AreaIndex> = range.clone().map(|at| AreaIndex(at as u32)).collect();
    let mut room = room.clone();
    areas.iter().for_each(|area| room.close(map, *area));
    let units: BTreeSet<UnitIndex> =
        range.filter_map(|at| tenants.get(at)).flatten().map(|(index, _)| *index).collect();
    let mut units: Vec<(Reverse<u64>, UnitIndex)> =
        units.into_iter().filter_map(|index| Some((Reverse(map.unit(index)?.written.0), index))).collect();
    units.sort_unstable();
    let mut spent = 0;
    units.retain(|(length, _)| {
        let fits = limits.affords(spent + length.0) && room.take(length.0);
        spent += if fits { length.0 } else { 0 };
        fits
    });
    let portions: Vec<Portion> = units.into_iter().map(|(_, index)| Portion::whole(index)).collect();
    (!portions.is_empty()).then_some(Stage::Gather { portions, clears: areas, promises })
}

struct Search<'a> {
    map: &'a ChunkMap,
    limits: &'a ChunkLimits,
    room: &'a Room,
    /// For each area the units that have blocks in it, and how many.
    tenants: &'a [Vec<(UnitIndex, u64)>],
    /// The permitted writing per removed piece.
    price: u64,
    /// Includes areas that were cleared before.
    again: bool,
}

impl Search<'_> {
    fn held(&self, at: usize) -> u64 {
        self.tenants.get(at).into_iter().flatten().map(|(_, blocks)| blocks).sum()
    }

    fn pieces(&self, at: usize) -> u64 {
        self.map.areas.get(at).map_or(0, |area| area.free.len() as u64)
    }

    /// Slides a window over the areas, as long as the room allows.
    fn best(&self) -> Option<(u64, Range<usize>)> {
        let mut best: Option<(u128, u64, Range<usize>)> = None;
        let (mut start, mut used, mut pieces, mut open) = (0, 0, 0, self.room.clone());
        for (end, area) in self.map.areas.iter().enumerate() {
            // What stays would break the stretch up.
            let barred = area.used.0 > self.held(end) || area.tidied && !self.again;
            let apart = self.map.areas.get(start).is_some_and(|first| first.chunk != area.chunk);
            if apart || barred {
                (start, used, pieces, open) = (end + usize::from(barred), 0, 0, self.room.clone());
            }
            if barred {
                continue;
            }
            used += self.held(end);
            pieces += self.pieces(end);
            open.close(self.map, AreaIndex(end as u32));
            while start <= end && (used + used / SPARE > open.total() || !self.limits.affords(used)) {
                used -= self.held(start);
                pieces -= self.pieces(start);
                open.open(self.map, AreaIndex(start as u32));
                start += 1;
            }
            if pieces > FEW && used > 0 && used <= (pieces - 1) * self.price {
                // It becomes one piece.
                let score = u128::from(pieces - 1) * (1 << 32) / u128::from(used);
                if best.as_ref().is_none_or(|(most, _, _)| score > *most) {
                    best = Some((score, pieces - 1, start..end + 1));
                }
            }
        }
        best.map(|(_, promises, range)| (promises, range))
    }
}
