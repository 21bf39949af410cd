//! What the engine's tests share: random plans, observers that interfere, and seeds that can be replayed.

use crate::placed::{PlanSource, optimize_with};
use crate::sim::{SimVolume, recipes};
use crate::{Observer, PassError, Report, Settings, Turn};
use fastrand::Rng;
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileIndex, FileMove, PhysicalBlock, Run, VolumeLayout, count_fragments,
};
use longrun_planner::{Batch, PlannedMove, Policy, Step, Why};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Runs `check` for the seeds below `count`, or below LONGRUN_SEEDS; a failure names its seed and how to replay it.
pub(super) fn for_seeds(test: &str, count: u64, check: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = number("LONGRUN_ONLY_SEED").map_or(0..number("LONGRUN_SEEDS").unwrap_or(count), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("replay: LONGRUN_ONLY_SEED={seed} cargo test -p longrun-engine {test}");
            resume_unwind(panic);
        }
    }
}

/// A plan of random legal moves, each file in one go.
#[derive(Clone, Copy, Debug)]
pub(super) struct RandomPlan {
    pub seed: u64,
    /// Only whole files into one place, so that no move leaves a file in more fragments; else any part anywhere.
    pub tidy: bool,
}

impl PlanSource for RandomPlan {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let batches = Dice::new(self.seed, layout, policy.reserve).batches(self.tidy);
        Box::new(batches.into_iter())
    }
}

/// A plan that was written down.
#[derive(Clone, Debug)]
pub(super) struct FixedPlan(pub Vec<Batch>);

impl PlanSource for FixedPlan {
    fn plan<'l>(&self, _layout: &'l VolumeLayout, _policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        Box::new(self.0.clone().into_iter())
    }
}

struct Dice {
    rng: Rng,
    free: ExtentSet,
    reserve: Blocks,
    files: BTreeMap<FileIndex, Vec<Run>>,
}

impl Dice {
    fn new(seed: u64, layout: &VolumeLayout, reserve: Blocks) -> Self {
        let movable = layout.files().filter(|f| f.is_movable() && f.size().0 > 0);
        Self {
            rng: Rng::with_seed(seed),
            free: layout.free().iter().copied().collect(),
            reserve,
            files: movable.map(|f| (f.index, f.runs().collect())).collect(),
        }
    }

    fn batches(mut self, tidy: bool) -> Vec<Batch> {
        let mut batches = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let mut batch = Batch::default();
            for _ in 0..self.rng.usize(1..12) {
                let Some(step) = self.unit(tidy) else { continue };
                batch.steps.extend(step.into_iter().map(|step| Step::Move(PlannedMove { step, why: Why::Defragment })));
                if self.rng.u8(..4) == 0 {
                    batch.steps.push(Step::Barrier);
                }
            }
            batches.push(batch);
        }
        batches
    }

    fn unit(&mut self, tidy: bool) -> Option<Vec<FileMove>> {
        if self.files.is_empty() {
            return None;
        }
        let (&file, runs) = self.files.iter().nth(self.rng.usize(..self.files.len()))?;
        let mut runs = runs.clone();
        if !tidy {
            let run = runs[self.rng.usize(..runs.len())];
            let offset = self.rng.u64(..run.length.0);
            let length = self.rng.u64(1..=run.length.0 - offset);
            runs = vec![Run::new(run.logical.0 + offset, run.physical.0 + offset, length)];
        }
        let size: Blocks = runs.iter().map(|r| r.length).sum();
        let pieces: Vec<Extent> = self.free.iter().filter(|e| e.length >= size).collect();
        if pieces.is_empty() || self.free.total() < size + self.reserve {
            return None;
        }
        let piece = pieces[self.rng.usize(..pieces.len())];
        let mut target = PhysicalBlock(piece.start.0 + self.rng.u64(..=piece.length.0 - size.0));
        let mut moves = Vec::new();
        for run in runs {
            moves.push(FileMove { file, logical: run.logical, source: run.physical, target, length: run.length });
            target = target + run.length;
        }
        for step in &moves {
            self.free.remove(step.occupies());
            self.free.insert(step.vacates());
        }
        let moved = |run: &Run| {
            let step = moves.iter().find(|m| m.logical <= run.logical && run.logical < m.logical + m.length)?;
            Some(Run { physical: step.target + (run.logical - step.logical), ..*run })
        };
        if tidy {
            let runs = self.files.get_mut(&file)?;
            runs.iter_mut().for_each(|run| *run = moved(run).unwrap_or(*run));
        } else {
            // Its parts lie here and there now: leave it alone from here on.
            self.files.remove(&file);
        }
        Some(moves)
    }
}

/// Cancels at the n-th question, and never really waits.
#[derive(Debug, Default)]
pub(super) struct Impatient {
    pub cancel_at: Option<u64>,
    pub asked: Cell<u64>,
    pub skips: usize,
    pub waited: Duration,
}

impl Observer for Impatient {
    fn skipped(&mut self, _file: longrun_layout::FileId, _reason: crate::SkipReason) {
        self.skips += 1;
    }

    fn cancelled(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.cancel_at.is_some_and(|at| self.asked.get() >= at)
    }

    /// So that everything is tested with the longest way between asking and exchanging.
    fn turn(&self) -> Turn {
        Turn { pieces: 1, ..Turn::UNLIMITED }
    }

    fn wait(&mut self, time: Duration) {
        self.waited += time;
    }
}

/// Settings that make small volumes see chunks, windows and epochs.
pub(super) fn small_settings(seed: u64) -> Settings {
    let mut rng = Rng::with_seed(seed ^ 0x5e77);
    Settings {
        chunk: Bytes(rng.u64(1..20) * 4096),
        epoch: Bytes(rng.u64(4..200) * 4096),
        window: Bytes(rng.u64(1..100) * 4096),
        reserve: rng.bool().then_some(Bytes(0)),
        patience: Duration::from_secs(2),
        ..Settings::default()
    }
}

/// A small volume without any pattern.
pub(super) fn small_volume(seed: u64) -> SimVolume {
    let blocks = Rng::with_seed(seed).u64(60..700);
    SimVolume::new(recipes::scattered(seed, Blocks(blocks)), seed)
}

pub(super) fn run(volume: &mut SimVolume, settings: &Settings, plan: &dyn PlanSource) -> Result<Report, PassError> {
    optimize_with(volume, settings, &mut Impatient::default(), plan)
}

pub(super) fn tidy(seed: u64) -> RandomPlan {
    RandomPlan { seed, tidy: true }
}

pub(super) fn untidy(seed: u64) -> RandomPlan {
    RandomPlan { seed, tidy: false }
}

/// The sum over files of fragments.
pub(super) fn fragments(layout: &VolumeLayout) -> u64 {
    layout.files().map(|f| count_fragments(f.runs())).sum()
}
