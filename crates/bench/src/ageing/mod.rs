//! Weeks of use of a volume, simulated once for each method of maintenance: none, the file system's own tool every
//! seventh day, and the service, which prevents and mends.
//!
//! Owns the order of the work, and the figures at the end of each day. [`longrun_ageing`] owns the events of a day,
//! which are the same for each method. The simulations follow each other in the same directory: each waits until the
//! space of the one before is free, but the free space that it left is not restored.

mod daemon;
mod maintainer;
mod report;

pub use daemon::Daemon;
pub use maintainer::Maintenance;
pub use report::{AgeingReport, Course, Evening, average_excess};

use crate::{BenchError, Place, SpaceState, layout_of};
use longrun_ageing::{AgeError, Life, LifePlan};
use longrun_layout::Bytes;
use maintainer::Maintainer;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Days between two runs of the file system's own tool.
pub const PERIOD: u32 = 7;

/// The days that reports show: the end of each week, and the last one.
pub fn told(days: u32) -> impl Iterator<Item = u32> {
    (0..=days).filter(move |day| day.is_multiple_of(PERIOD) || *day == days)
}

/// Space that stays free for others.
const SPARE: u64 = 256 << 20;

/// How to measure.
#[derive(Clone, Debug)]
pub struct AgeingSettings {
    /// The `longrun` program that maintains the volume.
    pub program: PathBuf,
    /// How many days, after the one that makes the first files.
    pub days: u32,
    /// How much is in files.
    pub bytes: Bytes,
    /// How much of that is replaced each day, in per cent.
    pub daily_percent: u32,
    /// Of what happens.
    pub seed: u64,
}

/// A volume where it is measured.
#[derive(Debug)]
pub struct Ageing<'a> {
    settings: AgeingSettings,
    place: Place,
    stop: &'a AtomicBool,
}

impl<'a> Ageing<'a> {
    /// Makes a new directory in `target`.
    ///
    /// # Errors
    /// [`BenchError`]: for example when a service is already running, which would work on the volume in every simulation.
    pub fn prepare(target: &Path, settings: AgeingSettings, stop: &'a AtomicBool) -> Result<Self, BenchError> {
        daemon::refuse_another(&settings.program, target, stop)?;
        let place = Place::with_room(target, Bytes(settings.bytes.0 * 3 / 2 + SPARE))?;
        Ok(Self { settings, place, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Simulates the same days with each method of maintenance. `progress` receives the method and the day.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn measure(&self, progress: &mut dyn FnMut(Maintenance, u32)) -> Result<AgeingReport, BenchError> {
        let (mut courses, mut left_out) = (Vec::new(), None);
        let before = SpaceState::at_rest(self.place.scratch().path())?;
        for maintenance in Maintenance::ALL {
            match Maintainer::of(maintenance, &self.place, &self.settings.program, self.stop)? {
                Ok(maintainer) => courses.push(self.live(maintenance, maintainer, progress)?),
                Err(missing) => left_out = Some(missing),
            }
            self.place.scratch().clear()?;
            SpaceState::settled(self.place.scratch().path(), &before)?;
        }
        Ok(AgeingReport::of(&self.settings, courses, left_out))
    }

    fn live(
        &self,
        maintenance: Maintenance,
        mut maintainer: Maintainer<'_>,
        progress: &mut dyn FnMut(Maintenance, u32),
    ) -> Result<Course, BenchError> {
        let AgeingSettings { bytes, daily_percent, days, seed, .. } = self.settings;
        let directory = self.place.scratch().fresh()?;
        let plan = LifePlan { live: bytes, daily: Bytes(bytes.0 / 100 * u64::from(daily_percent)) };
        let mut going_on = |_: &longrun_ageing::Progress| match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let failed = |error| unsuitable(&directory, error);
        let mut life = Life::begin(&directory, plan, seed, &mut going_on).map_err(failed)?;
        let (begun, mut evenings) = (self.place.device().sample()?, Vec::new());
        for day in 0..=days {
            progress(maintenance, day);
            life.day().map_err(failed)?;
            maintainer.evening(&directory, day)?;
            let space = SpaceState::of(&directory)?;
            let (layout, _) = layout_of(&directory, &[])?;
            evenings.push(Evening {
                files: layout.files,
                excess_fragments: layout.excess_fragments,
                free_pieces: space.pieces,
                largest_free: space.largest,
                moved: maintainer.moved(),
                written: self.place.device().sample()?.since(&begun).written_bytes,
            });
        }
        let name = maintainer.name();
        maintainer.end()?;
        Ok(Course { maintenance, name, evenings, verdict: None })
    }
}

fn unsuitable(directory: &Path, error: AgeError) -> BenchError {
    match error {
        AgeError::Interrupted(_) => BenchError::Interrupted,
        error => BenchError::Unsuitable { path: directory.to_owned(), problem: error.to_string() },
    }
}
