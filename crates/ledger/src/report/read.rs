//! Reads a report from the database in one snapshot, also while another process writes.

use super::{EventShown, GaugeShown, Period, Query, Report, SeriesPoint, Tallies, VolumeReport, benefit};
use crate::{Counter, Gauge, LedgerError, Severity, Step, VolumeIdentity};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest period that is shown by the hour.
const BY_HOURS: SignedDuration = SignedDuration::from_hours(3 * 24);
/// The longest period that is shown by the day.
const BY_DAYS: SignedDuration = SignedDuration::from_hours(120 * 24);
/// The most volumes that the error for an unknown volume names.
const NAMED: usize = 8;
/// So many events more than are shown are held before those that are not shown are dropped.
const AT_ONCE: usize = 1000;

/// The report on the period of `query`.
pub fn report(connection: &Connection, path: &Path, query: &Query) -> Result<Report, LedgerError> {
    let failed = |e| LedgerError::sqlite(path, "read it", e);
    // One transaction, so that all parts of the report are of the same moment.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let mut volumes = volumes(&snapshot).map_err(failed)?;
    if let Some(asked) = &query.volume {
        let known: Vec<String> = volumes.values().filter_map(Known::name).take(NAMED).collect();
        volumes.retain(|_, known| known.answers_to(asked));
        if volumes.is_empty() {
            let known = if known.is_empty() { "no volume yet".to_owned() } else { known.join(", ") };
            return Err(LedgerError::UnknownVolume { asked: asked.clone(), known });
        }
    }
    let read = || {
        let rows = tallies(&snapshot, query.period, &volumes)?;
        let step = rows.iter().map(|row| row.step).max().unwrap_or(Step::Hour).max(step_for(query.period, &rows));
        let shown = volume_reports(&snapshot, query, &volumes, &rows, step)?;
        let totals = totals(rows.iter());
        let (events, events_left_out) = events(&snapshot, query, &volumes)?;
        Ok(Report {
            period: query.period,
            step,
            has_history: has_history(&snapshot)?,
            series: series(rows.iter(), step),
            benefit: benefit::of(&totals, shown.iter().map(|v| v.scans.as_slice())),
            totals,
            volumes: shown,
            events,
            events_left_out,
        })
    };
    read().map_err(failed)
}

/// A row of the volumes; the service itself is one of them, without a UUID.
struct Known {
    volume: VolumeIdentity,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

impl Known {
    fn is_service(&self) -> bool {
        self.volume.uuid.is_empty()
    }

    fn name(&self) -> Option<String> {
        let volume = &self.volume;
        match volume.point.as_os_str().is_empty() {
            _ if self.is_service() => None,
            true => Some(volume.uuid.clone()),
            false => Some(volume.point.display().to_string()),
        }
    }

    fn answers_to(&self, asked: &str) -> bool {
        let volume = &self.volume;
        let path = Path::new(asked);
        !self.is_service()
            && !asked.is_empty()
            && (volume.uuid == asked
                || volume.label.as_deref() == Some(asked)
                || volume.point == path
                || volume.device == path)
    }
}

fn volumes(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, Known>> {
    let question = "SELECT id, uuid, label, point, device, filesystem, first_seen, last_seen FROM volume";
    let mut statement = connection.prepare(question)?;
    let known = statement.query_map([], |row| {
        let volume = VolumeIdentity {
            uuid: row.get(1)?,
            label: row.get(2)?,
            point: path_of(row, 3)?,
            device: path_of(row, 4)?,
            filesystem: row.get(5)?,
        };
        Ok((row.get(0)?, Known { volume, first_seen: time(row, 6)?, last_seen: time(row, 7)? }))
    })?;
    known.collect()
}

fn path_of(row: &Row<'_>, column: usize) -> rusqlite::Result<PathBuf> {
    Ok(PathBuf::from(OsStr::from_bytes(&row.get::<_, Vec<u8>>(column)?)))
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let seconds: Option<i64> = row.get(column)?;
    Ok(seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()))
}

fn figure(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let figure: Option<i64> = row.get(column)?;
    Ok(figure.and_then(|figure| u64::try_from(figure).ok()))
}

/// A count of one volume in one step of time.
struct Tally {
    step: Step,
    at: Timestamp,
    volume: i64,
    counter: Counter,
    value: u64,
}

/// All counts of the steps that overlap the period. A step cannot be divided.
fn tallies(connection: &Connection, period: Period, of: &BTreeMap<i64, Known>) -> rusqlite::Result<Vec<Tally>> {
    let question = "SELECT at, volume, counter, value FROM tally WHERE step = ?1 AND at >= ?2 AND at < ?3";
    let mut statement = connection.prepare(question)?;
    let mut found = Vec::new();
    for step in Step::ALL {
        let bounds = params![step.code(), step.floor(period.from).as_second(), period.to.as_second()];
        let mut rows = statement.query(bounds)?;
        while let Some(row) = rows.next()? {
            let counter: String = row.get(2)?;
            // A later version of the same format may have further counters.
            let (Some(at), Some(counter), Some(value)) = (time(row, 0)?, Counter::from_name(&counter), figure(row, 3)?)
            else {
                continue;
            };
            let volume = row.get(1)?;
            if of.contains_key(&volume) {
                found.push(Tally { step, at, volume, counter, value });
            }
        }
    }
    Ok(found)
}

fn totals<'a>(rows: impl Iterator<Item = &'a Tally>) -> Tallies {
    let mut sums = Tallies::default();
    rows.for_each(|row| sums.add(row.counter, row.value));
    sums
}

fn series<'a>(rows: impl Iterator<Item = &'a Tally>, step: Step) -> Vec<SeriesPoint> {
    let mut points: BTreeMap<Timestamp, Tallies> = BTreeMap::new();
    for row in rows {
        points.entry(step.floor(row.at)).or_default().add(row.counter, row.value);
    }
    points.into_iter().map(|(at, tallies)| SeriesPoint { at, tallies }).collect()
}

/// The step that fits the time with figures, which may be much shorter than the period.
fn step_for(period: Period, rows: &[Tally]) -> Step {
    let oldest = rows.iter().map(|row| row.at).min().unwrap_or(period.from);
    let latest = rows.iter().map(|row| row.at).max().unwrap_or(period.to);
    match latest.min(period.to).duration_since(oldest.max(period.from)) {
        short if short <= BY_HOURS => Step::Hour,
        medium if medium <= BY_DAYS => Step::Day,
        _ => Step::Month,
    }
}

/// The volumes with figures in the period. A volume that was asked for is always shown.
fn volume_reports(
    connection: &Connection,
    query: &Query,
    volumes: &BTreeMap<i64, Known>,
    rows: &[Tally],
    step: Step,
) -> rusqlite::Result<Vec<VolumeReport>> {
    let mut shown = Vec::new();
    for (id, known) in volumes.iter().filter(|(_, known)| !known.is_service()) {
        let own = || rows.iter().filter(|row| row.volume == *id);
        let scans = scans(connection, query.period, *id)?;
        let seen = known.last_seen.is_some_and(|at| at >= query.period.from)
            && known.first_seen.is_some_and(|at| at < query.period.to);
        if query.volume.is_none() && !seen && scans.is_empty() && own().next().is_none() {
            continue;
        }
        let totals = totals(own());
        shown.push(VolumeReport {
            volume: known.volume.clone(),
            first_seen: known.first_seen,
            last_seen: known.last_seen,
            series: series(own(), step),
            benefit: benefit::of(&totals, std::iter::once(scans.as_slice())),
            totals,
            scans,
        });
    }
    let rank = |volume: &VolumeReport| volume.benefit.excess_avoided;
    shown.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.volume.point.cmp(&b.volume.point)));
    Ok(shown)
}

fn scans(connection: &Connection, period: Period, volume: i64) -> rusqlite::Result<Vec<GaugeShown>> {
    let mut statement = connection.prepare_cached(
        "SELECT at, files, fragmented_files, excess_fragments, free_pieces, largest_free_bytes, free_bytes, used_bytes,
         floor_pieces FROM gauge WHERE volume = ?1 AND at >= ?2 AND at < ?3 ORDER BY at",
    )?;
    let rows = statement.query_map(params![volume, period.from.as_second(), period.to.as_second()], |row| {
        let gauge = Gauge {
            files: figure(row, 1)?,
            fragmented_files: figure(row, 2)?,
            excess_fragments: figure(row, 3)?,
            free_pieces: figure(row, 4)?,
            largest_free_bytes: figure(row, 5)?,
            free_bytes: figure(row, 6)?,
            used_bytes: figure(row, 7)?,
            floor_pieces: figure(row, 8)?,
        };
        Ok(time(row, 0)?.map(|at| GaugeShown { at, gauge }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

fn events(
    connection: &Connection,
    query: &Query,
    volumes: &BTreeMap<i64, Known>,
) -> rusqlite::Result<(Vec<EventShown>, u64)> {
    let mut statement = connection.prepare(
        "SELECT at, volume, severity, kind, text, path FROM event WHERE at >= ?1 AND at < ?2 ORDER BY id DESC",
    )?;
    let mut rows = statement.query(params![query.period.from.as_second(), query.period.to.as_second()])?;
    let (mut found, mut count) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let Some(known) = volumes.get(&row.get(1)?) else { continue };
        let severity: String = row.get(2)?;
        let (Some(at), Some(severity)) = (time(row, 0)?, Severity::from_name(&severity)) else { continue };
        let name: Option<Vec<u8>> = row.get(5)?;
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        count += 1;
        found.push(EventShown {
            at,
            volume: (!known.is_service()).then(|| known.volume.uuid.clone()),
            severity,
            kind: row.get(3)?,
            text: row.get(4)?,
            path: name.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            path_hex: name.as_ref().filter(|bytes| std::str::from_utf8(bytes).is_err()).map(hex),
        });
        // A period may have any number of events: only those that are shown are kept in memory.
        if found.len() > query.events.saturating_add(AT_ONCE) {
            keep_first(&mut found, query.events);
        }
    }
    keep_first(&mut found, query.events);
    let left_out = count - u64::try_from(found.len()).unwrap_or(count);
    Ok((found, left_out))
}

/// Keeps the `most` most severe and then latest events. Of the same moment, those stay that come first.
fn keep_first(events: &mut Vec<EventShown>, most: usize) {
    events.sort_by_key(|event| (std::cmp::Reverse(event.severity), std::cmp::Reverse(event.at)));
    events.truncate(most);
}

fn has_history(connection: &Connection) -> rusqlite::Result<bool> {
    let question =
        "SELECT EXISTS (SELECT 1 FROM tally) OR EXISTS (SELECT 1 FROM gauge) OR EXISTS (SELECT 1 FROM event)";
    connection.query_row(question, [], |row| row.get(0))
}
