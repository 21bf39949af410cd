//! Why the history cannot be used, and what to do about it.

use std::path::{Path, PathBuf};

/// Why the history cannot be read or written. The service continues without it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is no database.
    #[error("{path}: there is no history yet; the service writes it: systemctl start longrun")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The disk is full, or a quota is used up.
    #[error("{path}: no space to {act}; free some space there, the history then continues by itself")]
    Full {
        /// The database.
        path: PathBuf,
        /// The operation that failed.
        act: &'static str,
        /// The error of the system.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The place is read-only, or access is denied.
    #[error(
        "{path}: not permitted to {act}: {source}; check the owner and mode of the directory and whether its volume is read-only"
    )]
    ReadOnly {
        /// The database.
        path: PathBuf,
        /// The operation that failed.
        act: &'static str,
        /// The error of the system.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer version of Longrun has written it.
    #[error(
        "{path}: the history has format {found}, but this version reads formats up to {known}; install the newer version again, or move the file away to start a new history"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// An older version wrote it, and a reader does not migrate it.
    #[error(
        "{path}: the history has the older format {found}; start the service once, which converts it to format {known}"
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
    #[error("{path}: this is the database of another program; choose another place for the history")]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error("{path}: the history is damaged ({detail}); at its next start the service renames it and starts a new one")]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The history has no such volume.
    #[error("{asked}: no volume of the history has this mount point, device, label or UUID; it has {known}")]
    UnknownVolume {
        /// The volume that was asked for.
        asked: String,
        /// The mount points of the volumes in the history.
        known: String,
    },
    /// Another process holds the lock.
    #[error("{path}: another process has locked the history; check whether a second service runs, or try again")]
    Busy {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// Anything else that SQLite reports.
    #[error("{path}: cannot {act}: {source}; check the system log for device errors")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The operation that failed.
        act: &'static str,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A system call on the file failed.
    #[error("{path}: cannot {act}: {source}; check the path")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        act: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl LedgerError {
    /// Classifies an error of SQLite by its remedy.
    pub(crate) fn sqlite(path: &Path, act: &'static str, source: rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let path = path.to_owned();
        // SQLite has a separate error for shared memory that cannot grow. It means that the disk is full.
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

    /// Classifies an error of the system by its remedy.
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
