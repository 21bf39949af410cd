//! Databases and file servers on one heavily fragmented file, before and after `longrun optimize`: small and large
//! direct requests, random and sequential. fio, an independent program, makes the requests.
//!
//! Owns the profiles, the running of fio, and the judgement. Never writes to other files than its own.

mod fio;
mod profile;
mod report;

pub use fio::Rates;
pub use profile::{OltpProfile, Order};
pub use report::{Line, OltpReport};

use crate::layouts::{Arrangement, LayoutSettings, Layouts, Stage};
use crate::{BenchError, Place, layout_of};
use longrun_layout::Bytes;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// As small as the pages of databases are: a request of 64 KiB meets four fragments.
const PIECE: Bytes = Bytes(16 << 10);
const ARRANGEMENTS: [Arrangement; 2] = [Arrangement::Shuffled(PIECE), Arrangement::Optimized(PIECE)];

/// How to measure.
#[derive(Clone, Debug)]
pub struct OltpSettings {
    /// The files.
    pub layout: LayoutSettings,
    /// What is done with them.
    pub profiles: Vec<OltpProfile>,
    /// For how long, each time.
    pub time: Duration,
}

/// Files that are ready.
#[derive(Debug)]
pub struct Oltp<'a> {
    layouts: Layouts<'a>,
    profiles: Vec<OltpProfile>,
    /// What was asked for and would change where the file lies.
    left_out: Vec<OltpProfile>,
    time: Duration,
    fio: PathBuf,
}

impl<'a> Oltp<'a> {
    /// Makes the files in a new directory in `target`, with the fio that is called `fio`.
    ///
    /// # Errors
    /// [`BenchError`], when there is no fio among others; what was made has been removed then.
    pub fn prepare(
        target: &Path,
        settings: OltpSettings,
        fio: &Path,
        stop: &'a AtomicBool,
        stage: &mut dyn Stage,
    ) -> Result<Self, BenchError> {
        fio::require(fio)?;
        let OltpSettings { layout, profiles, time } = settings;
        let layouts = Layouts::prepare(target, layout, &ARRANGEMENTS, Bytes(0), stop, stage)?;
        // There every write takes new space, and after the first nothing lies as it is called.
        let copies_on_write = layouts.place().mount().filesystem == "btrfs";
        let (left_out, profiles) = profiles.into_iter().partition(|profile| copies_on_write && profile.writes());
        Ok(Self { layouts, profiles, left_out, time, fio: fio.to_owned() })
    }

    /// Where it is measured.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.layouts.place()
    }

    /// Runs every profile on every layout as often as is wanted.
    ///
    /// # Errors
    /// [`BenchError`], those of `stage` among them.
    pub fn measure(&self, stage: &mut dyn Stage) -> Result<OltpReport, BenchError> {
        let layouts = &self.layouts;
        let acts: Vec<_> = self.profiles.iter().map(|profile| (profile.to_string(), *profile)).collect();
        let seed = layouts.settings().seed;
        let rates = layouts.in_turn(&acts, stage, |laid, profile, stage| {
            let Some(path) = laid.files.first() else { return Ok(Rates::default()) };
            let rates = fio::run(&self.fio, path, profile, self.time, seed, layouts.stop())?;
            stage.end()?;
            Ok(rates)
        })?;
        let mut fragments = Vec::new();
        for laid in layouts.laid() {
            let (now, _) = layout_of(&laid.directory, &[])?;
            fragments.push((laid.arrangement, laid.fragments, now.fragments));
        }
        let mut report = OltpReport::of(self.time, layouts.settings(), &self.profiles, &rates);
        report.left_out.clone_from(&self.left_out);
        report.fragments = fragments;
        Ok(report)
    }
}
