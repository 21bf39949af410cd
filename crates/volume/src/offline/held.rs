//! The free blocks that a run holds.
//!
//! Nobody else has the volume meanwhile, so that holding a block is only a note in memory.

use longrun_layout::{Blocks, Extent, ExtentSet};

/// Blocks that are held, and those of them that files have left since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Held {
    owned: ExtentSet,
    /// Until the commit a crash finds the files there.
    vacated: ExtentSet,
}

impl Held {
    /// Holds what of `wanted` is in `free` and not held yet.
    pub(crate) fn capture(&mut self, free: &ExtentSet, wanted: &ExtentSet) -> ExtentSet {
        let mut got: ExtentSet = wanted.iter().flat_map(|part| free.overlapping(part)).collect();
        let taken: Vec<Extent> =
            wanted.iter().flat_map(|part| self.owned.overlapping(part).chain(self.vacated.overlapping(part))).collect();
        taken.into_iter().for_each(|part| _ = got.remove(part));
        self.owned.extend(got.iter());
        got
    }

    /// Holds these no longer.
    pub(crate) fn release(&mut self, extents: &ExtentSet) {
        extents.iter().for_each(|extent| _ = self.owned.remove(extent));
    }

    /// Everything that is held.
    pub(crate) fn owned(&self) -> &ExtentSet {
        &self.owned
    }

    /// Whether data may be written to `place`.
    pub(crate) fn may_be_written(&self, place: Extent) -> bool {
        self.owned.covers(place) && self.vacated.overlapping(place).next().is_none()
    }

    /// Whether nobody is going to write to `place`: it can be taken for something else.
    pub(crate) fn leaves(&self, place: Extent) -> bool {
        self.owned.overlapping(place).next().is_none() && self.vacated.overlapping(place).next().is_none()
    }

    /// A file has `place` now, and has left `sources`.
    pub(crate) fn exchanged(&mut self, place: Extent, sources: &[Extent]) {
        self.owned.remove(place);
        self.owned.extend(sources.iter().copied());
        self.vacated.extend(sources.iter().copied());
    }

    /// A file that is rewritten has left `sources`, which are not held: nothing may be written there before the commit.
    pub(crate) fn left(&mut self, sources: &[Extent]) {
        self.vacated.extend(sources.iter().copied());
    }

    /// What of `free` anything may be written to.
    pub(crate) fn writable(&self, free: &ExtentSet) -> ExtentSet {
        let mut writable = free.clone();
        self.owned.iter().chain(self.vacated.iter()).for_each(|extent| _ = writable.remove(extent));
        writable
    }

    /// What was left is free.
    pub(crate) fn committed(&mut self) {
        self.vacated = ExtentSet::new();
    }

    /// What of `free` is not held.
    pub(crate) fn unclaimed(&self, free: Blocks) -> Blocks {
        free.saturating_sub(self.owned.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_left_is_held_and_not_written_to_before_the_commit() {
        let free: ExtentSet = [Extent::new(10, 10)].into_iter().collect();
        let mut held = Held::default();
        let got = held.capture(&free, &[Extent::new(5, 10)].into_iter().collect());
        assert_eq!(got.iter().collect::<Vec<_>>(), [Extent::new(10, 5)]);
        assert!(held.may_be_written(Extent::new(10, 5)) && !held.may_be_written(Extent::new(10, 6)));
        held.exchanged(Extent::new(10, 5), &[Extent::new(30, 5)]);
        assert!(held.owned().covers(Extent::new(30, 5)) && !held.may_be_written(Extent::new(30, 5)));
        assert!(held.leaves(Extent::new(15, 5)) && !held.leaves(Extent::new(30, 1)));
        let free: ExtentSet = [Extent::new(15, 5), Extent::new(30, 5)].into_iter().collect();
        assert!(held.capture(&free, &[Extent::new(30, 5)].into_iter().collect()).is_empty());
        held.committed();
        assert!(held.may_be_written(Extent::new(30, 5)));
        assert_eq!(held.unclaimed(Blocks(10)), Blocks(5));
    }
}
