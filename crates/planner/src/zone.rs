//! Chooses the zone in which the free space is consolidated.

use longrun_layout::{Extent, ExtentSet};

/// As [`choose`], with the share that each region must have: regions that the zone leaves out or serves too little get a
/// place of their own.
pub(crate) fn choose_with_shares(
    segments: &[Extent],
    free: &ExtentSet,
    wanted: u64,
    shares: &[(Extent, u64)],
) -> Vec<Extent> {
    let all: ExtentSet = segments.iter().copied().collect();
    let mut served: Vec<(Extent, Vec<Extent>)> = Vec::new();
    loop {
        let mut others = all.clone();
        served.iter().for_each(|(region, _)| {
            others.remove(*region);
        });
        let reserved: u64 = served.iter().flat_map(|(_, places)| places).map(|place| place.length.0).sum();
        let others: Vec<Extent> = others.iter().collect();
        let zone = choose(&others, free, wanted.saturating_sub(reserved));
        let in_zone: ExtentSet = zone.iter().copied().collect();
        let short = shares.iter().find(|(region, share)| {
            let has: u64 = in_zone.overlapping(*region).map(|e| e.length.0).sum();
            has < *share && served.iter().all(|(known, _)| known != region)
        });
        let Some((region, share)) = short else {
            let mut zone: Vec<Extent> =
                zone.into_iter().chain(served.into_iter().flat_map(|(_, places)| places)).collect();
            zone.sort_unstable();
            return zone;
        };
        let inside: Vec<Extent> = all.overlapping(*region).collect();
        served.push((*region, choose(&inside, free, (*share).min(wanted.saturating_sub(reserved)))));
    }
}

/// Chooses extents of together `wanted` blocks inside the segments: in as few pieces as possible, and with the largest possible one among
/// them; or where the free space is already, if that leaves far less to be cleared away and is not many more pieces.
///
/// Without the latter a volume whose free space had grown by a hundred blocks, beyond the segment in which it lay, had all of it moved
/// elsewhere, and what lay there, too.
pub(crate) fn choose(segments: &[Extent], free: &ExtentSet, wanted: u64) -> Vec<Extent> {
    let map = FreeMap::new(free);
    let mut order: Vec<Extent> = segments.to_vec();
    order.sort_unstable_by_key(|s| (std::cmp::Reverse(s.length), s.start));
    let fewest = map.take(&order, wanted);
    order.sort_by_cached_key(|s| {
        let freest = map.freest(*s, s.length.0.min(wanted)).map_or(0, |(free, _)| free);
        (std::cmp::Reverse(freest), s.start)
    });
    let freest = map.take(&order, wanted);
    let clears_less = map.free_in(&freest) > map.free_in(&fewest) + wanted / CLEARS_LESS;
    if clears_less && freest.len() <= few(fewest.len()) { freest } else { fewest }
}

/// More pieces than the fewest must have this part of the wanted space more free already.
const CLEARS_LESS: u64 = 2;

/// So many pieces are as good as the fewest that are possible.
pub(crate) fn few(fewest: usize) -> usize {
    fewest * 5 / 4 + 2
}

/// Free blocks below any address, by prefix sums.
struct FreeMap {
    pieces: Vec<Extent>,
    /// Free blocks before each piece.
    before: Vec<u64>,
}

impl FreeMap {
    fn new(free: &ExtentSet) -> Self {
        let pieces: Vec<Extent> = free.iter().collect();
        let mut sum = 0;
        let before = pieces
            .iter()
            .map(|p| {
                let here = sum;
                sum += p.length.0;
                here
            })
            .collect();
        Self { pieces, before }
    }

    /// Extents of together `wanted` blocks: whole segments in their order, then a part of another one, where the least has to be cleared
    /// away.
    fn take(&self, segments: &[Extent], wanted: u64) -> Vec<Extent> {
        let mut zone = Vec::new();
        let mut rest = wanted;
        for (at, segment) in segments.iter().enumerate() {
            if rest == 0 {
                break;
            }
            if segment.length.0 <= rest {
                zone.push(*segment);
                rest -= segment.length.0;
                continue;
            }
            // The rest fits into this segment and perhaps into several after it: take the place that is freest already, in the smallest.
            let candidates = segments.iter().skip(at).filter(|s| s.length.0 >= rest);
            let priced = candidates.filter_map(|s| Some((self.freest(*s, rest)?, std::cmp::Reverse(s.length))));
            let place = priced.max_by_key(|((free, place), length)| (*free, *length, place.start));
            zone.extend(place.map(|((_, place), _)| place));
            rest = 0;
        }
        zone.sort_unstable();
        zone
    }

    fn free_in(&self, zone: &[Extent]) -> u64 {
        zone.iter().map(|extent| self.below(extent.end().0) - self.below(extent.start.0)).sum()
    }

    /// Free blocks in [0, block).
    fn below(&self, block: u64) -> u64 {
        let behind = self.pieces.partition_point(|p| p.start.0 < block);
        let Some(at) = behind.checked_sub(1) else { return 0 };
        match (self.pieces.get(at), self.before.get(at)) {
            (Some(piece), Some(before)) => before + (block - piece.start.0).min(piece.length.0),
            _ => 0,
        }
    }

    /// The window of `length` blocks in `segment` with the most free blocks. A best window starts at the segment's
    /// start, ends at its end, or has an edge at the edge of a free piece.
    fn freest(&self, segment: Extent, length: u64) -> Option<(u64, Extent)> {
        let last = segment.end().0.checked_sub(length).filter(|l| *l >= segment.start.0)?;
        let first_piece = self.pieces.partition_point(|p| p.end() <= segment.start);
        let inside = self.pieces.iter().skip(first_piece).take_while(|p| p.start < segment.end());
        let edges = inside.flat_map(|p| [Some(p.start.0), p.end().0.checked_sub(length)]).flatten();
        // Of equals prefer the segment's edges: a middle place leaves two holes to be filled beside it.
        [last, segment.start.0]
            .into_iter()
            .chain(edges.filter(|start| (segment.start.0..=last).contains(start)))
            .map(|start| (self.free_in(&[Extent::new(start, length)]), start))
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(free, start)| (free, Extent::new(start, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_gets_its_share_of_the_zone() {
        let segments = [Extent::new(0, 100), Extent::new(200, 300), Extent::new(600, 150)];
        let free: ExtentSet = [Extent::new(10, 5), Extent::new(300, 40), Extent::new(620, 60)].into_iter().collect();
        let shares = [(Extent::new(0, 150), 10), (Extent::new(150, 300), 5), (Extent::new(550, 300), 20)];
        let zone = choose_with_shares(&segments, &free, 105, &shares);
        assert_eq!(zone.iter().map(|e| e.length.0).sum::<u64>(), 105);
        for (region, share) in shares {
            let has: u64 = zone.iter().filter_map(|e| e.intersection(&region)).map(|e| e.length.0).sum();
            assert!(has >= share, "{region:?} has {has} in {zone:?}");
        }
        assert_eq!(choose_with_shares(&segments, &free, 105, &[]), choose(&segments, &free, 105));
    }

    #[test]
    fn the_zone_is_the_freest_place_that_holds_all_or_the_largest_segments() {
        let segments = [Extent::new(0, 100), Extent::new(200, 300), Extent::new(600, 150)];
        let free: ExtentSet = [Extent::new(10, 5), Extent::new(300, 40), Extent::new(620, 60)].into_iter().collect();
        assert_eq!(choose(&segments, &free, 60), [Extent::new(620, 60)]);
        assert_eq!(choose(&segments, &free, 105), [Extent::new(600, 105)]);
        assert_eq!(choose(&segments, &free, 310), [Extent::new(200, 300), Extent::new(620, 10)]);
        assert_eq!(choose(&segments, &free, 0), []);
    }

    /// Story: the free space filled its segment, and was 105 blocks larger than that after a round.
    #[test]
    fn the_zone_stays_where_the_free_space_is_although_that_is_a_piece_more() {
        let segments = [Extent::new(0, 1000), Extent::new(2000, 900), Extent::new(4000, 300)];
        let free: ExtentSet = [Extent::new(2000, 890), Extent::new(4100, 30)].into_iter().collect();
        assert_eq!(choose(&segments, &free, 920), [Extent::new(2000, 900), Extent::new(4100, 20)]);
        // Not for a little less to clear away.
        let half: ExtentSet = [Extent::new(2000, 430), Extent::new(4100, 30)].into_iter().collect();
        assert_eq!(choose(&segments, &half, 920), [Extent::new(80, 920)]);
    }
}
