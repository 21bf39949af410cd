//! The database.

use crate::{Account, Batch, Day, LedgerError, Query, Report};
use jiff::Timestamp;
use longrun_layout::Bytes;
use std::path::{Path, PathBuf};

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Hours become days when they are older than this many days.
    pub hours_for_days: u32,
    /// Days become months when they are older than this many days.
    pub days_for_days: u32,
    /// Of each severity, this many events.
    pub events: u32,
    /// The file is kept below this size, by giving up the oldest.
    pub max: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hours_for_days: 30, days_for_days: 731, events: 2000, max: Bytes(64 << 20) }
    }
}

/// Something to tell the user about an opening that worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The database was damaged; it is kept under another name, and a new one was begun.
    SetAside {
        /// Where it is kept.
        kept: PathBuf,
        /// What was found.
        detail: String,
    },
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub ledger: Ledger,
    /// Something to tell the user.
    pub note: Option<Note>,
}

/// The database, for writing. One process writes at a time.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// Opens or begins a database. `now` names what must be set aside.
    ///
    /// # Errors
    /// [`LedgerError`]: the caller goes on without history.
    pub fn open(path: &Path, limits: Limits, now: Timestamp) -> Result<Opened, LedgerError> {
        _ = (limits, now);
        Ok(Opened { ledger: Self { path: path.to_owned() }, note: None })
    }

    /// Writes all of a batch, or nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn write(&mut self, batch: &Batch) -> Result<(), LedgerError> {
        _ = batch;
        Ok(())
    }

    /// What was spent on a volume on a day.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn spent(&self, account: &Account, day: Day) -> Result<Bytes, LedgerError> {
        _ = (account, day);
        Ok(Bytes(0))
    }

    /// Rolls up what is old, and keeps the file below its limit.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn keep_house(&mut self, now: Timestamp) -> Result<(), LedgerError> {
        _ = now;
        Ok(())
    }

    /// What it tells about a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        Err(LedgerError::Missing { path: self.path.clone() }).inspect(|_: &Report| _ = query)
    }
}

/// The database, for reading beside a process that writes it.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
}

impl Reader {
    /// Opens a database that is there.
    ///
    /// # Errors
    /// [`LedgerError`]; [`LedgerError::Missing`] when there is no history yet.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        Ok(Self { path: path.to_owned() })
    }

    /// What it tells about a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        Err(LedgerError::Missing { path: self.path.clone() }).inspect(|_: &Report| _ = query)
    }
}
