//! The planner: one batch after another.

use crate::agenda::{Agenda, Job, WindowSize};
use crate::efficient::Aim;
use crate::full::Terms;
use crate::policy::movable_excess;
use crate::schedule::{Limits, Scheduled};
use crate::window::Window;
use crate::{Batch, Mode, Policy, efficient, files, full};
use longrun_layout::{FileIndex, VolumeLayout};

/// Yields the batches of a plan in the order of their execution. Each batch is planned when it is
/// requested: apart from 4 bytes per movable file and 30 bytes per free piece, memory is bounded by one window.
#[derive(Debug)]
pub struct Planner<'a> {
    layout: &'a VolumeLayout,
    policy: Policy,
    agenda: Agenda<'a>,
    /// For efficient mode.
    aim: Option<Aim>,
    chosen: Option<FileIndex>,
    /// Blocks moved by the batches so far.
    moved: u64,
    /// Excess fragments in the windows that are still to come.
    excess_ahead: u64,
}

impl<'a> Planner<'a> {
    /// Plans for `layout` under `policy`.
    #[must_use]
    pub fn new(layout: &'a VolumeLayout, policy: Policy) -> Self {
        Self::with_windows(layout, policy, WindowSize::default())
    }

    /// Plans in windows of the given size.
    #[must_use]
    pub fn with_windows(layout: &'a VolumeLayout, policy: Policy, size: WindowSize) -> Self {
        let agenda = Agenda::new(layout, &policy, size);
        let aim = if policy.mode == Mode::Efficient { Aim::of(layout, policy.goal) } else { None };
        let excess_ahead = movable_excess(layout).sum();
        Self { layout, policy, agenda, aim, chosen: None, moved: 0, excess_ahead }
    }

    /// Plans for one file alone, as files mode does for all: into the smallest free piece that holds it.
    #[must_use]
    pub fn for_file(layout: &'a VolumeLayout, policy: Policy, file: FileIndex) -> Self {
        let policy = Policy { mode: Mode::Files, ..policy };
        Self { chosen: Some(file), ..Self::new(layout, policy) }
    }

    fn limits(&self, window: &Window) -> Limits {
        let free = self.layout.free_blocks().0;
        let budget = self.policy.budget.map_or(u64::MAX, |budget| {
            let left = budget.0.saturating_sub(self.moved);
            // Every window gets its share by the excess in it, so that the first ones do not use up everything.
            let share = u128::from(left) * u128::from(window.excess()) / u128::from(self.excess_ahead.max(1));
            if self.policy.mode == Mode::Efficient { (share as u64).min(left) } else { left }
        });
        Limits { epoch: self.policy.epoch.0.min(free / 3).max(1), aside: window.used() * 15 / 100, budget }
    }

    /// The plan for a window, and whether it empties its zone.
    fn plan(&self, job: &Job) -> (Option<Scheduled>, bool) {
        let limits = self.limits(&job.window);
        if self.policy.mode == Mode::Full
            && let Some(scheduled) = Self::plan_full(job, limits)
        {
            let emptied = scheduled.complete;
            return (Some(scheduled), emptied);
        }
        (self.plan_files(job, limits), false)
    }

    /// The whole target, or what gains more where not all of it can be reached: that with large files in parts. Where most of it can be had
    /// for a small part of the bytes, that comes first, and the rest in a plan of its own.
    fn plan_full(job: &Job, limits: Limits) -> Option<Scheduled> {
        let (window, strict) = (&job.window, Terms::Strict);
        let whole = full::plan(job, window, limits, strict)
            .or_else(|| full::plan(job, &window.leaving_full_segments()?, limits, strict));
        let by_place = window.by_place(&job.zone).and_then(|window| full::plan(job, &window, limits, strict));
        let moved = |scheduled: &Option<Scheduled>| scheduled.as_ref().map_or(0, |scheduled| scheduled.moved);
        let pays = gain(&by_place, window) * MOST_OF_IT > gain(&whole, window) * (MOST_OF_IT - 1);
        if by_place.is_some() && pays && (whole.is_none() || moved(&by_place) * FOR_LESS < moved(&whole)) {
            return by_place;
        }
        if whole.as_ref().is_some_and(|scheduled| scheduled.complete) {
            return whole;
        }
        let parts = window.with_large_ones_in_parts().and_then(|window| full::plan(job, &window, limits, strict));
        if gain(&parts, window) > gain(&whole, window) { parts } else { whole }
    }

    fn plan_files(&self, job: &Job, limits: Limits) -> Option<Scheduled> {
        let (window, regions) = (&job.window, &job.regions);
        match self.policy.mode {
            // Where the whole target cannot be reached, do what can be.
            Mode::Full => {
                // Much of it for few bytes; or all of it, where that gains more and costs a few free pieces at most. On XFS the room for a
                // whole target is often that of one group.
                let some = efficient::plan(window, Aim::FIRST, regions, limits);
                if some.as_ref().is_some_and(|some| some.saves() >= window.excess()) {
                    return some;
                }
                let fixed = window.leaving_full_segments();
                let pieces = full::plan(job, fixed.as_ref().unwrap_or(window), limits, Terms::Pieces);
                if gain(&pieces, window) > gain(&some, window) { pieces } else { some.or(pieces) }
            }
            Mode::Efficient => efficient::plan(window, self.aim?, regions, limits),
            Mode::Files => {
                let chosen = self.chosen.map(|file| window.units.iter().position(|u| u.file == file));
                match chosen {
                    Some(None) => None,
                    Some(Some(unit)) => files::plan(window, Some(unit), regions, limits),
                    None => files::plan(window, None, regions, limits),
                }
            }
        }
    }
}

/// A plan that gains all but this part of what another one gains, for less than this part of its bytes, comes first.
const MOST_OF_IT: u64 = 8;
const FOR_LESS: u64 = 4;

/// What a plan for a window gains; nothing where there is none.
fn gain(scheduled: &Option<Scheduled>, window: &Window) -> u64 {
    scheduled.as_ref().map_or(0, |scheduled| scheduled.gain(window))
}

impl Iterator for Planner<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        loop {
            let job = self.agenda.next_job()?;
            let (scheduled, emptied) = self.plan(&job);
            self.excess_ahead = self.excess_ahead.saturating_sub(job.window.excess());
            let Some(scheduled) = scheduled else {
                self.agenda.finish(&job, emptied, &job.window.free, Vec::new());
                continue;
            };
            self.moved += scheduled.moved;
            let saves = scheduled.saves();
            self.agenda.finish(&job, emptied, &scheduled.free, scheduled.moved_files);
            return Some(Batch { saves, steps: scheduled.steps });
        }
    }
}
