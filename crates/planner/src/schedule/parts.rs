//! Parts of units that move ahead of the rest.
//!
//! Owns when a unit is split, and where it is worth looking for parts: only where something changed. A look at every piece at every
//! barrier took a quarter of the time of a plan for files in thousands of fragments.

use super::{Owner, Scheduler};
use crate::traveller::Traveller;
use crate::unit::Piece;
use longrun_layout::{Extent, ExtentSet};
use std::collections::BTreeMap;

impl Scheduler<'_> {
    /// Moves parts of units whose place is available, when each adds at most `most` fragments and the volume does not get
    /// more fragmented than it was at the start. Without this, plans get stuck on full volumes.
    pub(super) fn move_parts(&mut self, most: i64) {
        let mut fresh = std::mem::take(&mut self.fresh);
        // With more splits permitted all of them are worth a look.
        if most > 0 {
            fresh = self.places();
        }
        while let Some((index, places)) = fresh.pop_first() {
            let Some(home) = self.travellers.get(index).filter(|t| !t.done).map(Traveller::place) else { continue };
            // At once: it joins what overlaps.
            let places: ExtentSet = places.iter().filter_map(|place| place.intersection(&home)).collect();
            let moved = self.moved;
            let left = places.iter().position(|place| !self.move_parts_to(index, place, most));
            if self.moved > moved || left.is_some() {
                self.finish_if_home(index);
            }
            if let Some(at) = left {
                // Where it was not looked. That is most of it: what became known meanwhile is added to that.
                fresh.insert(index, places.iter().skip(at).collect());
                let meanwhile = std::mem::replace(&mut self.fresh, fresh);
                meanwhile.into_iter().for_each(|(index, places)| self.fresh.entry(index).or_default().extend(places));
                return;
            }
        }
    }

    /// The places of all that have not arrived.
    pub(super) fn places(&self) -> BTreeMap<usize, Vec<Extent>> {
        let away = self.travellers.iter().enumerate().filter(|(_, t)| !t.done);
        away.map(|(index, t)| (index, vec![t.place()])).collect()
    }

    /// The same for the parts of one traveller that go to `place`. False when the epoch is full, or the budget used up.
    fn move_parts_to(&mut self, index: usize, place: Extent, most: i64) -> bool {
        let Some(t) = self.travellers.get(index) else { return true };
        let mut end = place.end().0 - t.target;
        let mut at = t.piece_at(place.start.0 - t.target);
        while let Some(t) = self.travellers.get(index)
            && !t.done
            && let Some(&(offset, piece)) = t.pieces.get(at)
            && offset < end
        {
            if self.in_epoch >= self.limits.epoch || self.moved >= self.limits.budget {
                return false;
            }
            if piece.at != t.target + offset
                && let Some(part) = self.movable_part(t.target + offset, piece)
                && let Some(at_part) = self.split_off(index, at, part, t.target + offset + part.0, most)
            {
                self.move_piece(index, at_part);
                // To join it may be worth it for the next one now.
                let next = self.travellers.get(index).and_then(|t| t.pieces.get(at_part + 1));
                end = end.max(next.map_or(end, |(offset, _)| offset + 1));
            }
            at += 1;
        }
        true
    }

    fn finish_if_home(&mut self, index: usize) {
        if let Some(t) = self.travellers.get_mut(index)
            && t.away == 0
        {
            t.done = true;
        }
        self.note_ready(index);
    }

    /// The part of a piece whose place is available: (offset in the piece, length). All of it, or its longest part,
    /// within what the budget leaves.
    fn movable_part(&self, place: u64, piece: Piece) -> Option<(u64, u64)> {
        let wanted = Extent::new(place, piece.length);
        let part = self.available.overlapping(wanted).max_by_key(|e| e.length)?;
        let length = part.length.0.min(self.limits.budget - self.moved);
        let from = piece.at + (part.start.0 - place);
        let allowed =
            if self.regions.allow(from, part.start.0, length) { length } else { self.regions.room(part.start.0) };
        (allowed > 0).then(|| (part.start.0 - place, length.min(allowed)))
    }

    /// Cuts the part off its piece when moving it keeps the excess within what it was at the start; returns its index.
    /// The part is going to `place`.
    pub(super) fn split_off(
        &mut self,
        index: usize,
        at: usize,
        part: (u64, u64),
        place: u64,
        most: i64,
    ) -> Option<usize> {
        let t = self.travellers.get_mut(index)?;
        let &(offset, piece) = t.pieces.get(at)?;
        let (skip, length) = part;
        let mut parts = Vec::with_capacity(3);
        let mut places = Vec::with_capacity(3);
        let mut cut = |from: u64, length: u64, at: u64| {
            if length > 0 {
                parts.push((offset + from, Piece { logical: piece.logical + from, at: piece.at + from, length }));
                places.push((from, length, at));
            }
        };
        cut(0, skip, piece.at);
        cut(skip, length, place);
        cut(skip + length, piece.length - skip - length, piece.at + skip + length);
        let delta = t.delta(at, &places);
        if delta > most || self.excess + delta * t.owners as i64 > 0 {
            return None;
        }
        let t = self.travellers.get_mut(index)?;
        for (offset, part) in &parts {
            // The first one replaces the whole.
            self.owners.insert(part.at, Owner { length: part.length, traveller: index, offset: *offset });
        }
        t.pieces.splice(at..=at, parts);
        Some(at + usize::from(skip > 0))
    }
}
