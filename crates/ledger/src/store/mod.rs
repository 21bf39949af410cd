//! The database: one process writes it, any process may read it.
//!
//! Owns the operations on it. [`schema`] has the format, [`open`] opens it, [`house`] limits its size.

mod house;
mod open;
mod schema;
mod turn;
mod write;

use crate::report::read;
use crate::{Account, Batch, Day, LedgerError, Query, Report};
use jiff::Timestamp;
use longrun_layout::Bytes;
use rusqlite::{Connection, OptionalExtension};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use turn::Turn;

/// How long to wait for another process.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file beside the database at `path` that has its name and `suffix`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Hours become days when they are older than this many days.
    pub hours_for_days: u32,
    /// Days become months when they are older than this many days.
    pub days_for_days: u32,
    /// The most events of each severity.
    pub events: u32,
    /// The largest size of the file. The oldest data is removed to keep it.
    pub max: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hours_for_days: 30, days_for_days: 731, events: 2000, max: Bytes(64 << 20) }
    }
}

/// A message for the user about a successful opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The database was damaged. It was renamed, and a new one was started.
    SetAside {
        /// The new path of the damaged database.
        kept: PathBuf,
        /// The damage that was found.
        detail: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::SetAside { kept, detail } = self;
        write!(f, "the history was damaged ({detail}); it was renamed to {}, and a new one was started", kept.display())
    }
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// The database.
    pub ledger: Ledger,
    /// A message for the user.
    pub note: Option<Note>,
}

/// The database, for writing. It is locked exclusively, so drop it when the work is done.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    limits: Limits,
    connection: Connection,
    // Declared after the connection, so that it is dropped later.
    _turn: Turn,
}

impl Ledger {
    /// Opens or creates a database. A damaged one is renamed; `now` is part of its new name.
    ///
    /// # Errors
    /// [`LedgerError`]. The caller continues without history.
    pub fn open(path: &Path, limits: Limits, now: Timestamp) -> Result<Opened, LedgerError> {
        let turn = Turn::take(path);
        let (connection, note) = open::for_writing(path, now)?;
        Ok(Opened { ledger: Self { path: path.to_owned(), limits, connection, _turn: turn }, note })
    }

    /// Opens a database again that [`Self::open`] has checked, or creates it if it has been removed.
    ///
    /// # Errors
    /// As [`Self::open`], and [`LedgerError::Damaged`], after which `open` must be called.
    pub fn open_again(path: &Path, limits: Limits) -> Result<Self, LedgerError> {
        let turn = Turn::take(path);
        Ok(Self { path: path.to_owned(), limits, connection: open::again(path)?, _turn: turn })
    }

    /// Writes all of a batch, or nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn write(&mut self, batch: &Batch) -> Result<(), LedgerError> {
        write::write(&mut self.connection, batch).map_err(|e| LedgerError::sqlite(&self.path, "write it", e))
    }

    /// The bytes spent on a volume on a day.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn spent(&self, account: &Account, day: Day) -> Result<Bytes, LedgerError> {
        let question = "SELECT bytes FROM spent JOIN volume ON volume.id = spent.volume WHERE uuid = ?1 AND day = ?2";
        let answer = self.connection.query_row(question, (account.uuid(), day.start().as_second()), |row| row.get(0));
        let bytes: Option<i64> = answer.optional().map_err(|e| LedgerError::sqlite(&self.path, "read it", e))?;
        Ok(Bytes(bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default()))
    }

    /// The bytes spent on each volume on a day.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn spent_on(&self, day: Day) -> Result<Vec<(Account, Bytes)>, LedgerError> {
        let read = || {
            let question = "SELECT uuid, bytes FROM spent JOIN volume ON volume.id = spent.volume WHERE day = ?1";
            let mut statement = self.connection.prepare(question)?;
            let rows = statement.query_map([day.start().as_second()], |row| {
                let (uuid, bytes): (String, i64) = (row.get(0)?, row.get(1)?);
                Ok((Account::volume(&uuid), Bytes(u64::try_from(bytes).unwrap_or_default())))
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|e| LedgerError::sqlite(&self.path, "read it", e))
    }

    /// The size of the file.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn bytes(&self) -> Result<u64, LedgerError> {
        let found = self.path.metadata().map_err(|e| LedgerError::io(&self.path, "read its size", e))?;
        Ok(found.len())
    }

    /// Rolls up old data, and keeps the file below its limit. Call it every hour, and when [`Self::is_too_large`].
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn keep_house(&mut self, now: Timestamp) -> Result<(), LedgerError> {
        house::keep(&mut self.connection, &self.limits, now)
            .map_err(|e| LedgerError::sqlite(&self.path, "roll up its old data", e))
    }

    /// Whether the file is larger than its limit.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn is_too_large(&self) -> Result<bool, LedgerError> {
        house::is_too_large(&self.connection, &self.limits).map_err(|e| LedgerError::sqlite(&self.path, "read it", e))
    }

    /// The report on a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        read::report(&self.connection, &self.path, query)
    }
}

/// The database, for reading. Another process may write it between two accesses.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
    // Declared after the connection, so that it is dropped later.
    _turn: Turn,
}

impl Reader {
    /// Opens an existing database.
    ///
    /// # Errors
    /// [`LedgerError`]; [`LedgerError::Missing`] if there is no history yet.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let turn = Turn::take(path);
        Ok(Self { path: path.to_owned(), connection: open::for_reading(path)?, _turn: turn })
    }

    /// The report on a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        read::report(&self.connection, &self.path, query)
    }
}
