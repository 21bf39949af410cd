//! The one engine that carries out plans, on every kind of volume.
//!
//! Owns order and safety: what is captured when, which owned blocks are PENDING and which AVAILABLE, barriers, deferral,
//! verification, and that every exit gives everything back. Never decides what goes where, never trusts a plan, and does
//! nothing to a volume but through [`crate::Volume`].

mod batch;
mod dry_run;
pub(crate) mod file_map;
mod ledger;
mod moving;
mod observer;
mod pacer;
mod pass;
pub(crate) mod reading;
mod report;
mod settings;
mod space;
#[cfg(test)]
mod tests;

pub(crate) use dry_run::most_improved;
pub use dry_run::{Expected, ExpectedFile, ExpectedMoves, MOST_IMPROVED, dry_run};
pub use observer::{Observer, Permission, Phase, ScanProgress, Status, Turn, Unobserved};
pub use pacer::Halt;
pub(crate) use pacer::Pacer;
pub(crate) use report::Tally;
pub use report::{PassError, Report, Skipped, Stop};
pub use settings::Settings;

use crate::Volume;
use longrun_layout::{FileId, VolumeLayout};
use longrun_planner::{Batch, Planner, Policy};

/// Optimizes a volume: scans, plans, moves, and again while that is a gain. Whatever happens, no file is ever in between
/// two places, and at the end nothing is held.
///
/// # Errors
/// [`PassError`] when the volume failed; being stopped is no error but a [`Report`] that says so. Only a pass that is
/// cancelled before it has read the volume for the first time ends with [`crate::VolumeError::Interrupted`].
pub fn optimize(
    volume: &mut dyn Volume,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Report, PassError> {
    optimize_with(volume, settings, observer, &Planned { only: settings.only })
}

/// Where plans come from: the planner, and in tests whatever a test wants to see carried out.
pub(crate) trait PlanSource {
    /// The batches for a layout.
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + 'l>;
}

/// The planner, for the whole volume or for one file.
struct Planned {
    only: Option<FileId>,
}

impl PlanSource for Planned {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + 'l> {
        let Some(id) = self.only else { return Box::new(Planner::new(layout, policy)) };
        match layout.files().find(|file| file.id() == id) {
            Some(file) => {
                let moves = layout.leader_of(file.index).unwrap_or(file.index);
                Box::new(Planner::for_file(layout, policy, moves))
            }
            None => Box::new(std::iter::empty()),
        }
    }
}

pub(crate) fn optimize_with(
    volume: &mut dyn Volume,
    settings: &Settings,
    observer: &mut dyn Observer,
    plans: &dyn PlanSource,
) -> Result<Report, PassError> {
    pass::run(volume, settings, observer, plans)
}
