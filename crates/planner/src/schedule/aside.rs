//! Units whose place does not become available get another place, or move aside.
//!
//! Owns the breaking of cycles. Never moves a unit that can continue by itself.

use super::{Anywhere, Owner, Scheduler};
use crate::plan::Why;
use crate::traveller::{Traveller, piece_length, rank};
use longrun_layout::Extent;
use std::collections::BTreeSet;

impl Anywhere {
    /// Whether a unit may settle `there` instead of `before`; takes note of it if so.
    fn permits(&mut self, before: Extent, there: Extent) -> bool {
        let pieces = self.outcome.pieces();
        self.outcome.insert(before);
        self.outcome.remove(there);
        let permitted = self.outcome.pieces() <= self.most.max(pieces);
        if !permitted {
            self.outcome.insert(there);
            self.outcome.remove(before);
        }
        permitted
    }
}

impl Scheduler<'_> {
    /// Gives units that wait for their place another one that is free already, when it does not matter to them where they
    /// end up: a step aside would move them twice. True when there was one.
    pub(super) fn settle_elsewhere(&mut self) -> bool {
        if self.anywhere.is_none() {
            return false;
        }
        let waits = |(_, t): &(usize, &Traveller)| !t.done && t.waiting > 0;
        let waiting = self.travellers.iter().enumerate().filter(waits);
        let mut by_rank: Vec<(u64, u64, usize)> =
            waiting.map(|(index, t)| (rank(t.gain, t.size), t.target, index)).collect();
        by_rank.sort_unstable();
        let mut settled = false;
        for (_, target, index) in by_rank {
            let Some(t) = self.travellers.get(index).filter(|t| t.away == t.size) else { continue };
            let Some(hole) = self.spare.best_fit(t.size, |block| self.regions.is_open(block)) else { continue };
            let Some(anywhere) = &mut self.anywhere else { break };
            let (before, there) = (t.place(), Extent::new(hole.start.0, t.size));
            if !anywhere.permits(before, there) {
                continue;
            }
            let Some(t) = self.travellers.get_mut(index) else { continue };
            t.target = hole.start.0;
            let place = t.place();
            self.fresh.insert(index, vec![place]);
            self.targets.remove(&target);
            self.targets.insert(hole.start.0, index);
            self.spare.remove(place);
            let left: Vec<Extent> = self.available.overlapping(before).collect();
            for part in left {
                let waiting = self.travellers_at(part);
                self.set_free(part, &waiting);
            }
            self.recount(index);
            settled = true;
        }
        settled
    }

    /// Breaks cycles and widens the front: what blocks the travellers with the least in their way steps aside into free
    /// space that no one has as a target.
    pub(super) fn step_aside(&mut self) {
        let blocked = self.travellers.iter().enumerate().filter(|(_, t)| !t.done && t.waiting > 0);
        let mut by_wait: Vec<(u64, usize)> = blocked.map(|(i, t)| (t.waiting, i)).collect();
        by_wait.sort_unstable();
        let mut moved = BTreeSet::new();
        let mut failures = 0;
        for (_, index) in by_wait {
            if self.in_epoch >= self.limits.slow() || failures > 64 {
                break;
            }
            let Some(t) = self.travellers.get(index) else { continue };
            let place = t.place();
            let blockers: Vec<Owner> = self.owners_at(place).map(|(_, owner)| owner).collect();
            // Each unit once an epoch.
            for owner in blockers.iter().rev().filter(|owner| !moved.contains(&owner.traveller)) {
                failures += u32::from(self.move_aside(*owner, place));
            }
            moved.extend(blockers.iter().map(|owner| owner.traveller));
        }
    }

    /// Moves a piece, or the part of it that lies in `place`, into spare space. True when it had to stay.
    fn move_aside(&mut self, owner: Owner, place: Extent) -> bool {
        let index = owner.traveller;
        let Some(t) = self.travellers.get(index) else { return true };
        let at = t.piece_at(owner.offset);
        let Some(&(_, piece)) = t.pieces.get(at) else { return true };
        let whole = Extent::new(piece.at, piece.length);
        let Some(inside) = whole.intersection(&place) else { return true };
        // The largest stretch of spare space: what steps aside together stays together.
        let Some(room) = self.largest_spare() else { return true };
        let part = if piece.length <= room.length.0 && piece.length <= 16 * inside.length.0 { whole } else { inside };
        let length = part.length.0.min(room.length.0);
        if !self.affords_aside(length) || !self.regions.allow(piece.at, room.start.0, length) {
            return true;
        }
        // Where no split is permitted, the whole piece may go. What is to move by a little less than its own length is in its own way, by a
        // block or two, and a plan for the last 28 free pieces of a volume waited for that.
        let may_go_whole = piece.length <= room.length.0
            && self.affords_aside(piece.length)
            && self.regions.allow(piece.at, room.start.0, piece.length);
        let part = self
            .split_off(index, at, (part.start.0 - piece.at, length), room.start.0, 2)
            .or_else(|| may_go_whole.then(|| self.split_off(index, at, (0, piece.length), room.start.0, 2)).flatten());
        let Some(part) = part else { return self.park(index, room) };
        self.aside += self.travellers.get(index).map_or(0, |t| piece_length(&t.pieces, part));
        self.send(index, part, room.start.0, Why::StepAside);
        false
    }

    pub(super) fn affords_aside(&self, length: u64) -> bool {
        self.aside + length <= self.limits.aside && self.moved + 2 * length <= self.limits.budget
    }

    /// Moves a whole unit into spare space: its fragments become one, which makes room for the splits of others. True
    /// when it had to stay.
    fn park(&mut self, index: usize, room: Extent) -> bool {
        let Some(t) = self.travellers.get(index) else { return true };
        let fragmented = t.pieces.windows(2).any(|w| matches!(w, [(_, a), (_, b)] if a.end() != b.at));
        let crowded = self.regions.room(room.start.0) < t.size;
        if !fragmented || crowded || t.size > room.length.0 || !self.affords_aside(t.size) {
            return true;
        }
        let (size, pieces) = (t.size, t.pieces.len());
        let mut place = room.start.0;
        for piece in 0..pieces {
            let length = self.travellers.get(index).map_or(0, |t| piece_length(&t.pieces, piece));
            self.send(index, piece, place, Why::StepAside);
            place += length;
        }
        self.aside += size;
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Why;
    use crate::regions::Regions;
    use crate::schedule::{Limits, Scheduler};
    use crate::target::Target;
    use crate::unit::{Piece, Unit};
    use longrun_layout::{Extent, ExtentSet, FileIndex};

    #[test]
    fn a_unit_in_its_own_way_steps_aside_whole_where_it_may_not_be_split() {
        let units = [Unit::new(FileIndex(0), 0, vec![Piece { logical: 0, at: 19, length: 140 }])];
        let target = Target { starts: [(0, 158)].into_iter().collect() };
        let free: ExtentSet = [Extent::new(159, 139), Extent::new(1000, 500)].into_iter().collect();
        let limits = Limits { epoch: 4096, aside: 1000, budget: u64::MAX };
        let regions = Regions::new(&[], &free);
        let scheduled = Scheduler::new(&units, &target, &free, &regions, limits, |_| Why::FillGap).run();
        assert!(scheduled.complete);
        assert_eq!(scheduled.free.iter().collect::<Vec<_>>(), [Extent::new(19, 139), Extent::new(1000, 500)]);
        assert_eq!((scheduled.moved, scheduled.excess), (280, 0));
    }
}
