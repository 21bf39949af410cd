//! Control: databases with a write-ahead log, which is written, synced, and moved into the database in turn.

use super::writer::{Writer, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use rusqlite::{Connection, params};
use std::path::PathBuf;

/// The database of each writer reaches this fraction of the requested size.
const PART: u64 = 4;
/// Rows of one transaction.
const ROWS: u32 = 20;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let length = Bytes((job.parameters.bytes.0 / PART).max(256 << 10));
    together(job, |writer| {
        let path = job.directory.join(format!("database-{}", writer.number));
        fill(writer, &path, length)
    })
}

fn fill(writer: &mut Writer<'_>, path: &PathBuf, length: Bytes) -> Result<(), BenchError> {
    let failed = |act| move |source| BenchError::database(act, path, source);
    let mut database = Connection::open(path).map_err(failed("opening it"))?;
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE event (id INTEGER PRIMARY KEY, key INTEGER NOT NULL, body BLOB NOT NULL);
             CREATE INDEX event_by_key ON event (key);",
        )
        .map_err(failed("preparing it"))?;
    let mut body = vec![0; 4 << 10];
    while writer.done.bytes < length {
        writer.job.check()?;
        let change = database.transaction().map_err(failed("starting a transaction"))?;
        for _ in 0..ROWS {
            let size = writer.rng.usize(200..=body.len());
            let row = body.get_mut(..size).unwrap_or_default();
            writer.rng.fill(row);
            let key = i64::from(writer.rng.u32(..));
            change
                .execute("INSERT INTO event (key, body) VALUES (?1, ?2)", params![key, &*row])
                .map_err(failed("inserting into it"))?;
            writer.done.requests += 1;
            writer.done.bytes += Bytes(size as u64);
        }
        let from = i64::from(writer.rng.u32(..));
        change
            .execute("UPDATE event SET key = key + 1 WHERE key BETWEEN ?1 AND ?1 + 1000000", params![from])
            .map_err(failed("updating it"))?;
        change.commit().map_err(failed("committing to it"))?;
    }
    Ok(())
}
