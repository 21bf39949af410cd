//! One file after the other, read from its beginning to its end from a cold cache: what fragments cost whoever reads, and
//! what `longrun optimize` gives back.
//!
//! Owns the files (the same bytes in several layouts), the order of reading, and the judgement. Files are read through the
//! page cache by requests of 128 KiB, as copying and backup do it; the kernel reads ahead as it likes. Layouts take turns,
//! each round beginning with another, so that whatever changes slowly meets all alike.

mod layouts;
mod report;

pub use layouts::Lie;
pub use report::{Line, ReadsReport};

use crate::device::Activity;
use crate::{BenchError, Place};
use layouts::Laid;
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The size of the requests.
pub const SEQUENTIAL_REQUEST: Bytes = Bytes(128 << 10);
/// Space that stays free for others.
const SPARE: u64 = 128 << 20;

/// How to measure.
#[derive(Clone, Debug)]
pub struct ReadsSettings {
    /// The `longrun` that optimizes.
    pub program: PathBuf,
    /// How large each file is.
    pub bytes: Bytes,
    /// How often each is read.
    pub iterations: u32,
    /// Of the order of shuffled fragments.
    pub seed: u64,
}

/// One reading of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ColdRead {
    /// How long it took.
    pub seconds: f64,
    /// What the device did meanwhile.
    pub device: Activity,
}

/// Files that are ready to be read.
#[derive(Debug)]
pub struct Reads<'a> {
    settings: ReadsSettings,
    place: Place,
    files: Vec<Laid>,
    stop: &'a AtomicBool,
}

impl<'a> Reads<'a> {
    /// Makes the files in a new directory in `target` (elsewhere than on ext4 only whole and shuffled ones); `progress` is told what is being made.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub fn prepare(
        target: &Path,
        settings: ReadsSettings,
        stop: &'a AtomicBool,
        progress: &mut dyn FnMut(Lie),
    ) -> Result<Self, BenchError> {
        // All the files, and once more one of them while it is fragmented or optimized.
        let needed = settings.bytes.0.saturating_mul(Lie::ALL.len() as u64 + 2).saturating_add(SPARE);
        let place = Place::with_room(target, Bytes(needed))?;
        let mut files = Vec::new();
        for lie in Lie::ALL {
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            progress(lie);
            files.extend(Laid::make(place.scratch().path(), lie, &settings)?);
        }
        Ok(Self { settings, place, files, stop })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reads everything as often as is wanted. Before each reading `cold` may do more than taking the file out of the page
    /// cache, which is done anyway; `progress` is told what is read.
    ///
    /// # Errors
    /// [`BenchError`], those of `cold` among them.
    pub fn measure(
        &self,
        cold: &mut dyn FnMut() -> Result<(), BenchError>,
        progress: &mut dyn FnMut(Lie, u32),
    ) -> Result<ReadsReport, BenchError> {
        let mut reads: Vec<Vec<ColdRead>> = vec![Vec::new(); self.files.len()];
        for round in 0..self.settings.iterations.max(1) {
            for turn in 0..self.files.len() {
                let index = (turn + round as usize) % self.files.len();
                let (Some(file), Some(reads)) = (self.files.get(index), reads.get_mut(index)) else { continue };
                progress(file.lie, round);
                cold()?;
                reads.push(self.read(&file.path)?);
            }
        }
        let lines = self.files.iter().zip(reads).map(|(file, reads)| Line::of(file.lie, file.fragments, reads));
        Ok(ReadsReport::of(self.settings.bytes, self.settings.iterations, lines.collect()))
    }

    fn read(&self, path: &Path) -> Result<ColdRead, BenchError> {
        let failed = |e| BenchError::io("reading it", path, e);
        let mut file = File::open(path).map_err(failed)?;
        longrun_sys::drop_cache(&file, ByteRange::ALL).map_err(|e| failed(e.into()))?;
        let mut buffer = vec![0; SEQUENTIAL_REQUEST.0 as usize];
        let (before, start) = (self.place.device().sample()?, Instant::now());
        while file.read(&mut buffer).map_err(failed)? > 0 {
            if self.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(ColdRead { seconds, device: self.place.device().sample()?.since(&before) })
    }
}
