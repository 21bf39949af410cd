//! The states of the space that a pass owns: captured and AVAILABLE, vacated and PENDING, released. Owns safety rule 2.
//! Never accesses a volume.

use longrun_layout::{Extent, ExtentSet};

/// What the engine knows of the space that it holds. A block is in at most one of `available` and `pending`.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    available: ExtentSet,
    pending: ExtentSet,
    /// The part of `pending` and `available` that no one will use: released after the next barrier.
    surplus: ExtentSet,
    /// Released since the last barrier: the file system does not hand it out before the commit.
    released: ExtentSet,
    /// Taken from us or given back although it may be a target later: to be captured again.
    lost: ExtentSet,
}

/// Whether a target may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// All of it.
    Available,
    /// After a barrier.
    AfterBarrier,
    /// No: at least one block is not ours.
    NotOurs,
}

impl Holdings {
    pub(super) fn standing(&self, target: Extent) -> Standing {
        if self.available.covers(target) {
            return Standing::Available;
        }
        let ours = self.available.gaps(target).into_iter().all(|gap| self.pending.covers(gap));
        if ours { Standing::AfterBarrier } else { Standing::NotOurs }
    }

    /// The parts of `wanted` that are not held.
    pub(super) fn missing(&self, wanted: Extent) -> Vec<Extent> {
        self.available.gaps(wanted).into_iter().flat_map(|gap| self.pending.gaps(gap)).collect()
    }

    /// The same of several places.
    pub(super) fn missing_of(&self, places: &[Extent]) -> ExtentSet {
        places.iter().flat_map(|place| self.missing(*place)).collect()
    }

    pub(super) fn captured(&mut self, got: &ExtentSet) {
        for extent in got.iter() {
            // On XFS a claim may name what was vacated: that stays PENDING.
            self.available.extend(self.pending.gaps(extent));
            self.lost.remove(extent);
        }
    }

    /// An exchange took `target` and vacated other blocks, which are PENDING whatever they were believed to be.
    pub(super) fn exchanged(&mut self, target: Extent, vacated: &[Extent]) {
        for set in [&mut self.available, &mut self.pending, &mut self.surplus] {
            set.remove(target);
        }
        for extent in vacated {
            self.available.remove(*extent);
            self.pending.insert(*extent);
        }
    }

    /// Held blocks that will not be a target any more.
    pub(super) fn not_needed(&mut self, extent: Extent) {
        for set in [&self.available, &self.pending] {
            self.surplus.extend(set.overlapping(extent));
        }
    }

    /// Held blocks are to be a target after all.
    pub(super) fn keep(&mut self, extent: Extent) {
        self.surplus.remove(extent);
    }

    /// A new batch begins: everything held but what it needs is surplus.
    pub(super) fn begin_batch(&mut self, needed: &ExtentSet) {
        self.keep_only(needed);
        self.lost = ExtentSet::new();
    }

    /// Everything held but `needed` is surplus for now; it may be captured again when it is to be used.
    pub(super) fn keep_only(&mut self, needed: &ExtentSet) {
        self.surplus = self.held();
        for extent in needed.iter() {
            self.surplus.remove(extent);
        }
        self.lost.extend(self.surplus.iter());
    }

    /// A barrier has succeeded: PENDING becomes AVAILABLE. Returns what is to be released now.
    pub(super) fn committed(&mut self) -> ExtentSet {
        self.available.extend(std::mem::take(&mut self.pending).iter());
        self.released = ExtentSet::new();
        let surplus = std::mem::take(&mut self.surplus);
        for extent in surplus.iter() {
            self.available.remove(extent);
        }
        surplus
    }

    /// Blocks were given back.
    pub(super) fn released(&mut self, extents: &ExtentSet) {
        self.released.extend(extents.iter());
    }

    /// Everything is being given back under pressure. Returns what can go at once.
    pub(super) fn all_lost(&mut self) -> ExtentSet {
        self.lost.extend(self.held().iter());
        self.pending = ExtentSet::new();
        self.surplus = ExtentSet::new();
        std::mem::take(&mut self.available)
    }

    /// Compares with what the file system says that we own; what it does not know is lost, what we did not know is
    /// PENDING.
    pub(super) fn reconcile(&mut self, owned: &ExtentSet) {
        for held in self.held().iter() {
            for gone in owned.gaps(held) {
                for set in [&mut self.available, &mut self.pending, &mut self.surplus] {
                    set.remove(gone);
                }
                self.lost.insert(gone);
            }
        }
        for extent in owned.iter() {
            for unknown in self.missing(extent) {
                self.pending.insert(unknown);
                self.surplus.insert(unknown);
            }
        }
    }

    /// Whether a part of `wanted` cannot be captured before a barrier.
    pub(super) fn awaits_commit(&self, wanted: &ExtentSet) -> bool {
        wanted.iter().any(|e| self.released.overlapping(e).next().is_some())
    }

    /// Whether anything was given back since the last barrier.
    pub(super) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    pub(super) fn is_lost(&self, extent: Extent) -> bool {
        self.lost.overlapping(extent).next().is_some()
    }

    pub(super) fn lost(&self) -> &ExtentSet {
        &self.lost
    }

    /// Whether a barrier would change anything.
    pub(super) fn awaits_barrier(&self) -> bool {
        !(self.pending.is_empty() && self.surplus.is_empty())
    }

    pub(super) fn held(&self) -> ExtentSet {
        self.available.iter().chain(self.pending.iter()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: refuges were captured that the pass had vacated. On XFS, where a claim is granted for whatever is free, they counted
    /// as AVAILABLE before the log was written.
    #[test]
    fn what_was_vacated_stays_pending_when_it_is_captured_again() {
        let mut holdings = Holdings::default();
        holdings.captured(&[Extent::new(10, 10)].into_iter().collect());
        holdings.exchanged(Extent::new(10, 4), &[Extent::new(50, 4)]);
        holdings.captured(&[Extent::new(48, 8)].into_iter().collect());
        assert_eq!(holdings.standing(Extent::new(48, 2)), Standing::Available);
        assert_eq!(holdings.standing(Extent::new(50, 4)), Standing::AfterBarrier);
        holdings.committed();
        assert_eq!(holdings.standing(Extent::new(48, 8)), Standing::Available);
    }
}
