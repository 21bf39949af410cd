//! Unpacks a large software tree onto an aged volume and onto an optimized one: the effect on an installer.
//!
//! Owns the order of the measurement, and the judgement. Two volumes take turns; on a single volume all runs before
//! its optimization come first. An unpacking is complete when it is durable. The unpacked files are removed again; the
//! removal is not measured. In addition to the counters of the device, the I/O trace shows the places of its requests.

mod report;
mod software;

pub use report::{InstallReport, Side, Traced};
pub use software::{Software, Source};

use crate::device::{Activity, Device};
use crate::layouts::{Stage, Step, optimize};
use crate::{BenchError, Layout, Place, SpaceState, layout_of};
use longrun_iotrace::{Options, TraceError, Tracer};
use longrun_layout::Bytes;
use longrun_sys::BlockDevice;
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Space that stays free for others.
const SPARE: u64 = 128 << 20;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unpacking {
    /// How long it took, until it was durable.
    pub seconds: f64,
    /// What the device did meanwhile.
    pub device: Activity,
    /// On a modelled disk, how many seconds that was busy by its model: a busy host does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modelled_busy_seconds: Option<f64>,
    /// The layout of the unpacked files.
    pub layout: Layout,
    /// The figures of the trace; `None` where the kernel does not support tracing.
    pub traced: Option<Traced>,
}

/// What is unpacked, and where.
#[derive(Debug)]
pub struct Install<'a> {
    software: &'a Software,
    iterations: u32,
    places: Vec<Place>,
    stop: &'a AtomicBool,
}

/// What is known of a volume so far.
#[derive(Default)]
struct Known {
    space: SpaceState,
    runs: Vec<Unpacking>,
}

impl<'a> Install<'a> {
    /// Makes new directories in `targets`: one, or those on the aged and the optimized volume.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub fn prepare(
        targets: &[&Path],
        software: &'a Software,
        iterations: u32,
        stop: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let needed = Bytes(software.room().0.saturating_add(SPARE));
        let places = targets.iter().map(|target| Place::with_room(target, needed)).collect::<Result<Vec<_>, _>>()?;
        if let ([first, second], [_, target]) = (places.as_slice(), targets)
            && first.device().number() == second.device().number()
        {
            let problem = "it is on the same volume as the other directory; use a directory on an optimized copy of that \
                 volume";
            return Err(BenchError::Unsuitable { path: target.to_path_buf(), problem: problem.to_owned() });
        }
        Ok(Self { software, iterations: iterations.max(1), places, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Unpacks on the aged and the optimized volume in turn, as often as requested.
    ///
    /// # Errors
    /// [`BenchError`], those of the stages among them.
    pub fn by_turns(&self, stages: [&mut dyn Stage; 2]) -> Result<InstallReport, BenchError> {
        let [aged, optimized] = self.places.as_slice() else { return Err(self.wants("two volumes")) };
        let [on_aged, on_optimized] = stages;
        let mut sides = [
            ("unpacking on the aged volume", aged, on_aged, Known::default()),
            ("unpacking on the optimized volume", optimized, on_optimized, Known::default()),
        ];
        for (_, place, stage, known) in &mut sides {
            known.space = free_space(place, *stage)?;
        }
        let of = u64::from(self.iterations) * 2;
        for number in 0..of {
            // Each round begins with another.
            let index = (number / 2 + number) % 2;
            let Some((what, place, stage, known)) = sides.get_mut(index as usize) else { continue };
            known.runs.push(self.unpack(place, *stage, Step { what, number, of })?);
        }
        let [(.., aged), (.., optimized)] = sides;
        Ok(InstallReport::of(self.software, aged, optimized))
    }

    /// Unpacks on one volume as often as requested, lets `program` optimize the whole volume, and unpacks as often again.
    ///
    /// # Errors
    /// [`BenchError`], those of `stage` and of the optimizer among them.
    pub fn around_optimizing(&self, program: &Path, stage: &mut dyn Stage) -> Result<InstallReport, BenchError> {
        let [place] = self.places.as_slice() else { return Err(self.wants("one volume")) };
        let of = u64::from(self.iterations) * 2 + 1;
        let side = |first: u64, what: &str, stage: &mut dyn Stage| {
            let mut known = Known { space: free_space(place, stage)?, runs: Vec::new() };
            for number in first..first + u64::from(self.iterations) {
                known.runs.push(self.unpack(place, stage, Step { what, number, of })?);
            }
            Ok(known)
        };
        let before = side(0, "unpacking before optimizing", stage)?;
        let number = u64::from(self.iterations);
        stage.making(Step { what: "the optimized volume", number, of });
        optimize(program, &["--mode", "full", "--pace", "fast"], &place.mount().point, self.stop)?;
        let after = side(number + 1, "unpacking after optimizing", stage)?;
        Ok(InstallReport::of(self.software, before, after))
    }

    fn wants(&self, what: &str) -> BenchError {
        let path = self.places.first().map(|place| place.scratch().path().to_owned()).unwrap_or_default();
        BenchError::Unsuitable { path, problem: format!("this comparison wants {what}") }
    }

    fn unpack(&self, place: &Place, stage: &mut dyn Stage, step: Step<'_>) -> Result<Unpacking, BenchError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        self.software.read_into_memory(self.stop)?;
        stage.begin(step)?;
        let work = place.scratch().fresh()?;
        durable(&work)?;
        let tracer = trace(place.device());
        let (before, start) = (place.device().sample()?, Instant::now());
        self.software.unpack(&work, self.stop)?;
        durable(&work)?;
        let seconds = start.elapsed().as_secs_f64();
        let device = place.device().sample()?.since(&before);
        let traced = tracer.ok().and_then(|tracer| tracer.recording().ok()).map(|recording| Traced::of(&recording));
        let modelled_busy_seconds = stage.end()?;
        let mut layout = Layout::default();
        // Durable, too: the blocks shall be free, and their journal commit no part of what comes next.
        stage.aside(&mut || {
            layout = layout_of(&work, &[])?.0;
            place.scratch().clear()?;
            durable(place.scratch().path())
        })?;
        Ok(Unpacking { seconds, device, modelled_busy_seconds, layout, traced })
    }
}

fn trace(device: &Device) -> Result<Tracer, TraceError> {
    let known = BlockDevice::numbered(device.number());
    let devices = known.map_err(|e| TraceError::Broken { detail: e.to_string() })?;
    Tracer::start(device.name(), &[devices], Options::default())
}

fn free_space(place: &Place, stage: &mut dyn Stage) -> Result<SpaceState, BenchError> {
    let mut space = SpaceState::default();
    stage.aside(&mut || {
        space = SpaceState::at_rest(place.scratch().path())?;
        Ok(())
    })?;
    Ok(space)
}

fn durable(directory: &Path) -> Result<(), BenchError> {
    let failed = |e| BenchError::io("syncing it", directory, e);
    let opened = File::open(directory).map_err(failed)?;
    longrun_sys::sync_volume(&opened).map_err(|e| failed(e.into()))
}
