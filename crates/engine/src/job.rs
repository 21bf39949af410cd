//! One scan, one plan and one pass for every kind of volume.
//!
//! Owns the choice of the engine. A dry run and a real run make their plan by the same function, from the same facts.

use crate::placed::{self, Expected, PlanError};
use crate::relocated::{self, Picture, Relocated};
use crate::{
    CompactedDirectories, Leaked, Observer, PassError, Placed, Progress, Report, Scoped, Settings, VolumeError,
    VolumeInfo,
};
use longrun_layout::{Bytes, ExtentSet, FileId, VolumeLayout};
use longrun_planner::{Batch, FastEnd, Gathering, Mode, Placement, ZonePlan, leaves_most, pays, plan_zones};
use std::path::PathBuf;
use std::time::Instant;

/// A volume that may be optimized, by the kind of engine that works on it.
pub enum Opened {
    /// Its files can be moved to chosen blocks.
    Placed(Box<dyn Placed>),
    /// Its space comes in chunks, and where data goes is its own decision.
    Relocated(Box<dyn Relocated>),
}

/// The result of a scan.
#[derive(Debug)]
pub enum Scan {
    /// Of a volume whose files can be moved to chosen blocks.
    Placed {
        /// Everything on it.
        layout: VolumeLayout,
        /// Free blocks that no file can be moved to.
        unavailable: ExtentSet,
    },
    /// Of one whose space comes in chunks.
    Relocated(Picture),
}

/// What a pass will do.
#[derive(Debug)]
pub struct Plan {
    /// How far it goes: the mode that was set, but for [`plan_what_pays`].
    pub mode: Mode,
    /// What is expected to come of it.
    pub expected: Expected,
    /// Those that it names ([`Expected::most_improved`]), in that order.
    pub files: Vec<FileId>,
    made: Made,
}

#[derive(Debug)]
enum Made {
    Placed(Box<(Scoped, placed::Plan)>),
    /// The volume decides where data goes: the pass decides stage by stage.
    Relocated(Box<Picture>),
}

impl Opened {
    /// What it is.
    #[must_use]
    pub fn info(&self) -> VolumeInfo {
        match self {
            Self::Placed(volume) => volume.info(),
            Self::Relocated(volume) => volume.info(),
        }
    }

    /// As [`crate::Volume::was_interrupted`].
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        match self {
            Self::Placed(volume) => volume.was_interrupted(),
            Self::Relocated(volume) => volume.was_interrupted(),
        }
    }

    /// As [`crate::Volume::leaked`].
    #[must_use]
    pub fn leaked(&self) -> Leaked {
        match self {
            Self::Placed(volume) => volume.leaked(),
            Self::Relocated(volume) => volume.leaked(),
        }
    }

    /// As [`crate::Volume::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(mut self) -> Result<(), VolumeError> {
        match &mut self {
            Self::Placed(volume) => volume.close(),
            Self::Relocated(volume) => volume.close(),
        }
    }

    /// As [`crate::Volume::compact_directories`].
    ///
    /// # Errors
    /// As there.
    pub fn compact_directories(
        &mut self,
        scan: &Scan,
        progress: &dyn Progress,
    ) -> Result<CompactedDirectories, VolumeError> {
        match (self, scan) {
            (Self::Placed(volume), Scan::Placed { layout, .. }) => volume.compact_directories(layout, progress),
            (Self::Relocated(volume), Scan::Relocated(picture)) => volume.compact_directories(picture, progress),
            // A scan of another volume.
            _ => Ok(CompactedDirectories::default()),
        }
    }

    /// Reads how the volume is now.
    ///
    /// # Errors
    /// As [`crate::Volume::scan`].
    pub fn scan(&mut self, progress: &dyn Progress) -> Result<Scan, VolumeError> {
        match self {
            Self::Placed(volume) => {
                let layout = volume.scan(progress)?;
                Ok(Scan::Placed { layout, unavailable: volume.unavailable()? })
            }
            Self::Relocated(volume) => Ok(Scan::Relocated(volume.scan(progress)?)),
        }
    }

    /// As [`crate::Volume::names`].
    ///
    /// # Errors
    /// As there.
    pub fn names(
        &mut self,
        layout: &VolumeLayout,
        files: &[FileId],
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        match self {
            Self::Placed(volume) => volume.names(layout, files, progress),
            Self::Relocated(volume) => volume.names(layout, files, progress),
        }
    }
}

impl Scan {
    /// Everything on the volume.
    #[must_use]
    pub fn layout(&self) -> &VolumeLayout {
        match self {
            Self::Placed { layout, .. } => layout,
            Self::Relocated(picture) => &picture.layout,
        }
    }

    /// Why nothing can be done for the free space of the volume, where that is so.
    #[must_use]
    pub fn only_files(&self) -> Option<&'static str> {
        match self {
            Self::Placed { .. } => None,
            Self::Relocated(picture) => picture.only_files,
        }
    }
}

impl Plan {
    /// The layout of the whole volume that it was made for.
    #[must_use]
    pub fn layout(&self) -> &VolumeLayout {
        match &self.made {
            Made::Placed(made) => made.0.whole(),
            Made::Relocated(picture) => &picture.layout,
        }
    }
}

/// Plans a pass: the one place where that is done, for dry runs and for real ones.
///
/// # Errors
/// [`PlanError`].
pub fn plan(scan: Scan, settings: &Settings, progress: &dyn Progress) -> Result<Plan, PlanError> {
    plan_one_of(scan, settings, None, progress)
}

/// As [`plan`], in efficient mode for those who leave the mode open; and in full mode where only that helps, and pays.
///
/// Files of virtual machines that grew beside each other have next to no fragments that are worth leaving in place, and their parts find no
/// room: efficient mode gains next to nothing then.
///
/// # Errors
/// [`PlanError`].
pub fn plan_what_pays(scan: Scan, settings: &Settings, progress: &dyn Progress) -> Result<Plan, PlanError> {
    let efficient = Settings { mode: Mode::Efficient, ..settings.clone() };
    plan_one_of(scan, &efficient, Some(Mode::Full), progress)
}

fn plan_one_of(
    scan: Scan,
    settings: &Settings,
    instead: Option<Mode>,
    progress: &dyn Progress,
) -> Result<Plan, PlanError> {
    let mut mode = settings.mode;
    let (expected, made) = match scan {
        Scan::Placed { layout, unavailable } => {
            let mut scoped = Scoped::new(layout, settings)?;
            let mut plan = placed::plan(scoped.planned_mut(), &unavailable, settings, progress)?;
            if let Some(instead) = instead
                && leaves_most(&plan.expected.before, &plan.expected.after)
            {
                let other = Settings { mode: instead, ..settings.clone() };
                let other = placed::plan(scoped.planned_mut(), &unavailable, &other, progress)?;
                let Expected { before, after, bytes, .. } = &other.expected;
                if after.excess_fragments < plan.expected.after.excess_fragments && pays(before, after, *bytes) {
                    (plan, mode) = (other, instead);
                }
            }
            (plan.expected.clone(), Made::Placed(Box::new((scoped, plan))))
        }
        Scan::Relocated(picture) => (relocated::foresee(&picture, settings)?, Made::Relocated(Box::new(picture))),
    };
    let planned = match &made {
        Made::Placed(made) => made.0.planned(),
        Made::Relocated(picture) => &picture.layout,
    };
    let files = expected.most_improved.iter().filter_map(|of| planned.file(of.file).map(|file| file.id())).collect();
    Ok(Plan { mode, expected, files, made })
}

/// Plans by heat for a scan, without blocks that cannot be obtained. `None` where no place can be chosen.
#[must_use]
pub fn plan_placement(scan: &mut Scan, placement: &Placement, settings: &Settings) -> Option<ZonePlan> {
    without_unavailable(scan, |layout| plan_zones(layout, placement, settings.policy(layout, Bytes(0)).epoch))
}

/// Plans that `files` come together; `None` where places cannot be chosen, or no free piece takes them all.
#[must_use]
pub fn plan_gathering(scan: &mut Scan, files: &[FileId], fast: FastEnd, settings: &Settings) -> Option<Gathering> {
    without_unavailable(scan, |layout| {
        longrun_planner::plan_gathering(layout, files, fast, &settings.policy(layout, Bytes(0)))
    })
    .flatten()
}

/// What `plan` makes of a layout in which blocks that cannot be obtained are not free; `None` where no place can be chosen.
fn without_unavailable<T>(scan: &mut Scan, plan: impl FnOnce(&VolumeLayout) -> T) -> Option<T> {
    let Scan::Placed { layout, unavailable } = scan else { return None };
    let withheld = layout.withhold(unavailable);
    let planned = plan(layout);
    layout.readmit(&withheld);
    Some(planned)
}

/// Carries out what was planned for `scan`, the last one of `volume`, once. Answers with the last layout too.
///
/// # Errors
/// As [`carry_out`].
pub fn place(
    volume: &mut Opened,
    scan: Scan,
    batches: Vec<Batch>,
    begun: Instant,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Report, VolumeLayout), PassError> {
    let info = volume.info();
    let refused = |what: &str| VolumeError::Unsupported { path: info.target.clone(), what: what.into() };
    match (volume, scan) {
        (Opened::Placed(volume), Scan::Placed { layout, .. }) => {
            placed::carry_out_batches(&mut **volume, layout.into(), batches, begun, settings, observer)
        }
        _ => Err(refused("choosing the places of files").into()),
    }
}

/// Carries out a plan that was made for the last scan of `volume`; then scans, plans and moves again while that is a gain. Time
/// runs since `begun`. Answers with the last layout too. Whatever happens, no file is in between two places, and at the end
/// nothing is held.
///
/// # Errors
/// [`PassError`] when the volume failed; being stopped is no error but a [`Report`] that says so.
pub fn carry_out(
    volume: &mut Opened,
    plan: Plan,
    begun: Instant,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Report, VolumeLayout), PassError> {
    let info = volume.info();
    // Later rounds plan as the first one did.
    let settings = &Settings { mode: plan.mode, ..settings.clone() };
    match (volume, plan.made) {
        (Opened::Placed(volume), Made::Placed(made)) => {
            let (scoped, plan) = *made;
            placed::carry_out(&mut **volume, scoped, plan, begun, settings, observer)
        }
        (Opened::Relocated(volume), Made::Relocated(picture)) => {
            let ended = relocated::carry_out(&mut **volume, *picture, begun, settings, observer);
            ended.map(|(report, picture)| (report, picture.layout))
        }
        (Opened::Placed(_), Made::Relocated(_)) | (Opened::Relocated(_), Made::Placed(_)) => {
            let cause = VolumeError::Unsupported {
                path: info.target,
                what: "a plan that was made for another kind of volume".into(),
            };
            Err(cause.into())
        }
    }
}
