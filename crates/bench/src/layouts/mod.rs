//! The same data in several layouts, measured in turn: the common part of the benchmarks `reads`, `copy` and `oltp`.
//!
//! Owns the files, their arrangement, and the order of the measurement. Layouts take turns, and each round begins with
//! another one, so that slow changes affect all layouts equally. Never judges.

mod arrangement;
mod reading;
mod stage;

pub use arrangement::Arrangement;
pub use reading::{Pass, SEQUENTIAL_REQUEST};
pub(crate) use reading::{modelled_busy, read_through, timed};
pub use stage::{Stage, Step};

use crate::{BenchError, Place, child, lay, layout_of};
use longrun_layout::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Space that stays free for others.
const SPARE: u64 = 128 << 20;

/// What is laid, and how often it is measured.
#[derive(Clone, Debug)]
pub struct LayoutSettings {
    /// The `longrun` that optimizes.
    pub program: PathBuf,
    /// How many files there are in each layout.
    pub files: u32,
    /// How large all files of a layout are together.
    pub bytes: Bytes,
    /// How often each layout is measured.
    pub iterations: u32,
    /// Of the order of shuffled fragments, and of whatever else is random.
    pub seed: u64,
}

/// Files with one arrangement.
#[derive(Debug)]
pub(crate) struct Laid {
    pub arrangement: Arrangement,
    /// Nothing but the files is in it.
    pub directory: PathBuf,
    pub files: Vec<PathBuf>,
    /// Of all files together.
    pub fragments: u64,
}

/// All layouts, ready to be measured.
#[derive(Debug)]
pub struct Layouts<'a> {
    settings: LayoutSettings,
    place: Place,
    laid: Vec<Laid>,
    stop: &'a AtomicBool,
}

impl<'a> Layouts<'a> {
    /// Makes the files in a new directory in `target` (elsewhere than on ext4 only whole and shuffled ones), with
    /// room for another `room` bytes.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub(crate) fn prepare(
        target: &Path,
        settings: LayoutSettings,
        arrangements: &[Arrangement],
        room: Bytes,
        stop: &'a AtomicBool,
        stage: &mut dyn Stage,
    ) -> Result<Self, BenchError> {
        // All the files, and once more one of them while it is fragmented or optimized.
        let needed = settings.bytes.0.saturating_mul(arrangements.len() as u64 + 2).saturating_add(SPARE + room.0);
        let place = Place::with_room(target, Bytes(needed))?;
        let mut laid = Vec::new();
        for (number, arrangement) in arrangements.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            stage.making(Step { what: &arrangement.to_string(), number: number as u64, of: arrangements.len() as u64 });
            laid.extend(Laid::make(place.scratch().path(), *arrangement, &settings, stop)?);
        }
        Ok(Self { settings, place, laid, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What is measured.
    #[must_use]
    pub fn settings(&self) -> &LayoutSettings {
        &self.settings
    }

    pub(crate) fn laid(&self) -> &[Laid] {
        &self.laid
    }

    pub(crate) fn stop(&self) -> &'a AtomicBool {
        self.stop
    }

    /// Has each of `acts` done to each layout as often as is wanted, and collects what that gave, in the order of the
    /// layouts. An act is told by its name, and does not begin before the stage is set.
    pub(crate) fn in_turn<A: Copy, T>(
        &self,
        acts: &[(String, A)],
        stage: &mut dyn Stage,
        mut perform: impl FnMut(&Laid, A, &mut dyn Stage) -> Result<T, BenchError>,
    ) -> Result<Vec<Vec<(A, T)>>, BenchError> {
        let rounds = self.settings.iterations.max(1) as usize;
        let of = (rounds * self.laid.len() * acts.len()) as u64;
        let mut results: Vec<Vec<(A, T)>> = self.laid.iter().map(|_| Vec::new()).collect();
        let mut number = 0;
        for round in 0..rounds {
            for turn in 0..self.laid.len() {
                let index = (turn + round) % self.laid.len();
                let (Some(laid), Some(results)) = (self.laid.get(index), results.get_mut(index)) else { continue };
                for (name, act) in acts {
                    if self.stop.load(Ordering::Relaxed) {
                        return Err(BenchError::Interrupted);
                    }
                    stage.begin(Step { what: &format!("{name}: {}", laid.arrangement), number, of })?;
                    results.push((*act, perform(laid, *act, stage)?));
                    number += 1;
                }
            }
        }
        Ok(results)
    }
}

impl Laid {
    /// Makes them in a directory of their own in `parent`; `None` if this arrangement is not possible on the file system.
    fn make(
        parent: &Path,
        arrangement: Arrangement,
        settings: &LayoutSettings,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, BenchError> {
        let directory = parent.join(arrangement.to_string().replace([' ', ','], "-"));
        fs::create_dir(&directory).map_err(|e| BenchError::io("creating a directory", &directory, e))?;
        let count = u64::from(settings.files.max(1));
        let bytes = Bytes((settings.bytes.0 / count).max(1));
        let files: Vec<PathBuf> = (0..count).map(|number| directory.join(format!("file{number}"))).collect();
        for (path, seed) in files.iter().zip(settings.seed..) {
            lay::whole(path, bytes, seed)?;
        }
        for (path, seed) in files.iter().zip(settings.seed..) {
            if let Some((piece, shuffled)) = arrangement.piece()
                && !lay::in_pieces(path, bytes, piece, shuffled, seed)?
            {
                return Ok(None);
            }
        }
        if matches!(arrangement, Arrangement::Optimized(_)) {
            // Not measured: there is nothing to wait for.
            optimize(&settings.program, &["--mode", "files", "--pace", "fast"], &directory, stop)?;
        }
        let (layout, _) = layout_of(&directory, &[])?;
        Ok(Some(Self { arrangement, directory, files, fragments: layout.fragments }))
    }
}

/// Has `longrun optimize` do what `arguments` say to what is at `path`.
///
/// # Errors
/// When it fails, or was asked to stop.
pub(crate) fn optimize(program: &Path, arguments: &[&str], path: &Path, stop: &AtomicBool) -> Result<(), BenchError> {
    let mut command = Command::new(program);
    command.args(["optimize", "--alone", "--json"]).args(arguments).arg(path);
    let finished = child::run(&mut command, stop)?;
    if finished.status.success() {
        return Ok(());
    }
    let problem = format!("optimizing it failed: {}", finished.said);
    Err(BenchError::Unsuitable { path: path.to_owned(), problem })
}
