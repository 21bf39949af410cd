//! The database: opened, written by one process, read by any.
//!
//! Owns what may be done with it. The format is [`schema`]'s, the ways of opening it [`open`]'s, its size [`house`]'s.

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

/// How long another process is waited for.
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

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::SetAside { kept, detail } = self;
        write!(f, "the history was damaged ({detail}); it is kept as {}, and a new one was begun", kept.display())
    }
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// It.
    pub ledger: Ledger,
    /// Something to tell the user.
    pub note: Option<Note>,
}

/// The database, for writing. Nobody else reads or writes it meanwhile: it is to be dropped when the work is done.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    limits: Limits,
    connection: Connection,
    // After the connection, so that it ends later.
    _turn: Turn,
}

impl Ledger {
    /// Opens or begins a database. `now` names what must be set aside.
    ///
    /// # Errors
    /// [`LedgerError`]: the caller goes on without history.
    pub fn open(path: &Path, limits: Limits, now: Timestamp) -> Result<Opened, LedgerError> {
        let turn = Turn::take(path);
        let (connection, note) = open::for_writing(path, now)?;
        Ok(Opened { ledger: Self { path: path.to_owned(), limits, connection, _turn: turn }, note })
    }

    /// Opens again what [`Self::open`] has checked; begins a database where that has been removed.
    ///
    /// # Errors
    /// As [`Self::open`], and [`LedgerError::Damaged`]: then that is to be called.
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

    /// What was spent on a volume on a day.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn spent(&self, account: &Account, day: Day) -> Result<Bytes, LedgerError> {
        let question = "SELECT bytes FROM spent JOIN volume ON volume.id = spent.volume WHERE uuid = ?1 AND day = ?2";
        let answer = self.connection.query_row(question, (account.uuid(), day.start().as_second()), |row| row.get(0));
        let bytes: Option<i64> = answer.optional().map_err(|e| LedgerError::sqlite(&self.path, "read it", e))?;
        Ok(Bytes(bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default()))
    }

    /// What was spent on each volume on a day.
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

    /// How large the file is.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn bytes(&self) -> Result<u64, LedgerError> {
        let found = self.path.metadata().map_err(|e| LedgerError::io(&self.path, "look at it", e))?;
        Ok(found.len())
    }

    /// Rolls up what is old, and keeps the file below its limit. To be done now and then, and when
    /// [`Self::is_too_large`].
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn keep_house(&mut self, now: Timestamp) -> Result<(), LedgerError> {
        house::keep(&mut self.connection, &self.limits, now)
            .map_err(|e| LedgerError::sqlite(&self.path, "roll up what is old", e))
    }

    /// Whether the file has outgrown its limit.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn is_too_large(&self) -> Result<bool, LedgerError> {
        house::is_too_large(&self.connection, &self.limits).map_err(|e| LedgerError::sqlite(&self.path, "read it", e))
    }

    /// What it tells about a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        read::report(&self.connection, &self.path, query)
    }
}

/// The database, for reading beside a process that writes it.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
    // After the connection, so that it ends later.
    _turn: Turn,
}

impl Reader {
    /// Opens a database that is there.
    ///
    /// # Errors
    /// [`LedgerError`]; [`LedgerError::Missing`] when there is no history yet.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let turn = Turn::take(path);
        Ok(Self { path: path.to_owned(), connection: open::for_reading(path)?, _turn: turn })
    }

    /// What it tells about a period.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn report(&self, query: &Query) -> Result<Report, LedgerError> {
        read::report(&self.connection, &self.path, query)
    }
}
