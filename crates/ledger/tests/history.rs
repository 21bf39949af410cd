//! What becomes of counts over the years: sums stay, detail goes, and the file stays small.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may")]

mod common;

use common::{account, at, counted, ever, gauge, open, volume};
use jiff::{SignedDuration, Timestamp};
use longrun_layout::Bytes;
use longrun_ledger::{Account, Batch, Counter, Day, Event, Ledger, LedgerError, Limits, Period, Query, Severity, Step};
use proptest::prelude::*;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

fn event(time: Timestamp, severity: Severity, text: &str) -> Event {
    Event {
        at: time,
        account: account(),
        severity,
        kind: "test".into(),
        text: text.into(),
        path: Some("/mnt/data/file".into()),
    }
}

fn totals(ledger: &Ledger) -> longrun_ledger::Tallies {
    ledger.report(&ever()).unwrap().totals
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever was counted whenever, in any order, and however often house was kept between: the sums are the same.
    #[test]
    fn rolling_up_conserves_the_sums_of_every_counter(
        counts in prop::collection::vec((0i64..6 * 365 * 24, 0usize..Counter::ALL.len(), 0u64..1 << 40, 0u8..3), 1..80),
        house in prop::collection::vec(0i64..8 * 365, 1..6),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-01T00:00:00Z");
        let start = at("2026-01-01T00:00:00Z");
        let mut expected = longrun_ledger::Tallies::default();
        for (nth, (hour, counter, amount, whose)) in counts.iter().enumerate() {
            let account = [Account::service(), account(), Account::volume("other")][usize::from(*whose)].clone();
            let mut batch = Batch::default();
            batch.count(&account, Counter::ALL[*counter], *amount, start + SignedDuration::from_hours(*hour));
            expected.add(Counter::ALL[*counter], *amount);
            ledger.write(&batch).unwrap();
            if nth % 13 == 0 {
                ledger.keep_house(start + SignedDuration::from_hours(24 * house[nth % house.len()])).unwrap();
            }
        }
        for days in house {
            ledger.keep_house(start + SignedDuration::from_hours(24 * days)).unwrap();
            prop_assert_eq!(&totals(&ledger), &expected);
        }
        let report = ledger.report(&ever()).unwrap();
        let by_step = report.series.iter().fold(longrun_ledger::Tallies::default(), |mut sums, point| {
            point.tallies.0.iter().for_each(|(counter, amount)| sums.add(*counter, *amount));
            sums
        });
        prop_assert_eq!(by_step, expected);
    }
}

#[test]
fn hours_become_days_and_days_become_months() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-01T00:00:00Z");
    for (time, amount) in [("2026-03-05T10:10:00Z", 1), ("2026-03-05T23:59:59Z", 2), ("2026-03-31T00:00:00Z", 4)] {
        ledger.write(&counted(Counter::Signals, amount, at(time))).unwrap();
    }
    let points = |ledger: &Ledger, from: &str, to: &str| {
        let query = Query { period: Period { from: at(from), to: at(to) }, ..ever() };
        let report = ledger.report(&query).unwrap();
        let points: Vec<_> =
            report.series.iter().map(|p| (p.at.to_string(), p.tallies.get(Counter::Signals))).collect();
        (report.step, points)
    };
    let day = |ledger: &Ledger| points(ledger, "2026-03-05T00:00:00Z", "2026-03-06T00:00:00Z");
    let expected = [("2026-03-05T10:00:00Z".to_owned(), 1), ("2026-03-05T23:00:00Z".to_owned(), 2)];
    assert_eq!(day(&ledger), (Step::Hour, expected.to_vec()));
    ledger.keep_house(at("2026-06-01T00:00:00Z")).unwrap();
    assert_eq!(day(&ledger), (Step::Day, vec![("2026-03-05T00:00:00Z".to_owned(), 3)]));
    ledger.keep_house(at("2028-09-01T00:00:00Z")).unwrap();
    assert_eq!(day(&ledger), (Step::Month, vec![("2026-03-01T00:00:00Z".to_owned(), 7)]), "a step is not cut");
}

/// Ticks of six years for several volumes, twice as many as fit.
#[test]
fn years_of_history_stay_below_the_limit_and_keep_the_latest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let limits = Limits { max: Bytes(512 << 10), events: 300, ..Limits::default() };
    let mut ledger = Ledger::open(&path, limits, at("2026-01-01T00:00:00Z")).unwrap().ledger;
    let start = at("2026-01-01T00:00:00Z");
    let (mut now, mut largest) = (start, 0);
    for day in 0..6 * 365 {
        now = start + SignedDuration::from_hours(24 * day);
        let mut batch = Batch::default();
        for one in 0..2 {
            let identity = volume(&format!("uuid-{one}"), &format!("/mnt/{one}"));
            let account = identity.account();
            batch.saw(identity, now);
            for hour in 0..24 {
                let time = now + SignedDuration::from_hours(hour);
                for counter in &Counter::ALL[..4] {
                    batch.count(&account, *counter, 5, time);
                }
                batch.gauges.push((account.clone(), time, gauge(9)));
            }
            batch.events.push(event(now, Severity::Info, &"long ".repeat(100)));
            batch.spend(&account, Bytes(1), now);
        }
        ledger.write(&batch).unwrap();
        if ledger.is_too_large().unwrap() || day % 5 == 0 {
            ledger.keep_house(now).unwrap();
            largest = largest.max(ledger.bytes().unwrap());
        }
    }
    ledger.keep_house(now).unwrap();
    assert!(largest <= 512 << 10, "the file grew to {largest} bytes");
    let lately = Query { period: Period { from: now - SignedDuration::from_hours(72), to: now }, ..ever() };
    let report = ledger.report(&lately).unwrap();
    assert_eq!(report.totals.get(Counter::FragmentsPrevented), 2 * 5 * 72, "the latest is there in full");
    let wal = std::fs::metadata(directory.path().join("ledger.db-wal")).unwrap().len();
    assert!(wal <= 2 << 20, "the log beside it grew to {wal} bytes");
}

#[test]
fn counts_beyond_the_largest_number_stay_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-01T00:00:00Z");
    for hour in 0..30 {
        let time = at("2026-01-01T00:30:00Z") + SignedDuration::from_mins(30 * hour);
        ledger.write(&counted(Counter::BytesMoved, u64::MAX, time)).unwrap();
        let mut batch = Batch::default();
        batch.spend(&account(), Bytes(u64::MAX), time);
        ledger.write(&batch).unwrap();
    }
    ledger.keep_house(at("2030-01-01T00:00:00Z")).unwrap();
    assert!(totals(&ledger).get(Counter::BytesMoved) >= i64::MAX as u64);
}

#[test]
fn events_are_pruned_by_number_and_alerts_are_not_pushed_out_by_chatter() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { events: 10, ..Limits::default() };
    let now = at("2026-01-02T00:00:00Z");
    let mut ledger = Ledger::open(&directory.path().join("ledger.db"), limits, now).unwrap().ledger;
    let mut batch = Batch::default();
    batch.events.push(event(now, Severity::Alert, "the alert"));
    for n in 0..500 {
        batch.events.push(event(now + SignedDuration::from_secs(n), Severity::Info, &format!("chatter {n}")));
    }
    ledger.write(&batch).unwrap();
    ledger.keep_house(now).unwrap();
    let report = ledger.report(&Query { events: 5, ..ever() }).unwrap();
    let texts: Vec<&str> = report.events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["the alert", "chatter 499", "chatter 498", "chatter 497", "chatter 496"]);
    assert_eq!(report.events_left_out, 6);
}

#[test]
fn of_many_events_the_same_ones_are_shown_as_of_few() {
    let directory = tempfile::tempdir().unwrap();
    let now = at("2026-01-02T00:00:00Z");
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-02T00:00:00Z");
    let mut batch = Batch::default();
    batch.events.push(event(now, Severity::Alert, "the alert"));
    for n in 0..3500 {
        // Two a second, recorded late and early ones in turn.
        let seconds = if n % 2 == 0 { n / 2 } else { 3500 - n / 2 };
        batch.events.push(event(now + SignedDuration::from_secs(seconds), Severity::Info, &format!("chatter {n}")));
    }
    ledger.write(&batch).unwrap();
    let shown = |events| ledger.report(&Query { events, ..ever() }).unwrap();
    let (few, all) = (shown(700), shown(usize::MAX));
    assert_eq!((all.events.len(), all.events_left_out), (3501, 0));
    assert_eq!((&few.events[..], few.events_left_out), (&all.events[..700], 2801));
}

#[test]
fn of_old_scans_the_last_of_each_day_and_month_stays() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-01T00:00:00Z");
    let mut batch = Batch::default();
    batch.saw(volume("a-uuid", "/mnt"), at("2026-01-01T00:00:00Z"));
    for hour in 0..24 * 60 {
        let time = at("2026-01-01T00:00:00Z") + SignedDuration::from_hours(hour);
        batch.gauges.push((account(), time, gauge(u64::try_from(hour).unwrap())));
    }
    ledger.write(&batch).unwrap();
    let excess = |ledger: &Ledger| -> Vec<u64> {
        let report = ledger.report(&ever()).unwrap();
        report.volumes[0].scans.iter().filter_map(|scan| scan.gauge.excess_fragments).collect()
    };
    ledger.keep_house(at("2026-06-01T00:00:00Z")).unwrap();
    let days = excess(&ledger);
    assert_eq!((days.len(), days[0], days[59]), (60, 23, 24 * 60 - 1));
    ledger.keep_house(at("2029-06-01T00:00:00Z")).unwrap();
    assert_eq!(excess(&ledger), [24 * 31 - 1, 24 * 59 - 1, 24 * 60 - 1]);
}

#[test]
fn volumes_of_which_nothing_is_left_are_forgotten_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let mut ledger = open(&path, "2026-01-01T00:00:00Z");
    let mut batch = Batch::default();
    for job in 0..100 {
        batch.saw(volume(&format!("job-{job}"), "/mnt/job"), at("2026-01-01T00:00:00Z"));
    }
    batch.count(&Account::volume("job-7"), Counter::Signals, 1, at("2026-01-01T00:00:00Z"));
    ledger.write(&batch).unwrap();
    ledger.keep_house(at("2026-04-01T00:00:00Z")).unwrap();
    drop(ledger);
    let connection = rusqlite::Connection::open(Path::new(&path)).unwrap();
    let left: i64 = connection.query_row("SELECT count(*) FROM volume", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 2, "job-7 and the service itself");
}

#[test]
fn what_was_spent_is_told_by_day() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let mut ledger = open(&path, "2026-01-01T00:00:00Z");
    let (evening, morning) = (at("2026-01-01T23:59:00Z"), at("2026-01-02T00:01:00Z"));
    let mut batch = Batch::default();
    batch.spend(&account(), Bytes(100), evening);
    batch.spend(&account(), Bytes(30), morning);
    ledger.write(&batch).unwrap();
    ledger.write(&batch).unwrap();
    drop(ledger);
    let ledger = open(&path, "2026-01-02T00:01:00Z");
    assert_eq!(ledger.spent(&account(), Day::of(evening)).unwrap(), Bytes(200));
    assert_eq!(ledger.spent(&account(), Day::of(morning)).unwrap(), Bytes(60));
    assert_eq!(ledger.spent(&Account::volume("other"), Day::of(morning)).unwrap(), Bytes(0));
}

#[test]
fn a_volume_is_found_by_any_of_its_names_and_an_unknown_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-01-01T00:00:00Z");
    let now = at("2026-01-01T00:00:00Z");
    let mut batch = counted(Counter::Signals, 1, now);
    batch.saw(volume("a-uuid", "/mnt/data"), now);
    batch.saw(volume("b-uuid", "/mnt/other"), now);
    batch.count(&Account::volume("b-uuid"), Counter::Signals, 10, now);
    batch.count(&Account::service(), Counter::CpuMillis, 9, now);
    ledger.write(&batch).unwrap();
    let asked = |name: &str| ledger.report(&Query { volume: Some(name.into()), ..ever() });
    for name in ["a-uuid", "/mnt/data", "/mnt/data/", "label of a-uuid"] {
        let report = asked(name).unwrap();
        assert_eq!((report.volumes.len(), report.totals.get(Counter::Signals)), (1, 1), "{name}");
        assert_eq!(report.totals.get(Counter::CpuMillis), 0, "the service belongs to no volume");
    }
    assert_eq!(asked("/dev/sdb1").unwrap().totals.get(Counter::Signals), 11);
    let unknown = asked("/srv").unwrap_err();
    assert!(matches!(unknown, LedgerError::UnknownVolume { .. }));
    assert!(unknown.to_string().contains("/mnt/data, /mnt/other"), "{unknown}");
    assert_eq!(ledger.report(&ever()).unwrap().totals.get(Counter::CpuMillis), 9);
}

#[test]
fn the_report_is_stable() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(&directory.path().join("ledger.db"), "2026-11-20T00:00:00Z");
    let now = at("2026-11-20T10:20:30Z");
    let mut batch = Batch::default();
    let mut identity = volume("a-uuid", "/mnt/data");
    identity.label = Some("<script>\x1b[2J".into());
    batch.saw(identity, now);
    batch.count(&account(), Counter::FragmentsPrevented, 98_500, now);
    batch.count(&account(), Counter::FragmentsSlipped, 1500, now + SignedDuration::from_hours(1));
    batch.count(&account(), Counter::FragmentsMended, 1499, now + SignedDuration::from_hours(2));
    batch.count(&account(), Counter::FilesMended, 12, now + SignedDuration::from_hours(2));
    batch.count(&Account::service(), Counter::CpuMillis, 1234, now);
    batch.gauges.push((account(), now, gauge(1700)));
    batch.gauges.push((account(), now + SignedDuration::from_hours(3), gauge(201)));
    batch.events.push(Event {
        path: Some(std::ffi::OsString::from_vec(b"/mnt/caf\xe9".to_vec()).into()),
        ..event(now, Severity::Warning, "mended")
    });
    ledger.write(&batch).unwrap();
    let period = Period { from: at("2026-11-20T00:00:00Z"), to: at("2026-11-21T00:00:00Z") };
    insta::assert_json_snapshot!(ledger.report(&Query { period, ..ever() }).unwrap());
}

#[test]
fn an_empty_history_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(&directory.path().join("ledger.db"), "2026-11-20T00:00:00Z");
    let report = ledger.report(&ever()).unwrap();
    assert!(!report.has_history && report.volumes.is_empty() && report.series.is_empty());
}
