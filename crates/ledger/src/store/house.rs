//! Housekeeping: rolls hours up into days and days into months, and keeps the file below its limit.
//!
//! Owns what is removed, and in which order. Rolling up conserves the sums. Data is removed only if the file would exceed
//! its limit, the oldest first. The caller passes the time; no clock is read.

use super::Limits;
use super::write::ADD_TALLY;
use crate::{Severity, Step};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Days of spent bytes that are kept. Only today's are needed; the others are for inspection.
const SPENT_DAYS: i64 = 31;
/// The smallest limit; the empty tables need about this much.
const LEAST_BYTES: u64 = 256 << 10;
/// The number of events of each severity that shrinking keeps.
const FEW_EVENTS: u32 = 16;
/// The file is truncated when it has at least this many free pages.
const SPARE_PAGES: i64 = 64;

/// How long data is kept.
#[derive(Clone, Copy, Debug)]
struct Reach {
    hours: Timestamp,
    days: Timestamp,
    events: i64,
}

impl Reach {
    fn of(limits: &Limits, now: Timestamp) -> Self {
        Self {
            hours: Step::Day.floor(before(now, i64::from(limits.hours_for_days))),
            days: Step::Month.floor(before(now, i64::from(limits.days_for_days))),
            events: i64::from(limits.events),
        }
    }
}

fn before(now: Timestamp, days: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_hours(days * 24)).unwrap_or(Timestamp::MIN)
}

/// Rolls one time step up into the next longer one, in SQL. SQLite's calendar is UTC. Times beyond its range of years are
/// not rolled up.
#[derive(Clone, Copy)]
struct RollUp {
    from: Step,
    into: Step,
    /// When the longer step of a tally begins.
    start: &'static str,
    /// When the longer step of a gauge ends.
    next: &'static str,
}

const TO_DAYS: RollUp = RollUp {
    from: Step::Hour,
    into: Step::Day,
    start: "at - ((at % 86400) + 86400) % 86400",
    next: "gauge.at - ((gauge.at % 86400) + 86400) % 86400 + 86400",
};

const TO_MONTHS: RollUp = RollUp {
    from: Step::Day,
    into: Step::Month,
    start: "coalesce(unixepoch(at, 'unixepoch', 'start of month'), at)",
    next: "coalesce(unixepoch(gauge.at, 'unixepoch', 'start of month', '+1 month'), gauge.at)",
};

/// Rolls up, prunes, and shrinks.
pub fn keep(connection: &mut Connection, limits: &Limits, now: Timestamp) -> rusqlite::Result<()> {
    roll_up(connection, Reach::of(limits, now), now)?;
    if occupied(connection)? > limits.max.0.max(LEAST_BYTES) {
        shrink(connection, limits, now)?;
    }
    if is_too_large(connection, limits)? || number(connection, "PRAGMA freelist_count")? >= SPARE_PAGES {
        give_back(connection)?;
    }
    Ok(())
}

/// Whether the file is larger than its limit.
pub fn is_too_large(connection: &Connection, limits: &Limits) -> rusqlite::Result<bool> {
    let bytes = number(connection, "PRAGMA page_count")? * number(connection, "PRAGMA page_size")?;
    Ok(u64::try_from(bytes).unwrap_or_default() > limits.max.0.max(LEAST_BYTES))
}

/// Bytes that are in use.
fn occupied(connection: &Connection) -> rusqlite::Result<u64> {
    let used = number(connection, "PRAGMA page_count")? - number(connection, "PRAGMA freelist_count")?;
    Ok(u64::try_from(used * number(connection, "PRAGMA page_size")?).unwrap_or_default())
}

fn number(connection: &Connection, question: &str) -> rusqlite::Result<i64> {
    connection.query_row(question, [], |row| row.get(0))
}

fn roll_up(connection: &mut Connection, reach: Reach, now: Timestamp) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (roll, end) in [(TO_DAYS, reach.hours), (TO_MONTHS, reach.days)] {
        let insert = format!(
            "INSERT INTO tally SELECT ?1, {}, volume, counter, value FROM tally WHERE step = ?2 AND at < ?3 {ADD_TALLY}",
            roll.start
        );
        transaction.execute(&insert, params![roll.into.code(), roll.from.code(), end.as_second()])?;
        let delete = "DELETE FROM tally WHERE step = ?1 AND at < ?2";
        transaction.execute(delete, params![roll.from.code(), end.as_second()])?;
        // Of the scans in each longer step, the last one stays.
        let thin = format!(
            "DELETE FROM gauge WHERE at < ?1 AND EXISTS (SELECT 1 FROM gauge AS later
             WHERE later.volume = gauge.volume AND later.at > gauge.at AND later.at < min(?1, {}))",
            roll.next
        );
        transaction.execute(&thin, params![end.as_second()])?;
    }
    for severity in Severity::ALL {
        transaction.execute(
            "DELETE FROM event WHERE severity = ?1 AND id NOT IN
             (SELECT id FROM event WHERE severity = ?1 ORDER BY at DESC, id DESC LIMIT ?2)",
            params![severity.name(), reach.events],
        )?;
    }
    transaction.execute("DELETE FROM spent WHERE day < ?1", [before(now, SPENT_DAYS).as_second()])?;
    forget_volumes(&transaction, before(now, SPENT_DAYS))?;
    transaction.commit()
}

/// Removes volumes without data. Otherwise they would accumulate on a machine that mounts a new volume for each job.
fn forget_volumes(connection: &Connection, unseen_since: Timestamp) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM volume WHERE id <> 0 AND coalesce(last_seen, 0) < ?1
         AND id NOT IN (SELECT volume FROM tally UNION SELECT volume FROM gauge
                        UNION SELECT volume FROM event UNION SELECT volume FROM spent)",
        [unseen_since.as_second()],
    )?;
    Ok(())
}

/// Removes detail, and then the oldest data, until a quarter of the limit is free.
fn shrink(connection: &mut Connection, limits: &Limits, now: Timestamp) -> rusqlite::Result<()> {
    let goal = limits.max.0.max(LEAST_BYTES) / 4 * 3;
    let few = limits.events.min(FEW_EVENTS);
    let mut limits = *limits;
    while occupied(connection)? > goal && (limits.hours_for_days, limits.days_for_days, limits.events) != (0, 0, few) {
        limits.hours_for_days /= 2;
        limits.days_for_days /= 2;
        limits.events = (limits.events / 2).max(few);
        roll_up(connection, Reach::of(&limits, now), now)?;
    }
    while occupied(connection)? > goal {
        let oldest = "SELECT min(at) FROM (SELECT min(at) AS at FROM tally UNION ALL SELECT min(at) FROM gauge
                      UNION ALL SELECT min(at) FROM event)";
        let Some(oldest) = connection.query_row(oldest, [], |row| row.get::<_, Option<i64>>(0)).optional()?.flatten()
        else {
            break;
        };
        let start = Timestamp::from_second(oldest).unwrap_or(Timestamp::MIN);
        let end = Step::Month.next(start).as_second().max(oldest.saturating_add(1));
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for table in ["tally", "gauge", "event"] {
            transaction.execute(&format!("DELETE FROM {table} WHERE at < ?1"), [end])?;
        }
        forget_volumes(&transaction, now)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Returns free pages to the file system.
fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut steps = vacuum.query([])?;
    while steps.next()?.is_some() {}
    drop(steps);
    // A reader may prevent the truncation; it is repeated next time.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}
