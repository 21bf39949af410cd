//! One file after the other, read from its beginning to its end from a cold cache: what fragments cost whoever reads, and
//! what `longrun optimize` gives back.
//!
//! Owns which layouts are compared, and the judgement. The files are read through the page cache by requests of 128 KiB, as
//! copying and backup do it; the kernel reads ahead as it likes.

mod report;

pub use report::{Line, ReadsReport};

use crate::layouts::{LayoutSettings, Layouts, Lie, Stage, read_through, timed};
use crate::{BenchError, Place};
use longrun_layout::Bytes;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What is compared.
pub const LIES: [Lie; 6] = [
    Lie::Whole,
    Lie::Fragments(Bytes(64 << 10)),
    Lie::Fragments(Bytes(16 << 10)),
    Lie::Shuffled(Bytes(16 << 10)),
    Lie::Fragments(Bytes(4 << 10)),
    Lie::Optimized(Bytes(16 << 10)),
];

/// Files that are ready to be read.
#[derive(Debug)]
pub struct Reads<'a>(Layouts<'a>);

impl<'a> Reads<'a> {
    /// Makes the files in a new directory in `target` (elsewhere than on ext4 only whole and shuffled ones).
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub fn prepare(
        target: &Path,
        settings: LayoutSettings,
        stop: &'a AtomicBool,
        stage: &mut dyn Stage,
    ) -> Result<Self, BenchError> {
        Layouts::prepare(target, settings, &LIES, Bytes(0), stop, stage).map(Self)
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.0.place()
    }

    /// Reads everything as often as is wanted.
    ///
    /// # Errors
    /// [`BenchError`], those of `stage` among them.
    pub fn measure(&self, stage: &mut dyn Stage) -> Result<ReadsReport, BenchError> {
        let layouts = &self.0;
        let acts = [("reading".to_owned(), ())];
        let passes = layouts.in_turn(&acts, stage, |laid, (), stage| {
            timed(laid, layouts.place().device(), stage, &mut || {
                laid.files.iter().try_for_each(|path| read_through(path, None, layouts.stop()))
            })
        })?;
        let passes = passes.into_iter().map(|passes| passes.into_iter().map(|((), pass)| pass).collect());
        let lines = layouts.laid().iter().zip(passes).map(|(laid, passes)| Line::of(laid.lie, laid.fragments, passes));
        Ok(ReadsReport::of(layouts.settings().bytes, layouts.settings().iterations, lines.collect()))
    }
}
