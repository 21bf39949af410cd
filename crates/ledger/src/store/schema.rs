//! The format of the database, and the migrations from all older formats.
//!
//! Owns the migration steps. A released step is never changed: a new format is a new step, with a test that starts from a
//! database of the step before.

use crate::LedgerError;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// Marks the file as ours: "lrun".
pub const APPLICATION: i64 = 0x6c72_756e;

/// Step n migrates format n to format n + 1; format 0 is the empty database. Times are seconds since 1970, UTC.
pub const STEPS: &[&str] = &[
    // 1. Row 0 of the volumes is the service itself. Paths are bytes, because they need not be UTF-8.
    "CREATE TABLE volume (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL UNIQUE,
        label TEXT,
        point BLOB NOT NULL DEFAULT x'',
        device BLOB NOT NULL DEFAULT x'',
        filesystem TEXT NOT NULL DEFAULT '',
        first_seen INTEGER,
        last_seen INTEGER
    ) STRICT;
    INSERT INTO volume (id, uuid) VALUES (0, '');
    CREATE TABLE tally (
        step INTEGER NOT NULL,
        at INTEGER NOT NULL,
        volume INTEGER NOT NULL REFERENCES volume (id),
        counter TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (step, at, volume, counter)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE gauge (
        volume INTEGER NOT NULL REFERENCES volume (id),
        at INTEGER NOT NULL,
        files INTEGER,
        fragmented_files INTEGER,
        excess_fragments INTEGER,
        free_pieces INTEGER,
        largest_free_bytes INTEGER,
        free_bytes INTEGER,
        used_bytes INTEGER,
        floor_pieces INTEGER,
        PRIMARY KEY (volume, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE event (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        volume INTEGER NOT NULL REFERENCES volume (id),
        severity TEXT NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        path BLOB
    ) STRICT;
    CREATE INDEX event_by_time ON event (at);
    CREATE TABLE spent (
        volume INTEGER NOT NULL REFERENCES volume (id),
        day INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (volume, day)
    ) STRICT, WITHOUT ROWID;",
];

/// The format that a database has.
///
/// # Errors
/// [`LedgerError::Newer`] and [`LedgerError::Foreign`], having changed nothing; what SQLite says.
pub fn version(connection: &Connection, path: &Path, steps: &[&str]) -> Result<usize, LedgerError> {
    let ask = |question: &str| {
        let answer = connection.query_row(question, [], |row| row.get::<_, i64>(0));
        answer.map_err(|e| LedgerError::sqlite(path, "read its format", e))
    };
    let (found, owner) = (ask("PRAGMA user_version")?, ask("PRAGMA application_id")?);
    let known = steps.len();
    if owner != APPLICATION && (owner != 0 || found != 0 || ask("SELECT count(*) FROM sqlite_schema")? > 0) {
        return Err(LedgerError::Foreign { path: path.to_owned() });
    }
    match usize::try_from(found) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(LedgerError::Newer { path: path.to_owned(), found, known: i64::try_from(known).unwrap_or(i64::MAX) }),
    }
}

/// Migrates a database to the last of `steps`. Each step is one transaction.
///
/// # Errors
/// As [`version`].
pub fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), LedgerError> {
    let from = version(connection, path, steps)?;
    for (at, step) in steps.iter().enumerate().skip(from) {
        let act = "convert it to the current format";
        let mut carry_out = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(step)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", i64::try_from(at + 1).unwrap_or(i64::MAX))?;
            transaction.commit()
        };
        carry_out().map_err(|e| LedgerError::sqlite(path, act, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALTERED: &str = "ALTER TABLE volume ADD COLUMN note TEXT; UPDATE volume SET note = 'was ' || uuid;";

    fn made_by(steps: &[&str]) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("x"), steps).unwrap();
        connection
    }

    /// For each step: a database as the version before it leaves one, with a row in every table, keeps its rows.
    #[test]
    fn each_step_begins_from_a_database_of_the_version_before() {
        for before in 1..=STEPS.len() {
            let old = STEPS.get(..before).unwrap();
            let mut connection = made_by(old);
            connection.execute_batch(include_str!("../../tests/data/rows-of-format-1.sql")).unwrap();
            let mut steps = STEPS.to_vec();
            steps.push(ALTERED);
            migrate(&mut connection, Path::new("x"), &steps).unwrap();
            let note: String = connection.query_row("SELECT note FROM volume WHERE id = 7", [], |r| r.get(0)).unwrap();
            assert_eq!(note, "was a-uuid");
            for table in ["tally", "gauge", "event", "spent"] {
                let rows = connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get::<_, i64>(0));
                assert_eq!(rows.unwrap(), 1, "{table}");
            }
            assert_eq!(version(&connection, Path::new("x"), &steps).unwrap(), steps.len());
        }
    }

    #[test]
    fn a_step_that_fails_leaves_the_format_as_it_was() {
        let mut connection = made_by(STEPS);
        let mut steps = STEPS.to_vec();
        steps.push("CREATE TABLE half (x INTEGER); INSERT INTO nowhere VALUES (1);");
        assert!(migrate(&mut connection, Path::new("x"), &steps).is_err());
        assert_eq!(version(&connection, Path::new("x"), STEPS).unwrap(), STEPS.len());
        let half = "SELECT count(*) FROM sqlite_schema WHERE name = 'half'";
        assert_eq!(connection.query_row(half, [], |r| r.get::<_, i64>(0)).unwrap(), 0);
    }

    #[test]
    fn the_database_of_another_program_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
        let refused = migrate(&mut connection, Path::new("places.db"), STEPS);
        assert!(matches!(refused, Err(LedgerError::Foreign { .. })), "{refused:?}");
    }
}
