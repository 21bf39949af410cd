//! A unit whose place was taken goes elsewhere: gets hold of the places that it is offered, and moves there.

use super::batch_plan::{Cursor, Unit};
use super::holdings::Standing;
use super::moving::{End, span};
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
    /// The blocks of a unit's targets that it can neither have nor has already, as far as it went; `None` when it cannot be mapped.
    pub(super) fn out_of_place(&mut self, unit: &Unit, steps: &[FileMove]) -> Result<Option<ExtentSet>, Halt> {
        let Some(map) = self.map_again(unit, span(steps))? else { return Ok(None) };
        let targets: Vec<Extent> = steps.iter().map(FileMove::occupies).collect();
        let mut missing = self.holdings.missing_of(&targets);
        for step in steps {
            for run in map.within(LogicalRange { start: step.logical, length: step.length }) {
                if run.physical == step.target + (run.logical - step.logical) {
                    missing.remove(run.extent());
                }
            }
        }
        Ok(Some(missing))
    }

    /// Moves a unit whose place was taken by another process to `places` instead, in this order: free space that the batch
    /// does not need, and what is left of its target. Otherwise the units that wait for its present place could not move,
    /// nor those that wait for theirs.
    pub(super) fn evade(
        &mut self,
        batch: &mut Cursor,
        at: usize,
        unit: &Unit,
        places: &[Extent],
    ) -> Result<Evaded, Halt> {
        let steps = batch.plan.steps_of(unit);
        let Some(map) = self.map_again(unit, span(&steps))? else { return Ok(Evaded::Refused) };
        let (mut moves, mut then) = (Vec::new(), map.clone());
        let mut free = places.iter().copied();
        let mut place = free.next();
        for step in &steps {
            let part = LogicalRange { start: step.logical, length: step.length };
            for mut run in then.within(part).collect::<Vec<Run>>() {
                while run.length.0 > 0 {
                    let Some(here) = place else { return Ok(Evaded::Refused) };
                    let length = run.length.min(here.length);
                    let Run { logical, physical, .. } = run;
                    // What had got to its place before the unit was broken off stays there.
                    if physical != here.start {
                        moves.push(FileMove { file: unit.file, logical, source: physical, target: here.start, length });
                        // A unit can have a part of the file twice.
                        then.put(logical, here.start, length);
                    }
                    run = Run { logical: logical + length, physical: physical + length, length: run.length - length };
                    let rest = Extent { start: here.start + length, length: here.length - length };
                    place = Some(rest).filter(|rest| !rest.is_empty()).or_else(|| free.next());
                }
            }
        }
        let targets: Vec<Extent> = moves.iter().map(FileMove::occupies).collect();
        let missing = self.holdings.missing_of(&targets);
        let size = targets.iter().map(|target| target.length).sum();
        if (!missing.is_empty() && self.allowance()? < missing.total()) || self.affordable(size).is_err() {
            return Ok(Evaded::Refused);
        }
        if self.would_harm(unit, &map, &moves, map.fragments()) {
            return Ok(Evaded::Refused);
        }
        if !self.hold(&targets, &missing)? {
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
