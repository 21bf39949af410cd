//! A disk that notes, before each of its events, what the journal beside it held: both are found together after a loss of power.
//!
//! Never changes what is written.

use super::cuts::Cuts;
use anyhow::{Context, Result, ensure};
use longrun_image::{Disk, MemoryDisk};
use longrun_layout::Bytes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a journal held; `None` where there was no such file.
type Held = Option<Vec<u8>>;

/// A disk in memory, and a journal in a file.
pub struct Watched {
    disk: Arc<MemoryDisk>,
    journal: PathBuf,
    /// By the number of the event before which it was found so.
    seen: Mutex<Vec<(usize, Held)>>,
    discards: AtomicU64,
}

impl Watched {
    /// Watches `journal` while `disk` is worked on.
    #[must_use]
    pub fn new(disk: Arc<MemoryDisk>, journal: &Path) -> Self {
        Self { disk, journal: journal.to_owned(), seen: Mutex::default(), discards: AtomicU64::new(0) }
    }

    /// How often something was discarded.
    #[must_use]
    pub fn discards(&self) -> u64 {
        self.discards.load(Ordering::Relaxed)
    }

    /// Notes what the journal holds now.
    pub fn note(&self) {
        let found = fs::read(&self.journal).ok();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.last().is_none_or(|(_, last)| *last != found) {
            seen.push((self.disk.events(), found));
        }
    }

    /// Has every state judged that a power loss leaves, after `reopen` has completed the run from what the journal held; or as it is found,
    /// when there is no journal. `judge` gets the disk and the number of the state. The number of states.
    ///
    /// # Errors
    /// With the first state that is not good, and how to repeat it.
    pub fn judge(
        &self,
        cuts: &Cuts,
        with_journal: bool,
        reopen: impl Fn(Arc<dyn Disk>, &Path) -> Result<()>,
        mut judge: impl FnMut(&MemoryDisk, usize) -> Result<()>,
    ) -> Result<usize> {
        let found = self.journal.with_extension("found");
        let mut number = 0;
        let tally = cuts.judge(&self.disk, |cut, state| {
            for held in self.journals(cut.at) {
                number += 1;
                match held.filter(|_| with_journal) {
                    Some(held) => fs::write(&found, held)?,
                    None => _ = fs::remove_file(&found),
                }
                let recovered = Arc::new(MemoryDisk::new(state.content()));
                if with_journal {
                    reopen(Arc::clone(&recovered) as Arc<dyn Disk>, &found)?;
                    ensure!(!found.exists(), "the journal is left");
                }
                judge(&recovered, number)?;
            }
            Ok(())
        });
        let tally = tally.context("a state that is not good")?;
        eprintln!("{tally:?} of {} events", self.disk.events());
        Ok(number)
    }

    /// What the journal may hold when power is lost before event `at`: what it held then, or what it held one event earlier.
    #[must_use]
    pub fn journals(&self, at: usize) -> Vec<Held> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let upto = |at: usize| seen.iter().rfind(|(number, _)| *number <= at).and_then(|(_, found)| found.clone());
        let mut both = vec![upto(at), upto(at.saturating_sub(1))];
        both.dedup();
        both
    }
}

impl Disk for Watched {
    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn length(&self) -> Bytes {
        self.disk.length()
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, buffer)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.note();
        self.disk.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.note();
        self.disk.flush()
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.note();
        self.discards.fetch_add(1, Ordering::Relaxed);
        self.disk.discard(at, length)
    }

    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.disk.zero(at, length)
    }
}
