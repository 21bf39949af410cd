//! Wall clocks of agents that jump: by libfaketime, which the C library's clocks go through.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where distributions have it, below a directory for the architecture or without one.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The library.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    library: PathBuf,
}

/// The clock of one agent: a file that says how much it is wrong.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clocks {
    pub(super) fn find() -> Result<Self> {
        let below = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let places = below("/usr/lib").chain(["/usr/lib".into(), "/usr/lib64".into()]);
        let library = places.map(|place| place.join(LIBRARY)).find(|path| path.exists());
        Ok(Self { library: library.with_context(|| format!("no {LIBRARY} below /usr/lib: install faketime"))? })
    }

    /// The clock that `file` sets; right at first.
    pub(super) fn clock(&self, file: &Path) -> Result<Clock> {
        let clock = Clock { file: file.to_owned(), library: self.library.clone() };
        clock.set(0)?;
        Ok(clock)
    }

    /// Makes sure that programs see a clock that is wrong: without that, no jump would be one.
    pub(super) fn check(&self, directory: &Path) -> Result<()> {
        let clock = self.clock(&directory.join("clock"))?;
        clock.set(-86_400)?;
        let mut date = Command::new("date");
        clock.keep(date.arg("+%s"));
        let told: u64 = String::from_utf8(crate::tool::output(&mut date)?.stdout)?.trim().parse()?;
        let right = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let wrong_by = right.saturating_sub(Duration::from_secs(told));
        ensure!(wrong_by > Duration::from_secs(86_000), "{} sets no clock", self.library.display());
        Ok(())
    }
}

impl Clock {
    /// The clock jumps: from now on it is wrong by so many seconds.
    pub(super) fn set(&self, wrong_by: i64) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{wrong_by:+}\n"))?;
        Ok(fs::rename(new, &self.file)?)
    }

    /// Has a program read this clock, and those that only go forwards as they are.
    pub(super) fn keep(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}
