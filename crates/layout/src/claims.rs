//! The blocks that each file claims, and the conflicts between claims.
//!
//! Owns sweeps over claims in ascending order. Pure.

use crate::{Blocks, Extent, PhysicalBlock};

/// Free pieces, asked about ascending places.
struct Sweep<'a> {
    pieces: std::iter::Peekable<std::slice::Iter<'a, Extent>>,
}

impl<'a> Sweep<'a> {
    fn over(free: &'a [Extent]) -> Self {
        Self { pieces: free.iter().peekable() }
    }

    /// Whether some of `extent` is free; it must not start before the one asked about last.
    fn meets(&mut self, extent: Extent) -> bool {
        while self.pieces.next_if(|piece| piece.end() <= extent.start).is_some() {}
        self.pieces.peek().is_some_and(|piece| piece.start < extent.end())
    }
}

/// The claims, ascending, to blocks that are free.
pub(crate) fn to_free_blocks<T>(
    claims: impl Iterator<Item = (Extent, T)>,
    free: &[Extent],
) -> impl Iterator<Item = (Extent, T)> {
    let mut sweep = Sweep::over(free);
    claims.filter(move |(extent, _)| sweep.meets(*extent))
}

/// Who claims a block which another claim or the free space claims too: two dumps of live volumes had such runs, from delayed
/// allocation and from reading while the volume changed.
pub(crate) fn doubtful(claims: impl Iterator<Item = (Extent, u32)>, free: &[Extent], may_share: bool) -> Vec<u32> {
    let mut doubted = Vec::new();
    let mut furthest: Option<(Extent, u32)> = None;
    let mut sweep = Sweep::over(free);
    for (extent, index) in claims {
        if let Some((before, owner)) = furthest
            && before.end() > extent.start
            && !may_share
        {
            doubted.extend([owner, index]);
        }
        if furthest.is_none_or(|(before, _)| extent.end() > before.end()) {
            furthest = Some((extent, index));
        }
        if sweep.meets(extent) {
            doubted.push(index);
        }
    }
    doubted.sort_unstable();
    doubted.dedup();
    doubted
}

/// The blocks that are claimed more than once. The claims must be in ascending order.
pub(crate) fn overlaps(claims: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    let mut reached = PhysicalBlock(0);
    for extent in claims {
        let common = Extent::between(extent.start, extent.end().min(reached));
        match found.last_mut() {
            _ if common.is_empty() => {}
            Some(last) if last.end() >= common.start => {
                *last = Extent::between(last.start, last.end().max(common.end()))
            }
            _ => found.push(common),
        }
        reached = reached.max(extent.end());
    }
    found
}

/// The volume minus two ascending sequences of extents.
pub(crate) fn complement(claimed: impl Iterator<Item = Extent>, free: &[Extent], total: Blocks) -> Vec<Extent> {
    let mut free = free.iter().copied().peekable();
    let mut claimed = claimed.peekable();
    let mut obstacles = Vec::new();
    let mut at = PhysicalBlock(0);
    loop {
        let take_free = match (free.peek(), claimed.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a.start <= b.start,
        };
        let Some(next) = (if take_free { free.next() } else { claimed.next() }) else { break };
        if next.start > at {
            obstacles.push(Extent::between(at, next.start));
        }
        at = at.max(next.end());
    }
    let end = PhysicalBlock(total.0);
    if at < end {
        obstacles.push(Extent::between(at, end));
    }
    obstacles
}
