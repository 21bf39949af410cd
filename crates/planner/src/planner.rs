//! The planner: one batch after another.

use crate::agenda::{Agenda, Job};
use crate::efficient::Aim;
use crate::schedule::{Limits, Scheduled};
use crate::{Batch, Mode, Policy, efficient, files, full};
use longrun_layout::{FileIndex, VolumeLayout};

/// Yields the batches of a plan, in the order in which they must be carried out. Each batch is planned when it is asked
/// for: apart from 17 bytes a movable file and 30 bytes a free piece, memory is bounded by one window.
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
}

impl<'a> Planner<'a> {
    /// Plans for `layout` under `policy`.
    #[must_use]
    pub fn new(layout: &'a VolumeLayout, policy: Policy) -> Self {
        let agenda = Agenda::new(layout, policy.mode == Mode::Full);
        let aim = Aim::of(layout, policy.goal);
        Self { layout, policy, agenda, aim, chosen: None, moved: 0 }
    }

    /// Plans for one file alone, as files mode does for all: into the smallest free piece that holds it.
    #[must_use]
    pub fn for_file(layout: &'a VolumeLayout, policy: Policy, file: FileIndex) -> Self {
        let policy = Policy { mode: Mode::Files, ..policy };
        Self { chosen: Some(file), ..Self::new(layout, policy) }
    }

    fn limits(&self, used: u64) -> Limits {
        let free = self.layout.free_blocks().0;
        Limits {
            epoch: self.policy.epoch.0.min(free / 3).max(1),
            aside: used * 15 / 100,
            budget: self.policy.budget.map_or(u64::MAX, |b| b.0.saturating_sub(self.moved)),
        }
    }

    fn plan(&self, job: &Job) -> Option<Scheduled> {
        let window = &job.window;
        let limits = self.limits(window.used());
        match self.policy.mode {
            // Where the whole target cannot be reached, do what can be.
            Mode::Full => full::plan(window, &job.zone, limits).or_else(|| efficient::plan(window, Aim::FIRST, limits)),
            Mode::Efficient => efficient::plan(window, self.aim?, limits),
            Mode::Files => {
                let chosen = self.chosen.map(|file| window.units.iter().position(|u| u.file == file));
                match chosen {
                    Some(None) => None,
                    Some(Some(unit)) => files::plan(window, Some(unit), limits),
                    None => files::plan(window, None, limits),
                }
            }
        }
    }
}

impl Iterator for Planner<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        loop {
            let job = self.agenda.next_job()?;
            let Some(scheduled) = self.plan(&job) else {
                self.agenda.finish(&job, &job.window.free, Vec::new());
                continue;
            };
            self.moved += scheduled.moved;
            self.agenda.finish(&job, &scheduled.free, scheduled.moved_files);
            return Some(Batch { steps: scheduled.steps });
        }
    }
}
