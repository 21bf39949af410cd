//! Reads files one after the other from a cold cache: the cost of fragments for readers, and the benefit of `longrun
//! optimize`.
//!
//! Owns the compared layouts, and the judgement. The files are read through the page cache with requests of 128 KiB,
//! as copying and backup do; the kernel's read-ahead is unchanged.

mod report;

pub use report::{Line, ReadsReport};

use crate::layouts::{Arrangement, LayoutSettings, Layouts, Stage, read_through, timed};
use crate::{BenchError, Place};
use longrun_layout::Bytes;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What is compared.
pub const ARRANGEMENTS: [Arrangement; 6] = [
    Arrangement::Whole,
    Arrangement::Fragments(Bytes(64 << 10)),
    Arrangement::Fragments(Bytes(16 << 10)),
    Arrangement::Shuffled(Bytes(16 << 10)),
    Arrangement::Fragments(Bytes(4 << 10)),
    Arrangement::Optimized(Bytes(16 << 10)),
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
        Layouts::prepare(target, settings, &ARRANGEMENTS, Bytes(0), stop, stage).map(Self)
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
        let lines =
            layouts.laid().iter().zip(passes).map(|(laid, passes)| Line::of(laid.arrangement, laid.fragments, passes));
        Ok(ReadsReport::of(layouts.settings().bytes, layouts.settings().iterations, lines.collect()))
    }
}
