//! The thread that writes: it opens the database, writes, removes old data, and waits after failures.

use super::Settings;
use super::pending::{Shared, Wake};
use crate::{Account, Batch, Day, Hour, Ledger, LedgerError};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes the history until it is told to stop.
pub struct Keeper {
    path: PathBuf,
    settings: Settings,
    shared: Arc<Shared>,
    /// Whether the database has been checked since the last failure. It is open only during a write.
    checked: bool,
    /// When to try again after a failure.
    retry: Option<Instant>,
    /// Whether the bytes spent by earlier processes have been read.
    knows_spent: bool,
    /// The hour in which old data was last removed.
    kept_house: Option<Hour>,
    /// The failure that has been logged, so that it is logged once.
    said: Option<String>,
}

impl Keeper {
    pub fn new(path: PathBuf, settings: Settings, shared: Arc<Shared>) -> Self {
        Self { path, settings, shared, checked: false, retry: None, knows_spent: false, kept_house: None, said: None }
    }

    /// Writes periodically until told to stop, and a last time then.
    pub fn run(mut self) {
        // The first turn comes at once, so that the status is known before the first record.
        self.turn();
        loop {
            match self.shared.wait(self.settings.flush_every) {
                Wake::Time => {
                    self.turn();
                }
                Wake::Asked(request) => {
                    let written = self.turn();
                    self.shared.answer(request, written);
                }
                Wake::Stop => {
                    self.retry = None;
                    self.turn();
                    return;
                }
            }
        }
    }

    /// Writes what is pending. Returns whether nothing is left to write.
    fn turn(&mut self) -> bool {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        let batch = self.shared.take();
        let mut unwritten = Some(batch);
        let outcome = self.write(&mut unwritten);
        if let Some(batch) = unwritten {
            self.shared.put_back(batch);
        }
        match outcome {
            Ok(bytes) => {
                self.recovered();
                self.shared.tell(|status| {
                    status.recording = true;
                    status.bytes = bytes.unwrap_or(status.bytes);
                });
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// Opens, writes, removes old data and closes. Returns the size of the database. `batch` is taken once it is written.
    fn write(&mut self, batch: &mut Option<Batch>) -> Result<Option<u64>, LedgerError> {
        let now = self.shared.now();
        let idle = batch.as_ref().is_none_or(Batch::is_empty);
        let hour = Hour::of(now);
        if idle && self.checked && self.kept_house == Some(hour) {
            *batch = None;
            return Ok(None);
        }
        let mut ledger = self.open(now)?;
        if !self.knows_spent {
            self.shared.learn_spent(spent(&ledger, Day::of(now))?);
            self.knows_spent = true;
        }
        if let Some(pending) = batch.as_ref().filter(|batch| !batch.is_empty()) {
            ledger.write(pending)?;
            self.shared.tell(|status| status.written = Some(now));
        }
        *batch = None;
        if self.kept_house != Some(hour) || ledger.is_too_large()? {
            ledger.keep_house(now)?;
            self.kept_house = Some(hour);
        }
        ledger.bytes().map(Some)
    }

    fn open(&mut self, now: Timestamp) -> Result<Ledger, LedgerError> {
        let limits = self.settings.limits;
        if self.checked {
            return Ledger::open_again(&self.path, limits);
        }
        let opened = Ledger::open(&self.path, limits, now)?;
        if let Some(note) = &opened.note {
            tracing::warn!("{note}");
            self.shared.tell(|status| status.note = Some(note.to_string()));
        }
        self.kept_house = None;
        self.checked = true;
        Ok(opened.ledger)
    }

    fn recovered(&mut self) {
        self.retry = None;
        if self.said.take().is_some() {
            tracing::info!("the history is being written again");
            self.shared.tell(|status| status.note = None);
        }
    }

    fn failed(&mut self, error: &LedgerError) {
        // The next attempt opens and checks the database again.
        self.checked = false;
        self.retry = Some(Instant::now() + self.settings.retry_every.max(Duration::from_millis(1)));
        let told = error.to_string();
        if self.said.as_ref() != Some(&told) {
            tracing::warn!("the history is not being written: {told}");
        }
        self.shared.tell(|status| {
            status.recording = false;
            status.note = Some(told.clone());
        });
        self.said = Some(told);
    }
}

/// The bytes spent that day on each volume, from the database.
fn spent(ledger: &Ledger, day: Day) -> Result<BTreeMap<(Account, Day), u64>, LedgerError> {
    let all = ledger.spent_on(day)?;
    Ok(all.into_iter().map(|(account, bytes)| ((account, day), bytes.0)).collect())
}
