//! A working area: where free space is scattered in small pieces, a part of the zone is emptied first.
//!
//! On a volume that is nearly full, what steps aside finds no room: the free space outside the zone is the place of others,
//! and of the zone next to nothing is free yet. The plan then came to an end with most of its moves undone, or split files
//! until no more splits were permitted. So the units in a part of the zone go to places that others will need later: they
//! move twice, but from then on whatever is in the way of others can step aside in one piece.

use super::{Owner, Scheduler};
use crate::board::Board;
use crate::plan::Why;
use crate::traveller::rank;
use crate::zone;
use longrun_layout::{Blocks, Extent, ExtentSet};

/// Room for steps aside is short when no piece of it has this part of an epoch.
const SHORT: u64 = 4;

/// So many fragments are saved before the first working area, which splits files.
const SPLITS: i64 = 200;

/// The size of the pocket that is emptied, as a part of an epoch. No unit is sent to it, so that a pass can move files there whose
/// target places were taken meanwhile.
const POCKET: u64 = 8;

/// The part of the free space that is left for the same purpose from the beginning. The file system takes single blocks for itself:
/// on a volume of 96 %, 25 of 9,500 files lost their places, and 179 others waited for them, until the plan was given up.
const KEPT: u64 = 64;

/// The size of a working area, as a part of an epoch.
const AREA: u64 = 8;

impl Scheduler<'_> {
    /// With working areas in the part of the volume that shall be free in the end, where no unit has its place, and which is not
    /// the pocket.
    pub(crate) fn with_room_in(mut self, zone: &[Extent]) -> Self {
        self.zone = self.without_targets(zone);
        for kept in self.pocket.iter() {
            self.zone.remove(kept);
        }
        self
    }

    /// With a pocket of what is free already in that part.
    pub(crate) fn with_pocket_in(mut self, zone: &[Extent]) -> Self {
        let area = self.without_targets(zone);
        let free: ExtentSet = area.iter().flat_map(|part| self.available.overlapping(part)).collect();
        self.pocket = free.largest_up_to(Blocks(self.available.total().0 / KEPT)).collect();
        self.pocket.iter().for_each(|kept| self.spare.remove(kept));
        self
    }

    fn without_targets(&self, zone: &[Extent]) -> ExtentSet {
        let mut area: ExtentSet = zone.iter().copied().collect();
        for t in &self.travellers {
            area.remove(t.place());
        }
        area
    }

    /// Empties the pocket before anything else, with a few files put together for the splits that this takes.
    pub(super) fn begin_with_room(&mut self) {
        if !self.lacks_room() {
            return;
        }
        let crowded = self.move_ready_while(|scheduler, next| scheduler.excess > -SPLITS && next < rank(0, 1));
        self.ready.extend(crowded);
        if let Some(pocket) = self.choose_area(self.limits.epoch / POCKET) {
            self.empty(pocket);
            self.zone.remove(pocket);
            self.pocket.insert(pocket);
            self.spare.remove(pocket);
            self.barrier();
        }
    }

    /// Whether there is too little room for steps aside.
    fn lacks_room(&self) -> bool {
        let widest = || self.largest_spare().map_or(0, |room| room.length.0);
        !self.zone.is_empty() && widest() < self.limits.epoch / AREA / SHORT
    }

    /// Empties a part of the zone when there is too little room for steps aside. True when something moved.
    pub(super) fn open_area(&mut self) -> bool {
        let area = self.lacks_room().then(|| self.choose_area(self.limits.epoch / AREA)).flatten();
        area.is_some_and(|area| self.empty(area))
    }

    /// Moves what lies in `area` into holes. True when something moved.
    fn empty(&mut self, area: Extent) -> bool {
        let mut free = self.available.clone();
        for kept in self.pocket.iter().chain([area]) {
            free.remove(kept);
        }
        let mut holes = Board::new(self.regions.open(free).iter());
        let moved = self.moved;
        let inside: Vec<(Extent, Owner)> = self.owners_at(area).collect();
        for (part, owner) in inside {
            if !self.vacate(owner.traveller, part, &mut holes) {
                break;
            }
        }
        self.moved > moved
    }

    /// The part of the zone of about `wanted` blocks from which least has to leave, and from which all can.
    fn choose_area(&self, wanted: u64) -> Option<Extent> {
        let pending: ExtentSet = self.pending.iter().copied().collect();
        let known = |part: Extent| {
            let owned = self.owners_at(part).map(|(owned, _)| owned);
            self.available.overlapping(part).chain(pending.overlapping(part)).chain(owned).collect::<Vec<_>>()
        };
        let known: ExtentSet = self.zone.iter().flat_map(known).collect();
        let runs: Vec<Extent> = self.zone.iter().flat_map(|part| known.overlapping(part)).collect();
        zone::choose(&runs, &self.available, wanted).into_iter().max_by_key(|area| area.length)
    }

    /// Moves all of a traveller that lies in `part` into holes, as whole as they permit. False when it had to stay.
    fn vacate(&mut self, index: usize, part: Extent, holes: &mut Board) -> bool {
        let mut end = part.end().0;
        while end > part.start.0 {
            let last = self.owners_at(Extent::new(end - 1, 1)).next().filter(|(_, owner)| owner.traveller == index);
            let found = last.and_then(|(_, owner)| {
                let t = self.travellers.get(index)?;
                let at = t.piece_at(owner.offset);
                Some((at, t.pieces.get(at)?.1))
            });
            let Some((at, piece)) = found else { return false };
            // From the end on: what is cut off leaves the pieces before it as they are.
            let start = piece.at.max(part.start.0);
            let whole = end - start;
            let Some(hole) = holes.best_fit(whole).or_else(|| holes.largest()) else { return false };
            let length = whole.min(hole.length.0);
            let place = hole.start.0;
            if !self.affords_aside(length) || !self.regions.allow(end - length, place, length) {
                return false;
            }
            let Some(cut) = self.split_off(index, at, (end - length - piece.at, length), place, 2) else {
                return false;
            };
            self.send(index, cut, place, Why::StepAside);
            holes.occupy(place, length, index);
            // Those whose place this is must wait now.
            let place = Extent::new(place, length);
            for index in self.travellers_at(place) {
                if let Some(t) = self.travellers.get_mut(index) {
                    t.waiting += t.share_of(place);
                }
                self.fresh.entry(index).or_default().push(place);
            }
            self.aside += length;
            end -= length;
        }
        true
    }
}
