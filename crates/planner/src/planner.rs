//! The planner: one batch after another.

use crate::schedule::{Limits, Scheduled};
use crate::unit::Unit;
use crate::window::Window;
use crate::{Batch, Mode, Policy, efficient, files, full};
use longrun_layout::{ExtentSet, VolumeLayout};

/// Yields the batches of a plan, in the order in which they must be carried out.
#[derive(Debug)]
pub struct Planner<'a> {
    layout: &'a VolumeLayout,
    policy: Policy,
    done: bool,
}

impl<'a> Planner<'a> {
    /// Plans for `layout` under `policy`.
    #[must_use]
    pub fn new(layout: &'a VolumeLayout, policy: Policy) -> Self {
        Self { layout, policy, done: false }
    }

    fn limits(&self, used: u64) -> Limits {
        let free = self.layout.free_blocks().0;
        Limits {
            epoch: self.policy.epoch.0.min(free / 3).max(1),
            aside: used * 15 / 100,
            budget: self.policy.budget.map_or(u64::MAX, |b| b.0),
        }
    }

    fn whole_window(&self) -> Window {
        let units: Vec<Unit> =
            self.layout.files().filter(|f| f.is_movable() && f.runs().len() > 0).map(|f| Unit::whole(&f)).collect();
        let free: ExtentSet = self.layout.free().iter().copied().collect();
        let within = std::iter::once(self.layout.whole()).collect();
        Window::new(units, free, &within)
    }
}

impl Iterator for Planner<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if std::mem::replace(&mut self.done, true) {
            return None;
        }
        let window = self.whole_window();
        let limits = self.limits(window.used());
        let scheduled: Option<Scheduled> = match self.policy.mode {
            // Where the whole target cannot be reached, do what can be.
            Mode::Full => full::plan(&window, limits).or_else(|| efficient::plan(&window, limits)),
            Mode::Efficient => efficient::plan(&window, limits),
            Mode::Files => files::plan(&window, None, limits),
        };
        scheduled.map(|s| Batch { steps: s.steps })
    }
}
