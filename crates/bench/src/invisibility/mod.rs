//! The effect of an optimizer on other programs: on a copy of a large file, and on small reads at random times.
//!
//! Owns the files, the order of the work, and the figures. In every round each mode of the optimizer (none,
//! unthrottled, in the idle I/O class, invisible) has one turn, and each round begins with another mode. The optimizer
//! works on fragmented files of its own, which are fragmented again when too few fragments are left.

mod background;
mod foreground;
mod report;

pub use background::Mode;
pub use report::{InvisibilityReport, Line};

use crate::device::Sample;
use crate::{BenchError, Place, lay, layout_of};
use background::Background;
use longrun_layout::Bytes;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The work of the optimizer: the number of files, their size, and the size of their pieces.
const WORK_FILES: u64 = 12;
const WORK_FILE: Bytes = Bytes(16 << 20);
const PIECE: Bytes = Bytes(8 << 10);
/// The time until it works at full speed.
const UNDER_WAY: Duration = Duration::from_millis(1500);
/// How long it is observed without other I/O, unless it ends sooner. This includes its start, when it learns about
/// the disk.
const ENOUGH: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// Space that stays free for others.
const SPARE: u64 = 256 << 20;

/// How to measure.
#[derive(Clone, Debug)]
pub struct InvisibilitySettings {
    /// The `longrun` that optimizes.
    pub program: PathBuf,
    /// In which modes.
    pub modes: Vec<Mode>,
    /// How large the copied file is.
    pub copy: Bytes,
    /// How many small reads there are in a round.
    pub reads: u32,
    /// How many of them come in a second, on average.
    pub reads_per_second: f64,
    /// How many small writes are made durable in a second meanwhile, on average.
    pub writes_per_second: f64,
    /// Rounds.
    pub iterations: u32,
    /// Of everything random.
    pub seed: u64,
}

/// Work that is not measured.
pub type Aside<'a> = &'a mut dyn FnMut(&dyn Fn() -> Result<(), BenchError>) -> Result<(), BenchError>;

/// One turn of one mode.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Turn {
    /// How long the copy took, until it was durable.
    pub copy_seconds: f64,
    /// MB a second that the device wrote for the optimizer meanwhile.
    pub beside_copy: f64,
    /// How long each small read took, in milliseconds.
    pub reads: Vec<f64>,
    /// How long each small write took until it was durable, in milliseconds.
    pub writes: Vec<f64>,
    /// MB a second that the device wrote beside these requests, not counting the blocks of the small writes themselves.
    pub beside_reads: f64,
    /// MB per second that the device wrote for the optimizer without other I/O, including its start and end.
    pub alone: f64,
    /// Whether the optimizer had something to do all the time.
    pub busy: bool,
}

/// A volume where it is measured.
#[derive(Debug)]
pub struct Invisibility<'a> {
    settings: InvisibilitySettings,
    place: Place,
    stop: &'a AtomicBool,
}

impl<'a> Invisibility<'a> {
    /// Makes the files in a new directory in `target`.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub fn prepare(target: &Path, settings: InvisibilitySettings, stop: &'a AtomicBool) -> Result<Self, BenchError> {
        let needed = Bytes(settings.copy.0 * 2 + WORK_FILES * WORK_FILE.0 * 2 + SPARE);
        let place = Place::with_room(target, needed)?;
        let scratch = place.scratch();
        for name in [foreground::SOURCE, foreground::COPY] {
            lay::whole(&scratch.path().join(name), settings.copy, settings.seed)?;
        }
        let work = scratch.fresh()?;
        for number in 0..WORK_FILES {
            lay::whole(&work.join(number.to_string()), WORK_FILE, settings.seed + number)?;
        }
        Ok(Self { settings, place, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Measures every mode in every round. `aside` does the work that is not measured (on a modelled disk in no
    /// time); `progress` receives the next step.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn measure(
        &self,
        aside: Aside<'_>,
        progress: &mut dyn FnMut(Mode, u32),
    ) -> Result<InvisibilityReport, BenchError> {
        let modes = &self.settings.modes;
        let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); modes.len()];
        for round in 0..self.settings.iterations.max(1) {
            for turn in 0..modes.len() {
                let index = (turn + round as usize) % modes.len();
                let (Some(mode), Some(turns)) = (modes.get(index), turns.get_mut(index)) else { continue };
                progress(*mode, round);
                turns.push(self.turn(*mode, round, aside)?);
            }
        }
        let lines = modes.iter().zip(turns).map(|(mode, turns)| Line::of(*mode, turns)).collect();
        Ok(InvisibilityReport::of(&self.settings, lines))
    }

    fn turn(&self, mode: Mode, round: u32, aside: Aside<'_>) -> Result<Turn, BenchError> {
        let mut turn = Turn { busy: true, ..Turn::default() };
        let directory = self.place.scratch().path();
        let seed = self.settings.seed + u64::from(round);

        aside(&|| self.fragment())?;
        let mut background = Background::start(mode, &self.settings.program, &self.work())?;
        std::thread::sleep(UNDER_WAY);
        let before = self.place.device().sample()?;
        turn.copy_seconds = foreground::copy(directory, self.stop)?;
        turn.beside_copy = self.written_beside(&before, self.settings.copy)?;
        turn.busy &= background.is_at_work()?;
        background.stop()?;

        aside(&|| self.fragment())?;
        let mut background = Background::start(mode, &self.settings.program, &self.work())?;
        std::thread::sleep(UNDER_WAY);
        let &InvisibilitySettings { reads, reads_per_second, writes_per_second, .. } = &self.settings;
        let before = self.place.device().sample()?;
        let load = foreground::Load { reads, reads_per_second, writes_per_second };
        let times = foreground::load(directory, load, seed, self.stop)?;
        turn.beside_reads = self.written_beside(&before, Bytes(times.writes.len() as u64 * foreground::SMALL))?;
        (turn.reads, turn.writes) = (times.reads, times.writes);
        turn.busy &= background.is_at_work()?;
        background.stop()?;

        if mode != Mode::Alone {
            aside(&|| self.fragment())?;
            turn.alone = self.undisturbed(mode)?;
        }
        if self.stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(turn) }
    }

    /// MB a second that the device has written since `before`, not counting `known` bytes.
    fn written_beside(&self, before: &Sample, known: Bytes) -> Result<f64, BenchError> {
        let device = self.place.device().sample()?.since(before);
        Ok(device.written_bytes.saturating_sub(known).0 as f64 / 1e6 / device.seconds)
    }

    /// MB per second that the device writes for an optimizer without other I/O: from its start to its end, or for as
    /// long as is enough.
    fn undisturbed(&self, mode: Mode) -> Result<f64, BenchError> {
        let before = self.place.device().sample()?;
        let mut background = Background::start(mode, &self.settings.program, &self.work())?;
        let start = Instant::now();
        while start.elapsed() < ENOUGH && background.is_at_work()? && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
        }
        let device = self.place.device().sample()?.since(&before);
        background.stop()?;
        Ok(device.written_mb_per_second())
    }

    fn work(&self) -> PathBuf {
        self.place.scratch().path().join("work")
    }

    /// Fragments the files again if too little of that is left.
    fn fragment(&self) -> Result<(), BenchError> {
        let work = self.work();
        let (layout, _) = layout_of(&work, &[])?;
        let all = WORK_FILES * (WORK_FILE.0 / PIECE.0);
        if layout.fragments < all * 9 / 10 {
            for number in 0..WORK_FILES {
                let path = work.join(number.to_string());
                _ = lay::in_pieces(&path, WORK_FILE, PIECE, true, self.settings.seed + number)?;
            }
        }
        // Nothing of it in memory: the optimizer has to read it, as it would long after.
        for entry in fs::read_dir(&work).map_err(|e| BenchError::io("listing it", &work, e))?.flatten() {
            let path = entry.path();
            let failed = |e| BenchError::io("reading it", &path, e);
            let file = File::open(&path).map_err(failed)?;
            longrun_sys::drop_cache(&file, longrun_sys::ByteRange::ALL).map_err(|e| failed(e.into()))?;
        }
        Ok(())
    }
}
