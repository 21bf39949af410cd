//! The comparison: the same work with the service and without it, in turn, from the same state.
//!
//! Owns the order of the steps. At the start of an iteration the directory is empty, and the free space is as before
//! the first iteration. The service is started (or not), and is ready. The work is done and measured. The service is
//! stopped, which gives everything back. All data is made durable. The files are examined, read again from a cold
//! cache, and deleted. Iterations come in pairs, and every second pair begins with the other side, so that slow
//! changes affect both sides equally.

mod averages;

pub use averages::median;
pub use averages::{Averages, Comparison};

use crate::device::Activity;
use crate::reread::{Reread, reread};
use crate::workload::{self, Done, Job, Parameters, Profile};
use crate::{BenchError, Layout, Place, Service, SpaceState, Splits, layout_of};
use longrun_layout::Bytes;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Requests that sequential readers make, by which splits are counted where a profile has no size of its own.
const COMMON_REQUEST: Bytes = Bytes(64 << 10);
/// Space that stays free besides what the work needs and the service may grant.
const SPARE: u64 = 256 << 20;

/// Whether the service ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Without it.
    Off,
    /// With it.
    On,
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `longrun` that is the service.
    pub program: PathBuf,
    /// How often with the service, and as often without it.
    pub iterations: u32,
    /// How much work.
    pub parameters: Parameters,
    /// Whether the files are read again, cold.
    pub reread: bool,
}

/// What the service cost during the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Processor time, in per cent of one core.
    pub processor_percent: f64,
    /// The time that the kernel spent on watching, which is part of the writers' time; `None` if it is not measured.
    pub in_kernel_percent: Option<f64>,
    /// The most memory that it had.
    pub peak_memory: Bytes,
    /// What it printed at its end.
    pub totals: serde_json::Value,
}

/// One run of the work, and what it left.
#[derive(Clone, Debug, Serialize)]
pub struct Iteration {
    /// With the service or without.
    pub side: Side,
    /// How long the work took.
    pub seconds: f64,
    /// What was done.
    pub done: Done,
    /// How the files lie.
    pub layout: Layout,
    /// Requests of the size of the work that lie in more than one place.
    pub splits: Splits,
    /// What the device did during the work.
    pub device: Activity,
    /// Reading everything again.
    pub reread: Option<Reread>,
    /// What the service cost.
    pub service: Option<Cost>,
    /// The free space before.
    pub space: SpaceState,
    /// Whether that was as it had been before the first iteration.
    pub same_state: bool,
}

/// A place where things are compared.
#[derive(Debug)]
pub struct Bench<'a> {
    settings: Settings,
    place: Place,
    stop: &'a AtomicBool,
}

impl<'a> Bench<'a> {
    /// Makes ready to compare in a new directory in `target`, which is removed when this is dropped.
    ///
    /// # Errors
    /// [`BenchError::TooLittleSpace`] when the largest of `profiles` does not fit; [`BenchError::Unsuitable`] when
    /// nothing can be measured there.
    pub fn new(
        target: &Path,
        profiles: &[Profile],
        settings: Settings,
        stop: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let needed =
            profiles.iter().map(|profile| profile.space_needed(&settings.parameters).0).max().unwrap_or_default();
        // Runways hold as much again for a moment, and a file system that is nearly full behaves differently.
        let needed = Bytes(needed.saturating_mul(2).saturating_add(SPARE));
        Ok(Self { settings, place: Place::with_room(target, needed)?, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Compares one profile; `progress` is called before each iteration.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then, or is when this is dropped.
    pub fn compare(
        &self,
        profile: Profile,
        progress: &mut dyn FnMut(Profile, Side, u32),
    ) -> Result<Comparison, BenchError> {
        let mut iterations = Vec::new();
        let first = SpaceState::at_rest(self.place.scratch().path())?;
        for pair in 0..self.settings.iterations.max(1) {
            let order = if pair % 2 == 0 { [Side::On, Side::Off] } else { [Side::Off, Side::On] };
            for side in order {
                progress(profile, side, pair);
                let space = SpaceState::settled(self.place.scratch().path(), &first)?;
                iterations.push(self.iterate(profile, side, space, space.is_like(&first))?);
            }
        }
        Ok(Comparison::of(profile, self.settings.parameters, iterations))
    }

    fn iterate(
        &self,
        profile: Profile,
        side: Side,
        space: SpaceState,
        same_state: bool,
    ) -> Result<Iteration, BenchError> {
        let directory = self.place.scratch().fresh()?;
        let job = Job { directory: &directory, parameters: self.settings.parameters, stop: self.stop };
        let mut service = match side {
            Side::On => Some(Service::start(&self.settings.program, &self.place.mount().point)?),
            Side::Off => None,
        };
        let usage = service.as_mut().map(Service::usage).transpose()?;
        let (before, start) = (self.place.device().sample()?, Instant::now());
        let done = workload::run(profile, &job)?;
        let seconds = start.elapsed().as_secs_f64();
        let device = self.place.device().sample()?.since(&before);
        let service = match (service, usage) {
            (Some(mut service), Some(before)) => {
                let after = service.usage()?;
                let (processor_percent, in_kernel_percent) = after.percent_since(&before, seconds);
                Some(Cost {
                    processor_percent,
                    in_kernel_percent,
                    peak_memory: after.peak_memory,
                    totals: service.stop()?,
                })
            }
            _ => None,
        };
        job.check()?;
        // Now the files are as whoever comes next finds them.
        SpaceState::of(&directory)?;
        let request = if done.request.0 > 0 { done.request } else { COMMON_REQUEST };
        let (layout, splits) = layout_of(&directory, &[request])?;
        let splits = splits.into_iter().next().unwrap_or_default();
        let reread = match self.settings.reread {
            true => Some(reread(&directory, self.place.device(), self.stop)?),
            false => None,
        };
        self.place.scratch().clear()?;
        Ok(Iteration { side, seconds, done, layout, splits, device, reread, service, space, same_state })
    }
}
