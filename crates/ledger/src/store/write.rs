//! Writing a batch in one transaction. Long names are truncated, so that rows have a maximum length.

use crate::{Account, Batch, Event, Gauge, VolumeIdentity};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Adds without overflow: sums stop at the largest number.
pub const ADD_TALLY: &str = "ON CONFLICT DO UPDATE SET value =
    CASE WHEN value > 9223372036854775807 - excluded.value THEN 9223372036854775807 ELSE value + excluded.value END";

const LONGEST_WORD: usize = 256;
const LONGEST_TEXT: usize = 1024;
const LONGEST_PATH: usize = 4096;

/// Writes all of `batch`, or nothing.
pub fn write(connection: &mut Connection, batch: &Batch) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut rows = Rows { transaction: &transaction, known: BTreeMap::new() };
    for (volume, at) in batch.seen.values() {
        rows.saw(volume, *at)?;
    }
    for ((account, hour, counter), amount) in &batch.tallies {
        let volume = rows.of(account)?;
        let statement = format!("INSERT INTO tally VALUES (0, ?1, ?2, ?3, ?4) {ADD_TALLY}");
        let mut statement = transaction.prepare_cached(&statement)?;
        statement.execute(params![hour.start().as_second(), volume, counter.name(), whole(*amount)])?;
    }
    for (account, at, gauge) in &batch.gauges {
        let volume = rows.of(account)?;
        insert_gauge(&transaction, volume, *at, gauge)?;
    }
    for event in &batch.events {
        let volume = rows.of(&event.account)?;
        insert_event(&transaction, volume, event)?;
    }
    for ((account, day), bytes) in &batch.spent {
        let volume = rows.of(account)?;
        let mut statement = transaction.prepare_cached(
            "INSERT INTO spent VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET bytes =
             CASE WHEN bytes > 9223372036854775807 - excluded.bytes THEN 9223372036854775807
             ELSE bytes + excluded.bytes END",
        )?;
        statement.execute(params![volume, day.start().as_second(), whole(*bytes)])?;
    }
    transaction.commit()
}

/// The rows of the volumes in the batch.
struct Rows<'a> {
    transaction: &'a Transaction<'a>,
    known: BTreeMap<Account, i64>,
}

impl Rows<'_> {
    fn of(&mut self, account: &Account) -> rusqlite::Result<i64> {
        if let Some(row) = self.known.get(account) {
            return Ok(*row);
        }
        let uuid = clipped(account.uuid(), LONGEST_WORD);
        let mut ask = self.transaction.prepare_cached("SELECT id FROM volume WHERE uuid = ?1")?;
        let row = match ask.query_row([uuid], |row| row.get(0)).optional()? {
            Some(row) => row,
            None => {
                self.transaction.execute("INSERT INTO volume (uuid) VALUES (?1)", [uuid])?;
                self.transaction.last_insert_rowid()
            }
        };
        self.known.insert(account.clone(), row);
        Ok(row)
    }

    fn saw(&mut self, volume: &VolumeIdentity, at: Timestamp) -> rusqlite::Result<()> {
        let row = self.of(&volume.account())?;
        let mut update = self.transaction.prepare_cached(
            "UPDATE volume SET label = ?2, point = ?3, device = ?4, filesystem = ?5,
             first_seen = coalesce(first_seen, ?6), last_seen = max(coalesce(last_seen, ?6), ?6) WHERE id = ?1",
        )?;
        update.execute(params![
            row,
            volume.label.as_deref().map(|label| clipped(label, LONGEST_WORD)),
            path_bytes(&volume.point),
            path_bytes(&volume.device),
            clipped(&volume.filesystem, LONGEST_WORD),
            at.as_second()
        ])?;
        Ok(())
    }
}

fn insert_gauge(transaction: &Transaction<'_>, volume: i64, at: Timestamp, gauge: &Gauge) -> rusqlite::Result<()> {
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO gauge VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
    statement.execute(params![
        volume,
        at.as_second(),
        gauge.files.map(whole),
        gauge.fragmented_files.map(whole),
        gauge.excess_fragments.map(whole),
        gauge.free_pieces.map(whole),
        gauge.largest_free_bytes.map(whole),
        gauge.free_bytes.map(whole),
        gauge.used_bytes.map(whole),
        gauge.floor_pieces.map(whole)
    ])?;
    Ok(())
}

fn insert_event(transaction: &Transaction<'_>, volume: i64, event: &Event) -> rusqlite::Result<()> {
    let mut statement = transaction
        .prepare_cached("INSERT INTO event (at, volume, severity, kind, text, path) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    statement.execute(params![
        event.at.as_second(),
        volume,
        event.severity.name(),
        clipped(&event.kind, LONGEST_WORD),
        clipped(&event.text, LONGEST_TEXT),
        event.path.as_deref().map(path_bytes)
    ])?;
    Ok(())
}

/// A count in the range of the database.
fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn path_bytes(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.get(..LONGEST_PATH).unwrap_or(bytes)
}

/// The beginning of a text, cut between characters.
fn clipped(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_clipped_between_characters() {
        assert_eq!(clipped("Größe", 3), "Gr");
        assert_eq!(clipped("Größe", 4), "Grö");
        assert_eq!(clipped("kurz", 10), "kurz");
    }
}
