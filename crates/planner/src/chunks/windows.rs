//! Free space brought together: what lies between many small free pieces goes to the long ones.
//!
//! Owns which stretch of a chunk is cleared next. What was in it fills the long pieces to the end, the largest first and the
//! smallest last, and the stretch becomes a long piece itself.

use super::room::Room;
use super::{AreaIndex, ChunkLimits, ChunkMap, Portion, Stage, UnitIndex};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// A stretch is worth while with more free pieces than these.
const FEW: u64 = 3;
/// What was cleared before is cleared again for this part of the price only: what lay in it may have come from its holes, and
/// would go there again.
const AGAIN: u64 = 16;
/// This much more room than what is written is wanted.
const SPARE: u64 = 20;

/// The stretch with most free pieces for what it holds, where each costs no more than `price`, as far as there is room.
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
    /// Which units have something in each area, and how much.
    tenants: &'a [Vec<(UnitIndex, u64)>],
    /// What may be written for each piece that goes.
    price: u64,
    /// Also what was cleared before.
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
