//! The engine for volumes on which places can be chosen.
//!
//! Owns order and safety: what is captured when, which owned blocks are PENDING and which are AVAILABLE, barriers,
//! deferral, verification, and giving everything back on every exit. Never decides where data goes and never trusts a
//! plan. Works on a volume only through [`crate::Volume`].

mod batch;
mod batch_plan;
mod dry_run;
mod evasion;
mod holdings;
mod moving;
mod pass;
mod reading;
mod rounds;
mod space;
#[cfg(test)]
mod tests;

pub(crate) use dry_run::most_improved;
pub use dry_run::{Expected, ExpectedFile, ExpectedMoves, MOST_IMPROVED, Plan, PlanError, plan};

use crate::{Observer, Pacer, PassError, Placed, Report, ScanProgress, Scoped, Settings, VolumeError, VolumeInfo};
use longrun_layout::{FileId, VolumeLayout};
use longrun_planner::{Batch, Planner, Policy, plan_whole};
use std::cell::RefCell;
use std::time::Instant;

/// Optimizes a volume: scans, plans, moves, and again while that is a gain. Whatever happens, no file is ever in between
/// two places, and at the end nothing is held.
///
/// # Errors
/// [`PassError`] when the volume failed; being stopped is no error but a [`Report`] that says so. Only a pass that is
/// cancelled before it has read the volume for the first time ends with [`crate::VolumeError::Interrupted`].
pub fn optimize(
    volume: &mut dyn Placed,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Report, PassError> {
    optimize_with(volume, settings, observer, &Planned { only: settings.scope.file() })
}

/// Carries out a plan that was made for what is planned for in `layout`, the last scan of the volume; then scans, plans and moves again while that is
/// a gain. Time runs since `begun`. Answers with the last layout too.
///
/// # Errors
/// As [`optimize`].
pub fn carry_out(
    volume: &mut dyn Placed,
    layout: Scoped,
    plan: Plan,
    begun: Instant,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Report, VolumeLayout), PassError> {
    let plans = Made { first: RefCell::new(Some(plan.batches)), later: Planned { only: settings.scope.file() } };
    rounds::run(volume, layout, Pacer::since(begun, settings, observer), settings, &plans)
}

/// Carries out `batches` that were made for what is planned for in `layout`, the last scan of the volume, once: no other plan follows.
/// Answers with the last layout too.
///
/// # Errors
/// As [`optimize`].
pub fn carry_out_batches(
    volume: &mut dyn Placed,
    layout: Scoped,
    batches: Vec<Batch>,
    begun: Instant,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Report, VolumeLayout), PassError> {
    let once = Settings { rounds: 1, ..settings.clone() };
    let plans = Once(RefCell::new(Some(batches)));
    rounds::run(volume, layout, Pacer::since(begun, &once, observer), &once, &plans)
}

/// A plan that is there already, and nothing after it.
struct Once(RefCell<Option<Vec<Batch>>>);

impl PlanSource for Once {
    fn plan<'l>(&self, _layout: &'l VolumeLayout, _policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        Box::new(self.0.take().unwrap_or_default().into_iter())
    }
}

/// A source of plans: the planner, or in tests any plan that a test needs.
pub trait PlanSource {
    /// The batches for a layout.
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l>;
}

/// The planner, for the whole volume or for one file.
struct Planned {
    only: Option<FileId>,
}

impl PlanSource for Planned {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let Some(id) = self.only else { return plan_whole(layout, policy) };
        match layout.files().find(|file| file.id() == id) {
            Some(file) => {
                let moves = layout.leader_of(file.index).unwrap_or(file.index);
                Box::new(Planner::for_file(layout, policy, moves))
            }
            None => Box::new(std::iter::empty()),
        }
    }
}

/// A plan that is there already, and the planner for later rounds.
struct Made {
    first: RefCell<Option<Vec<Batch>>>,
    later: Planned,
}

impl PlanSource for Made {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        match self.first.take() {
            Some(batches) => Box::new(batches.into_iter()),
            None => self.later.plan(layout, policy),
        }
    }
}

/// As [`optimize`], with plans from somewhere else.
///
/// # Errors
/// As [`optimize`].
pub fn optimize_with(
    volume: &mut dyn Placed,
    settings: &Settings,
    observer: &mut dyn Observer,
    plans: &dyn PlanSource,
) -> Result<Report, PassError> {
    let pacer = Pacer::new(settings, observer);
    let layout = volume.scan(&ScanProgress::new(pacer.observer, 1))?;
    let layout = scoped(volume, layout, settings)?;
    rounds::run(volume, layout, pacer, settings, plans).map(|(report, _)| report)
}

/// What a pass plans for, of a scan.
fn scoped(volume: &dyn Placed, layout: VolumeLayout, settings: &Settings) -> Result<Scoped, VolumeError> {
    Scoped::new(layout, settings).map_err(|error| {
        let VolumeInfo { target: path, filesystem, .. } = volume.info();
        VolumeError::Damaged { path, filesystem, detail: error.to_string() }
    })
}
