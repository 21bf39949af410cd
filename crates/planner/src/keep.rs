//! The keep set: the units that stay where they are, or are completed around their largest part.

use crate::unit::{Unit, UnitIndex};
use longrun_layout::{Extent, ExtentSet};

/// A place that a unit could keep.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    start: u64,
    end: u64,
    weight: u64,
    unit: UnitIndex,
}

/// Chooses non-overlapping places inside `space` with the most blocks already in place (weighted interval scheduling).
/// A fragmented unit has one candidate for the place in which most of it would stay.
pub(crate) fn keep(units: &[Unit], space: &ExtentSet) -> Vec<(UnitIndex, u64)> {
    let mut candidates: Vec<Candidate> = Vec::with_capacity(units.len());
    for (unit, u) in units.iter().enumerate() {
        let start = if u.fixed || u.fragments() == 1 { u.first_block().0 } else { anchor(u) };
        let weight = if u.fixed { u.size.saturating_mul(1 << 20) } else { u.in_place(start) };
        let fits = u.size > 0 && space.covers(Extent::new(start, u.size));
        // Below a quarter in place an anchor costs more freedom than it saves bytes.
        if fits && weight * 4 >= u.size && !u.slides(start) {
            candidates.push(Candidate { start, end: start + u.size, weight, unit });
        }
    }
    candidates.sort_unstable_by_key(|c| (c.end, c.start, c.unit));
    let mut best: Vec<u64> = vec![0; candidates.len() + 1];
    let mut before: Vec<usize> = vec![0; candidates.len()];
    for (i, c) in candidates.iter().enumerate() {
        let compatible = candidates.partition_point(|other| other.end <= c.start);
        let with = best.get(compatible).copied().unwrap_or(0) + c.weight;
        let without = best.get(i).copied().unwrap_or(0);
        if let Some(slot) = best.get_mut(i + 1) {
            *slot = with.max(without);
        }
        if let Some(slot) = before.get_mut(i) {
            *slot = compatible;
        }
    }
    let mut kept = Vec::new();
    let mut i = candidates.len();
    while i > 0 {
        if best.get(i) == best.get(i - 1) {
            i -= 1;
        } else if let (Some(c), Some(compatible)) = (candidates.get(i - 1), before.get(i - 1)) {
            kept.push((c.unit, c.start));
            i = *compatible;
        }
    }
    kept.reverse();
    kept
}

/// The start that leaves the most blocks of a fragmented unit in place.
fn anchor(unit: &Unit) -> u64 {
    // Of the places with as many blocks, the first.
    unit.places().into_iter().rev().max_by_key(|(_, blocks)| *blocks).map_or(0, |(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Piece;
    use longrun_layout::FileIndex;
    use proptest::prelude::*;

    /// The best weight of non-overlapping candidates, by trying all subsets.
    fn brute(candidates: &[(u64, u64, u64)]) -> u64 {
        let fits = |mask: u32| {
            let chosen: Vec<_> = (0..candidates.len()).filter(|i| mask >> i & 1 == 1).map(|i| candidates[i]).collect();
            let apart = |a: &(u64, u64, u64), b: &(u64, u64, u64)| a.1 <= b.0 || b.1 <= a.0;
            let ok = (0..chosen.len()).all(|i| (i + 1..chosen.len()).all(|j| apart(&chosen[i], &chosen[j])));
            ok.then(|| chosen.iter().map(|c| c.2).sum::<u64>())
        };
        (0..1u32 << candidates.len()).filter_map(fits).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_keep_set_is_the_heaviest(pieces in prop::collection::vec((0u64..60, 1u64..9, 0u64..60), 0..10)) {
            // Each unit has one long part in place and, perhaps, one block elsewhere.
            let units: Vec<Unit> = pieces.iter().enumerate().map(|(i, (at, length, other))| {
                let mut parts = vec![Piece { logical: 0, at: 100 + at, length: *length }];
                if other % 2 == 0 {
                    parts.push(Piece { logical: *length, at: 1000 + other, length: 1 });
                }
                Unit::new(FileIndex(i as u32), 0, parts)
            }).collect();
            let space: ExtentSet = [Extent::new(100, 64)].into_iter().collect();
            let kept = keep(&units, &space);
            let candidates: Vec<(u64, u64, u64)> = units.iter()
                .map(|u| (u.pieces[0].at, u.pieces[0].at + u.size, u.pieces[0].length))
                .filter(|c| c.1 <= 164 && c.2 * 4 >= c.1 - c.0)
                .collect();
            let weight: u64 = kept.iter().map(|(u, start)| units[*u].in_place(*start)).sum();
            prop_assert_eq!(weight, brute(&candidates));
        }
    }
}
