//! Weeks of a volume's life, lived through as often as there are ways to look after it: by nobody, by the file system's own
//! tool every seventh evening, and by the service, which prevents and mends.
//!
//! Owns the order of things and what is looked at in the evenings. What happens on a day is `longrun-ageing`'s, and the same each
//! time. The lives follow each other in the same place: what they leave of the free space is waited for, and not made good.

mod carer;
mod daemon;
mod report;

pub use carer::Care;
pub use report::{AgeingReport, Course, Evening};

use crate::{BenchError, Place, SpaceState, layout_of};
use carer::Carer;
use longrun_ageing::{AgeError, Life, LifePlan};
use longrun_layout::Bytes;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Days between two runs of the file system's own tool.
pub const PERIOD: u32 = 7;
/// Space that stays free for others.
const SPARE: u64 = 256 << 20;

/// How to measure.
#[derive(Clone, Debug)]
pub struct AgeingSettings {
    /// The `longrun` that looks after the volume.
    pub program: PathBuf,
    /// How many days, after the one that makes the first files.
    pub days: u32,
    /// How much is in files.
    pub bytes: Bytes,
    /// How much of that is written anew each day, in per cent.
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
    /// [`BenchError`]: among others when a service runs already, which would look after the volume in every life.
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

    /// Lives through the same days with each care. `progress` is told who looks after the volume, and which day it is.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn measure(&self, progress: &mut dyn FnMut(Care, u32)) -> Result<AgeingReport, BenchError> {
        let (mut courses, mut left_out) = (Vec::new(), None);
        let before = SpaceState::at_rest(self.place.scratch().path())?;
        for care in Care::ALL {
            match Carer::of(care, &self.place, &self.settings.program, self.stop)? {
                Ok(carer) => courses.push(self.live(care, carer, progress)?),
                Err(missing) => left_out = Some(missing),
            }
            self.place.scratch().clear()?;
            SpaceState::settled(self.place.scratch().path(), &before)?;
        }
        Ok(AgeingReport::of(&self.settings, courses, left_out))
    }

    fn live(
        &self,
        care: Care,
        mut carer: Carer<'_>,
        progress: &mut dyn FnMut(Care, u32),
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
            progress(care, day);
            life.day().map_err(failed)?;
            carer.evening(&directory, day)?;
            let space = SpaceState::of(&directory)?;
            let (layout, _) = layout_of(&directory, &[])?;
            evenings.push(Evening {
                files: layout.files,
                excess_fragments: layout.excess_fragments,
                free_pieces: space.pieces,
                moved: carer.moved(),
                written: self.place.device().sample()?.since(&begun).written_bytes,
            });
        }
        let name = carer.name();
        carer.end()?;
        Ok(Course { care, name, evenings, verdict: None })
    }
}

fn unsuitable(directory: &Path, error: AgeError) -> BenchError {
    match error {
        AgeError::Interrupted(_) => BenchError::Interrupted,
        error => BenchError::Unsuitable { path: directory.to_owned(), problem: error.to_string() },
    }
}
