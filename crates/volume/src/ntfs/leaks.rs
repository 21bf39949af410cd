//! Leaks: clusters and file records that are marked as in use, and that nothing has. A crash leaves them, and programs that
//! were ended.
//!
//! Owns which ones they are, and whether that is certain. Never writes.

use longrun_layout::{Blocks, Extent, ExtentSet, PhysicalBlock};

/// What a scan has found to be leaked.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaks {
    clusters: ExtentSet,
    records: Vec<u64>,
    /// Why a file may have some of it all the same.
    doubt: Option<&'static str>,
}

impl Leaks {
    /// Notes a record that is marked as in use, and is not.
    pub(super) fn add_record(&mut self, number: u64) {
        self.records.push(number);
    }

    /// Notes that not all that files have is known; the first reason stands.
    pub(super) fn doubt(&mut self, why: &'static str) {
        self.doubt.get_or_insert(why);
    }

    /// Finds the clusters among `clusters` that are neither claimed by a file (first and count of each range, ascending,
    /// disjoint) nor free.
    pub(super) fn find_clusters(&mut self, claims: &[(u64, u64)], free: &[Extent], clusters: u64) {
        let (mut claims, mut free) = (claims.iter().copied().peekable(), free.iter().peekable());
        let mut at = 0;
        loop {
            let is_claim = match (claims.peek(), free.peek()) {
                (Some((claim, _)), Some(piece)) => *claim < piece.start.0,
                (claim, _) => claim.is_some(),
            };
            let next = if is_claim { claims.next() } else { free.next().map(|piece| (piece.start.0, piece.length.0)) };
            let (start, length) = next.unwrap_or((clusters, 0));
            if start > at {
                self.clusters.insert(Extent { start: PhysicalBlock(at), length: Blocks(start - at) });
            }
            at = at.max(start + length);
            if next.is_none() {
                return;
            }
        }
    }

    /// All leaked clusters.
    pub(super) fn clusters(&self) -> &ExtentSet {
        &self.clusters
    }

    /// Why they stay in use, when they do.
    pub(super) fn why_kept(&self) -> Option<&'static str> {
        self.doubt.filter(|_| !self.clusters.is_empty() || !self.records.is_empty())
    }

    /// The clusters and records that can be freed; none when there is a doubt.
    pub(super) fn to_free(&self) -> Option<(&ExtentSet, &[u64])> {
        self.doubt.is_none().then_some((&self.clusters, &self.records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_cluster_is_claimed_or_free_or_leaked(kinds in proptest::collection::vec(0u8..3, 0..200)) {
            let of = |kind: u8| kinds.iter().enumerate().filter(move |(_, k)| **k == kind).map(|(at, _)| at as u64);
            // Ranges of one cluster each do, and longer ones where they touch.
            let claims: Vec<_> = of(0).map(|at| (at, 1)).collect();
            let free: ExtentSet = of(1).map(|at| Extent::new(at, 1)).collect();
            let mut leaks = Leaks::default();
            leaks.find_clusters(&claims, &free.iter().collect::<Vec<_>>(), kinds.len() as u64);
            let expected: ExtentSet = of(2).map(|at| Extent::new(at, 1)).collect();
            prop_assert_eq!(leaks.clusters(), &expected);
        }
    }

    #[test]
    fn a_doubt_keeps_everything() {
        let mut leaks = Leaks::default();
        leaks.doubt("something is not known");
        assert_eq!(leaks.why_kept(), None, "there is nothing to keep");
        leaks.add_record(70);
        leaks.find_clusters(&[(0, 3)], &[Extent::new(5, 5)], 10);
        assert_eq!(leaks.clusters().total(), Blocks(2));
        assert!(leaks.to_free().is_none());
        assert_eq!(leaks.why_kept(), Some("something is not known"));
    }
}
