//! Keeping the house: hours become days, days become months, and the file stays below its limit.
//!
//! Owns what is given up, and in which order. Sums are conserved by rolling up; only what exceeds the size of the file is
//! given up, the oldest first. Everything is bounded by the time that is passed in; no clock is read.

use super::Limits;
use super::write::ADD_TALLY;
use crate::{Severity, Step};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Budgets are asked for today; a month of them is kept to be looked at.
const SPENT_DAYS: i64 = 31;
/// Below this the empty tables would not fit.
const LEAST_BYTES: u64 = 256 << 10;
/// So many events of a severity are kept as long as anything is.
const FEW_EVENTS: u32 = 16;
/// Free pages that are worth giving back.
const SPARE_PAGES: i64 = 64;

/// What is kept how long.
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

/// One step of time into the next longer one, in the words of SQLite, whose calendar is that of UTC. Beyond the years
/// that it knows nothing is rolled up; no clock shows them either.
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

/// Whether the file has outgrown its limit.
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
        // Of the scans of such a time, the last one stays.
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

/// Volumes of which nothing is left: a machine that mounts a new one for each job would gather them for ever.
fn forget_volumes(connection: &Connection, unseen_since: Timestamp) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM volume WHERE id <> 0 AND coalesce(last_seen, 0) < ?1
         AND id NOT IN (SELECT volume FROM tally UNION SELECT volume FROM gauge
                        UNION SELECT volume FROM event UNION SELECT volume FROM spent)",
        [unseen_since.as_second()],
    )?;
    Ok(())
}

/// Gives up detail, and then the oldest, until a quarter of the limit is free.
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

/// Gives the pages that are free back to the file system.
fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut steps = vacuum.query([])?;
    while steps.next()?.is_some() {}
    drop(steps);
    // A reader may keep it from being truncated now: it is tried again next time.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}
