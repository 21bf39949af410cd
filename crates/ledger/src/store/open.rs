//! Opening the database file, whether it is new, intact, of another version, damaged or inaccessible.
//!
//! Owns two rules. A damaged history is never deleted: it is renamed, with the date in its name. And the writer maps no
//! file into memory: SQLite normally shares the index of its log between processes by such a mapping, and on a full volume
//! with copy on write (btrfs with snapshots) a store to it kills the process by SIGBUS. So the writer holds an exclusive
//! lock while it has the database open, which is for moments only, and readers get their turn in between.

use super::{Note, PATIENCE, schema, with_suffix};
use crate::LedgerError;
use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The suffixes of the files that SQLite keeps beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// A small page cache, so that the service stays small.
const CACHE_KIB: i64 = 512;

/// The write-ahead log is checkpointed after this many pages, so that it stays small.
const LOG_PAGES: i64 = 256;

/// Opens for writing, checks the whole file, migrates the format, and starts a new file if it is damaged.
pub fn for_writing(path: &Path, now: Timestamp) -> Result<(Connection, Option<Note>), LedgerError> {
    match attempt(path, Check::All) {
        Err(LedgerError::Damaged { detail, .. }) => {
            let kept = set_aside(path, now)?;
            Ok((attempt(path, Check::All)?, Some(Note::SetAside { kept, detail })))
        }
        opened => Ok((opened?, None)),
    }
}

/// Opens a database for writing that has been checked before.
pub fn again(path: &Path) -> Result<Connection, LedgerError> {
    attempt(path, Check::Format)
}

/// How much is checked when opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Every page.
    All,
    /// The format only.
    Format,
}

fn attempt(path: &Path, how: Check) -> Result<Connection, LedgerError> {
    begin(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |act| move |e| refine(path, LedgerError::sqlite(path, act, e));
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open it"))?;
    let settle = failed("open it");
    connection.busy_timeout(PATIENCE).map_err(&settle)?;
    if connection.is_readonly("main").map_err(&settle)? {
        let source = std::io::Error::from(ErrorKind::PermissionDenied);
        return Err(LedgerError::io(path, "write to it", source));
    }
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(())).map_err(&settle)?;
    // A database of a newer version must not be changed.
    let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keep, true).map_err(&settle)?;
    let version = schema::version(&connection, path, schema::STEPS).map_err(|e| refine(path, e))?;
    connection.set_db_config(keep, false).map_err(&settle)?;
    if version > 0 && how == Check::All {
        check(&connection, path)?;
    }
    let prepare = || {
        // Takes effect only before the first table is made.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        // SQLite answers with the mode that it uses; another mode is not an error.
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_size_limit", 4 * LOG_PAGES * 1024, |_| Ok(()))
    };
    prepare().map_err(failed("prepare it"))?;
    schema::migrate(&mut connection, path, schema::STEPS)?;
    Ok(connection)
}

/// Creates the file, readable by its owner and group only, because it contains names of users' files.
fn begin(path: &Path) -> Result<(), LedgerError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o640).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(LedgerError::io(path, "create it", error)),
        Ok(_) => Ok(()),
    }
}

/// SQLite says "unable to open" for most errors of the system. This asks the system for the actual error.
fn refine(path: &Path, error: LedgerError) -> LedgerError {
    match &error {
        LedgerError::Sqlite { source, act, .. } if source.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            match OpenOptions::new().write(true).open(path) {
                Err(said) => LedgerError::io(path, act, said),
                Ok(_) => error,
            }
        }
        _ => error,
    }
}

fn check(connection: &Connection, path: &Path) -> Result<(), LedgerError> {
    let verdict = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match verdict.map_err(|e| LedgerError::sqlite(path, "check it", e))? {
        ok if ok == "ok" => Ok(()),
        detail => Err(LedgerError::Damaged { path: path.to_owned(), detail: detail.replace('\n', " ") }),
    }
}

/// Renames a damaged database. Its companions are renamed first, because SQLite would use them for a new database with
/// the old name.
fn set_aside(path: &Path, now: Timestamp) -> Result<PathBuf, LedgerError> {
    let date = now.strftime("%Y-%m-%d");
    let named = |number: u32| match number {
        0 => with_suffix(path, &format!(".damaged-{date}")),
        n => with_suffix(path, &format!(".damaged-{date}.{n}")),
    };
    let taken = |kept: &PathBuf| {
        kept.symlink_metadata().is_ok() || COMPANIONS.iter().any(|c| with_suffix(kept, c).symlink_metadata().is_ok())
    };
    let kept = (0..=u32::MAX).map(named).find(|kept| !taken(kept)).unwrap_or_else(|| named(u32::MAX));
    for companion in COMPANIONS.into_iter().chain([""]) {
        match fs::rename(with_suffix(path, companion), with_suffix(&kept, companion)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(LedgerError::io(path, "rename the damaged history", error));
            }
            _ => {}
        }
    }
    Ok(kept)
}

/// Opens for reading, also while another process writes. Changes nothing in the database.
pub fn for_reading(path: &Path) -> Result<Connection, LedgerError> {
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(LedgerError::Missing { path: path.to_owned() });
        }
        Err(error) => return Err(LedgerError::io(path, "open it", error)),
        Ok(found) if !found.is_file() => {
            let source = std::io::Error::other("it is not a regular file");
            return Err(LedgerError::io(path, "open it", source));
        }
        Ok(found) if found.len() == 0 => return Err(LedgerError::Missing { path: path.to_owned() }),
        Ok(_) => {}
    }
    let connection = match alone(path) {
        Ok(Some(connection)) => connection,
        // A process without write permission cannot lock it.
        Ok(None) => beside_others(path)?,
        Err(error) if cannot_share(&error) => beside_others(path)?,
        Err(error) => return Err(LedgerError::sqlite(path, "open it", error)),
    };
    let known = schema::STEPS.len();
    match schema::version(&connection, path, schema::STEPS)? {
        0 => Err(LedgerError::Missing { path: path.to_owned() }),
        version if version < known => {
            let number = |n| i64::try_from(n).unwrap_or(i64::MAX);
            Err(LedgerError::Older { path: path.to_owned(), found: number(version), known: number(known) })
        }
        _ => Ok(connection),
    }
}

/// Opens for reading with the lock of a writer, so that no file is mapped here either. `None` if that is not permitted.
/// The database stays as it is, even if its writer was killed.
fn alone(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    if connection.is_readonly("main")? {
        return Ok(None);
    }
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
    Ok(Some(connection))
}

/// Opens for reading without write permission.
fn beside_others(path: &Path) -> Result<Connection, LedgerError> {
    let failed = |e| LedgerError::sqlite(path, "open it", e);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |path: &Path, flags| {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
        Ok(connection)
    };
    let log_is_empty = with_suffix(path, "-wal").metadata().map_or(true, |log| log.len() == 0);
    match open(path, flags) {
        // Reading beside a writer needs a shared-memory file. If none exists and none can be made, there is no writer.
        Err(error) if cannot_share(&error) && log_is_empty => {
            open(&as_unchanging(path), flags | OpenFlags::SQLITE_OPEN_URI).map_err(failed)
        }
        opened => opened.map_err(|e| match OpenOptions::new().read(true).open(path) {
            Err(said) => LedgerError::io(path, "open it", said),
            Ok(_) => failed(e),
        }),
    }
}

fn cannot_share(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly | DiskFull | SystemIoFailure))
}

/// The path as a URI with the option "immutable". All bytes with a meaning in a URI are escaped.
fn as_unchanging(path: &Path) -> PathBuf {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
            other => _ = write!(name, "%{other:02x}"),
        }
    }
    PathBuf::from(name + "?immutable=1")
}
