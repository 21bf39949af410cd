//! A unit whose place was taken goes elsewhere: gets hold of the places that it is offered, and moves there.

use super::batch_plan::{Cursor, Unit};
use super::holdings::Standing;
use super::moving::End;
use super::pass::Pass;
use crate::pacer::Halt;
use longrun_layout::{Extent, ExtentSet, FileMove, LogicalRange, Run};

/// How an attempt to step aside ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evaded {
    Done,
    /// It would do harm, there is no room to hold the places, or the file cannot be moved now.
    Refused,
    /// Not all of the places could be obtained.
    NotObtained,
}

impl Pass<'_> {
    /// Moves a unit whose place was taken by another process to `places` instead, in this order: free space that the batch
    /// does not need, and what is left of its target. Otherwise the units that wait for its present place could not move,
    /// nor those that wait for theirs.
    pub(super) fn evade(
        &mut self,
        batch: &mut Cursor<'_>,
        at: usize,
        unit: &Unit,
        places: &[Extent],
    ) -> Result<Evaded, Halt> {
        let Some(map) = self.map_again(unit, LogicalRange::ALL)? else { return Ok(Evaded::Refused) };
        let missing: ExtentSet = places.iter().flat_map(|place| self.holdings.missing(*place)).collect();
        let size = places.iter().map(|place| place.length).sum();
        if (!missing.is_empty() && self.allowance()? < missing.total()) || self.affordable(size).is_err() {
            return Ok(Evaded::Refused);
        }
        let mut moves = Vec::new();
        let mut free = places.iter().copied();
        let mut place = free.next();
        for step in batch.plan.steps_of(unit) {
            for mut run in map.within(LogicalRange { start: step.logical, length: step.length }) {
                while run.length.0 > 0 {
                    let Some(here) = place else { return Ok(Evaded::Refused) };
                    let length = run.length.min(here.length);
                    let Run { logical, physical, .. } = run;
                    moves.push(FileMove { file: unit.file, logical, source: physical, target: here.start, length });
                    run = Run { logical: logical + length, physical: physical + length, length: run.length - length };
                    let rest = Extent { start: here.start + length, length: here.length - length };
                    place = Some(rest).filter(|rest| !rest.is_empty()).or_else(|| free.next());
                }
            }
        }
        if self.would_harm(unit, &map, &moves, map.fragments()) {
            return Ok(Evaded::Refused);
        }
        if !self.hold(places, &missing)? {
            return Ok(Evaded::NotObtained);
        }
        Ok(match self.move_along(batch, at, unit, &moves)? {
            End::Done => Evaded::Done,
            End::Skipped(_) => Evaded::Refused,
        })
    }

    /// Gets hold of places that no window has asked for; true when they can be targets now.
    fn hold(&mut self, places: &[Extent], missing: &ExtentSet) -> Result<bool, Halt> {
        places.iter().for_each(|place| self.holdings.keep(*place));
        let waits = |place: &Extent| self.holdings.standing(*place) == Standing::AfterBarrier;
        if places.iter().any(waits) {
            self.commit()?;
        }
        if !missing.is_empty() {
            self.capture(missing)?;
        }
        // What is PENDING beside what was captured is no use today.
        Ok(places.iter().all(|place| self.holdings.standing(*place) == Standing::Available))
    }
}
