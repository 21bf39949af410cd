//! The thread that writes: opens, writes, keeps house, and waits out what cannot be helped.

use super::Settings;
use super::pending::{Shared, Wake};
use crate::{Account, Batch, Day, Hour, Ledger, LedgerError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keeps the books until it is told to stop.
pub struct Keeper {
    path: PathBuf,
    settings: Settings,
    shared: Arc<Shared>,
    ledger: Option<Ledger>,
    /// When to try again after a failure.
    retry: Option<Instant>,
    /// Whether what was spent before this process is known.
    knows_spent: bool,
    /// The hour in which it last kept house.
    kept_house: Option<Hour>,
    /// The failure that has been said, so that it is said once.
    said: Option<String>,
}

impl Keeper {
    pub fn new(path: PathBuf, settings: Settings, shared: Arc<Shared>) -> Self {
        Self { path, settings, shared, ledger: None, retry: None, knows_spent: false, kept_house: None, said: None }
    }

    /// Until told to stop; then once more.
    pub fn run(mut self) {
        // At once, so that the status tells how the books stand before anything has happened.
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

    /// Writes what is pending; whether nothing is left to write.
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
                    status.bytes = bytes;
                });
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    /// Opens where that is needed, writes, keeps house. `batch` is taken once it is written.
    fn write(&mut self, batch: &mut Option<Batch>) -> Result<u64, LedgerError> {
        let now = self.shared.now();
        let ledger = match &mut self.ledger {
            Some(ledger) if ledger.is_in_place() => ledger,
            _ => {
                let opened = Ledger::open(&self.path, self.settings.limits, now)?;
                if let Some(note) = &opened.note {
                    tracing::warn!("{note}");
                    self.shared.tell(|status| status.note = Some(note.to_string()));
                }
                self.kept_house = None;
                self.ledger.insert(opened.ledger)
            }
        };
        if !self.knows_spent {
            self.shared.learn_spent(spent(ledger, Day::of(now))?);
            self.knows_spent = true;
        }
        if let Some(pending) = batch.as_ref().filter(|batch| !batch.is_empty()) {
            ledger.write(pending)?;
            self.shared.tell(|status| status.written = Some(now));
        }
        *batch = None;
        let hour = Hour::of(now);
        if self.kept_house != Some(hour) || ledger.is_too_large()? {
            ledger.keep_house(now)?;
            self.kept_house = Some(hour);
        }
        ledger.bytes()
    }

    fn recovered(&mut self) {
        self.retry = None;
        if self.said.take().is_some() {
            tracing::info!("history is written again");
            self.shared.tell(|status| status.note = None);
        }
    }

    fn failed(&mut self, error: &LedgerError) {
        // Whatever it was, the next attempt begins by opening and checking.
        self.ledger = None;
        self.retry = Some(Instant::now() + self.settings.retry_every.max(Duration::from_millis(1)));
        let told = error.to_string();
        if self.said.as_ref() != Some(&told) {
            tracing::warn!("history is not written: {told}");
        }
        self.shared.tell(|status| {
            status.recording = false;
            status.note = Some(told.clone());
        });
        self.said = Some(told);
    }
}

/// What the database says was spent that day, of all volumes.
fn spent(ledger: &Ledger, day: Day) -> Result<BTreeMap<(Account, Day), u64>, LedgerError> {
    let all = ledger.spent_on(day)?;
    Ok(all.into_iter().map(|(account, bytes)| ((account, day), bytes.0)).collect())
}
