//! Why there is no history (now), and what may be done about it.

use std::path::{Path, PathBuf};

/// Why the history cannot be read or written. The work goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is none.
    #[error("{path}: there is no history yet; it begins when the service runs")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The disk is full, or a quota is used up.
    #[error("{path}: no space to {act}: free some space there, history goes on by itself then")]
    Full {
        /// The database.
        path: PathBuf,
        /// What was being done.
        act: &'static str,
        /// What the system says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The place is read-only, or not ours.
    #[error(
        "{path}: not permitted to {act}: {source}; check the owner and mode of the directory and whether its volume is read-only"
    )]
    ReadOnly {
        /// The database.
        path: PathBuf,
        /// What was being done.
        act: &'static str,
        /// What the system says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer version of this program has written it.
    #[error(
        "{path}: the history is of format {found}, and this version knows formats up to {known}; install the newer version again, or move the file away to begin anew"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// An older version wrote it, and reading alone does not bring it up to date.
    #[error(
        "{path}: the history is of the older format {found}; start the service once, it brings it up to format {known}"
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The one that is read here.
        known: i64,
    },
    /// It is a database, but of another program.
    #[error("{path}: is the database of another program; name another place for the history")]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// Its content contradicts itself.
    #[error("{path}: the history is damaged ({detail}); the service sets it aside and begins anew at its next start")]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// It knows no such volume.
    #[error("{asked}: no volume of the history has this mount point, device, label or UUID; it knows {known}")]
    UnknownVolume {
        /// What was asked for.
        asked: String,
        /// Where the volumes that it knows were mounted.
        known: String,
    },
    /// Others keep it locked.
    #[error("{path}: another process keeps the history locked; look for a second service, or try again")]
    Busy {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// Anything else that SQLite reports.
    #[error("{path}: cannot {act}: {source}; look at the system log for errors of the device")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What was being done.
        act: &'static str,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// A system call on the file failed.
    #[error("{path}: cannot {act}: {source}; check the path")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        act: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

impl LedgerError {
    /// What SQLite reports, told apart by what can be done about it.
    pub(crate) fn sqlite(path: &Path, act: &'static str, source: rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let path = path.to_owned();
        // Shared memory that cannot grow is reported as an error of its own: it is the disk that is full.
        let no_memory_file = source.sqlite_error().is_some_and(|e| e.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
        match source.sqlite_error_code() {
            _ if no_memory_file => Self::Full { path, act, source: source.into() },
            Some(ErrorCode::DiskFull) => Self::Full { path, act, source: source.into() },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::ReadOnly { path, act, source: source.into() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path, source },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, detail: source.to_string() }
            }
            _ => Self::Sqlite { path, act, source },
        }
    }

    /// What the system reports, told apart likewise.
    pub(crate) fn io(path: &Path, act: &'static str, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { path, act, source: source.into() },
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, act, source: source.into() }
            }
            _ => Self::Io { path, act, source },
        }
    }
}
