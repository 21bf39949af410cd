//! Reads and copies files from a cold cache while they are fragmented, and after `longrun optimize`: the effect on
//! `cp`, a backup or a virus scanner.
//!
//! Owns the compared layouts, the copying and the judgement. A copy is complete when it is durable. It is made in a
//! directory beside the files and removed again; the removal is not measured.

mod report;

pub use report::{CopyReport, Line};

use crate::layouts::{Arrangement, Laid, LayoutSettings, Layouts, Pass, Stage, read_through, timed};
use crate::{BenchError, Place};
use longrun_layout::Bytes;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What is compared, for a size of fragments.
const fn arrangements(piece: Bytes) -> [Arrangement; 3] {
    [Arrangement::Whole, Arrangement::Shuffled(piece), Arrangement::Optimized(piece)]
}

/// What is done with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Read,
    Copy,
}

/// Files that are ready to be copied.
#[derive(Debug)]
pub struct Copies<'a>(Layouts<'a>);

impl<'a> Copies<'a> {
    /// Makes the files, in fragments of `piece`, in a new directory in `target`.
    ///
    /// # Errors
    /// [`BenchError`]; what was made has been removed then.
    pub fn prepare(
        target: &Path,
        settings: LayoutSettings,
        piece: Bytes,
        stop: &'a AtomicBool,
        stage: &mut dyn Stage,
    ) -> Result<Self, BenchError> {
        let room = settings.bytes;
        Layouts::prepare(target, settings, &arrangements(piece), room, stop, stage).map(Self)
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.0.place()
    }

    /// Reads and copies everything as often as is wanted.
    ///
    /// # Errors
    /// [`BenchError`], those of `stage` among them.
    pub fn measure(&self, stage: &mut dyn Stage) -> Result<CopyReport, BenchError> {
        let layouts = &self.0;
        let acts = [("reading".to_owned(), Act::Read), ("copying".to_owned(), Act::Copy)];
        let passes = layouts.in_turn(&acts, stage, |laid, act, stage| match act {
            Act::Read => timed(laid, layouts.place().device(), stage, &mut || {
                laid.files.iter().try_for_each(|path| read_through(path, None, layouts.stop()))
            }),
            Act::Copy => self.copy(laid, stage),
        })?;
        let lines = layouts.laid().iter().zip(passes).map(|(laid, passes)| {
            let of = |wanted| passes.iter().filter(|(act, _)| *act == wanted).map(|(_, pass)| *pass).collect();
            Line::of(laid.arrangement, laid.fragments, of(Act::Read), of(Act::Copy))
        });
        Ok(CopyReport::of(layouts.settings(), lines.collect()))
    }

    fn copy(&self, laid: &Laid, stage: &mut dyn Stage) -> Result<Pass, BenchError> {
        let copies = self.0.place().scratch().path().join("copy");
        let failed = |e| BenchError::io("copying to it", &copies, e);
        let durable = || {
            let opened = File::open(&copies).map_err(failed)?;
            longrun_sys::sync_volume(&opened).map_err(|e| failed(e.into()))
        };
        fs::create_dir(&copies).map_err(failed)?;
        let pass = timed(laid, self.0.place().device(), stage, &mut || {
            for path in &laid.files {
                let name = path.file_name().unwrap_or_default();
                read_through(path, Some(&copies.join(name)), self.0.stop())?;
            }
            durable()
        })?;
        // Durable, too: the blocks shall be free, and their journal commit no part of what comes next.
        stage.aside(&mut || {
            fs::remove_dir_all(&copies).map_err(failed)?;
            let opened = File::open(&laid.directory).map_err(failed)?;
            longrun_sys::sync_volume(&opened).map_err(|e| failed(e.into()))
        })?;
        Ok(pass)
    }
}
