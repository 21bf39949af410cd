//! Claims: blocks that the engine treats as owned.
//!
//! Owns a list, but no blocks. On XFS blocks need not be held, because an allocation can choose its place: a claim is
//! the assumption that the block is still free then. Others can take the block before, and the allocation detects this.

use longrun_layout::{Extent, ExtentSet};

/// The claimed blocks.
#[derive(Debug, Default)]
pub(super) struct Claims(ExtentSet);

impl Claims {
    /// Claims the blocks of `wanted` that are in `free`; returns those.
    pub(super) fn stake(&mut self, wanted: &ExtentSet, free: &ExtentSet) -> ExtentSet {
        let got: ExtentSet = wanted.iter().flat_map(|part| free.overlapping(part).collect::<Vec<_>>()).collect();
        self.0.extend(got.iter());
        got
    }

    /// A file has taken `target`, and left `vacated`.
    pub(super) fn exchanged(&mut self, target: Extent, vacated: &[Extent]) {
        self.0.remove(target);
        self.0.extend(vacated.iter().copied());
    }

    /// Gives claims up.
    pub(super) fn drop(&mut self, extents: &ExtentSet) {
        extents.iter().for_each(|extent| {
            self.0.remove(extent);
        });
    }

    /// Whether all of `extent` is claimed.
    pub(super) fn covers(&self, extent: Extent) -> bool {
        self.0.covers(extent)
    }

    /// Gives up what another process has by now.
    pub(super) fn keep_free(&mut self, free: &ExtentSet) {
        self.0 = self.0.iter().flat_map(|part| free.overlapping(part).collect::<Vec<_>>()).collect();
    }

    /// All of them.
    pub(super) fn all(&self) -> &ExtentSet {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(extents: &[(u64, u64)]) -> ExtentSet {
        extents.iter().map(|(start, length)| Extent::new(*start, *length)).collect()
    }

    #[test]
    fn a_claim_follows_what_files_take_and_leave() {
        let mut claims = Claims::default();
        assert_eq!(claims.stake(&set(&[(10, 20), (50, 5)]), &set(&[(0, 20), (52, 100)])), set(&[(10, 10), (52, 3)]));
        claims.exchanged(Extent::new(10, 5), &[Extent::new(70, 5)]);
        assert!(claims.covers(Extent::new(15, 5)) && claims.covers(Extent::new(70, 5)));
        assert!(!claims.covers(Extent::new(14, 2)));
        claims.keep_free(&set(&[(70, 2), (16, 1)]));
        assert_eq!(*claims.all(), set(&[(16, 1), (70, 2)]));
        claims.drop(&set(&[(0, 50)]));
        assert_eq!(*claims.all(), set(&[(70, 2)]));
    }
}
