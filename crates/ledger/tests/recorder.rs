//! A recorder beside disks that are full, read-only, damaged or gone, beside readers, and killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may")]

mod common;

use common::{Btrfs, Tmpfs, account, at, counted, ever, gauge, open, volume};
use jiff::Timestamp;
use longrun_layout::Bytes;
use longrun_ledger::{Account, Batch, Counter, Event, Ledger, Limits, Reader, Recorder, Settings, Severity};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings { flush_every: Duration::from_millis(20), retry_every: Duration::from_millis(20), ..Settings::default() }
}

/// Writes only when asked to.
fn settings_by_hand() -> Settings {
    Settings { flush_every: Duration::from_secs(3600), retry_every: Duration::from_millis(1), ..Settings::default() }
}

fn noon() -> Timestamp {
    at("2026-11-21T12:00:00Z")
}

fn recorder(path: &Path, settings: Settings) -> Recorder {
    Recorder::start(path, settings, noon).unwrap()
}

fn signals(path: &Path) -> u64 {
    Reader::open(path).unwrap().report(&ever()).unwrap().totals.get(Counter::Signals)
}

/// Waits until it holds; fails when it does not within a time that no slow machine needs.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn event(text: &str) -> Event {
    Event {
        at: noon(),
        account: account(),
        severity: Severity::Info,
        kind: "test".into(),
        text: text.into(),
        path: None,
    }
}

#[test]
fn all_that_many_threads_count_is_written_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let recorder = recorder(&path, settings());
    recorder.saw(volume("a-uuid", "/mnt/data"));
    recorder.scanned(&account(), gauge(7));
    recorder.event(event("hello"));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10_000).for_each(|_| recorder.count(&account(), Counter::Signals, 1)));
        }
    });
    drop(recorder);
    let report = Reader::open(&path).unwrap().report(&ever()).unwrap();
    assert_eq!(report.totals.get(Counter::Signals), 80_000);
    assert_eq!((report.volumes[0].scans.len(), report.events.len()), (1, 1));
}

#[test]
fn budgets_are_known_at_once_and_across_restarts_and_midnight() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let clock = Arc::new(AtomicI64::new(at("2026-11-21T23:00:00Z").as_second()));
    let start = || {
        let clock = Arc::clone(&clock);
        let now = move || Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap();
        let recorder = Recorder::start(&path, settings_by_hand(), now).unwrap();
        assert!(recorder.flush(PATIENCE));
        recorder
    };
    let recorder = start();
    recorder.spend(&account(), Bytes(100));
    assert_eq!(recorder.spent_today(&account()), Bytes(100));
    drop(recorder);
    let recorder = start();
    assert_eq!(recorder.spent_today(&account()), Bytes(100));
    recorder.spend(&account(), Bytes(50));
    assert!(recorder.flush(PATIENCE));
    assert_eq!(recorder.spent_today(&account()), Bytes(150), "written or not, it counts once");
    assert_eq!(recorder.spent_today(&Account::volume("other")), Bytes(0));
    clock.fetch_add(2 * 3600, Ordering::Relaxed);
    assert_eq!(recorder.spent_today(&account()), Bytes(0), "it is another day");
    recorder.spend(&account(), Bytes(7));
    assert_eq!(recorder.spent_today(&account()), Bytes(7));
}

#[test]
fn loop_a_full_disk_stops_the_history_only_and_it_goes_on_when_there_is_space() {
    let place = Tmpfs::of_kibibytes(2048);
    let path = place.path().join("ledger.db");
    let recorder = recorder(&path, settings_by_hand());
    recorder.count(&account(), Counter::Signals, 1);
    assert!(recorder.flush(PATIENCE));
    let rest = place.path().join("rest");
    fs::write(&rest, vec![0; 4 << 20]).unwrap_err();
    recorder.count(&account(), Counter::Signals, 10);
    // What does not fit into pages that are there already.
    (0..2000).for_each(|n| recorder.event(event(&format!("{n}{}", "x".repeat(900)))));
    assert!(!recorder.flush(PATIENCE));
    let status = recorder.status();
    assert!(!status.recording && status.note.as_ref().is_some_and(|note| note.contains("no space")), "{status:?}");
    recorder.count(&account(), Counter::Signals, 100);
    recorder.spend(&account(), Bytes(5));
    assert_eq!(recorder.spent_today(&account()), Bytes(5), "budgets hold all the same");
    place.remount("size=16m");
    fs::remove_file(&rest).unwrap();
    until("history goes on", || recorder.flush(PATIENCE));
    let status = recorder.status();
    assert_eq!((status.recording, status.note, status.dropped), (true, None, 0));
    assert_eq!(signals(&path), 111, "nothing was lost or counted twice");
}

#[test]
fn loop_a_read_only_place_is_told_and_waited_out() {
    let place = Tmpfs::of_kibibytes(8192);
    place.remount("ro");
    let path = place.path().join("ledger.db");
    let recorder = recorder(&path, settings_by_hand());
    recorder.count(&account(), Counter::Signals, 3);
    assert!(!recorder.flush(PATIENCE));
    assert!(recorder.status().note.is_some_and(|note| note.contains("not permitted")));
    place.remount("rw");
    until("history goes on", || recorder.flush(PATIENCE));
    assert_eq!(signals(&path), 3);
}

#[test]
fn a_damaged_database_is_set_aside_and_said_and_recording_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    fs::write(&path, vec![0x77; 50_000]).unwrap();
    let recorder = recorder(&path, settings_by_hand());
    recorder.count(&account(), Counter::Signals, 3);
    assert!(recorder.flush(PATIENCE));
    let status = recorder.status();
    assert!(status.recording && status.note.is_some_and(|note| note.contains("ledger.db.damaged-2026-11-21")));
    assert_eq!(signals(&path), 3);
    assert_eq!(fs::metadata(directory.path().join("ledger.db.damaged-2026-11-21")).unwrap().len(), 50_000);
}

#[test]
fn a_database_that_was_removed_beneath_it_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let recorder = recorder(&path, settings_by_hand());
    recorder.count(&account(), Counter::Signals, 3);
    assert!(recorder.flush(PATIENCE));
    for companion in ["", "-wal", "-shm"] {
        _ = fs::remove_file(directory.path().join(format!("ledger.db{companion}")));
    }
    recorder.count(&account(), Counter::Signals, 4);
    until("it is written again", || recorder.flush(PATIENCE));
    assert_eq!(signals(&path), 4);
}

#[test]
fn callers_pass_and_what_does_not_fit_is_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    // Nothing can be written: there is no such directory.
    let path = directory.path().join("missing/ledger.db");
    let recorder = recorder(&path, Settings { pending: 10, ..settings_by_hand() });
    // Rows that are being written meanwhile come back, and others have taken their place by then.
    until("the first attempt has failed", || recorder.status().note.is_some());
    recorder.count(&account(), Counter::Signals, 1);
    (0..100).for_each(|n| recorder.event(event(&n.to_string())));
    (0..100).for_each(|_| recorder.count(&account(), Counter::Signals, 1));
    recorder.count(&account(), Counter::SignalsLost, 1);
    let status = recorder.status();
    assert_eq!((status.pending, status.dropped), (10, 92), "what cannot be written is pending or dropped");
    fs::create_dir(directory.path().join("missing")).unwrap();
    until("history begins", || recorder.flush(PATIENCE));
    assert_eq!(signals(&path), 101, "what is counted already takes no further room");
}

#[test]
fn readers_beside_a_writer_see_whole_batches_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    drop(open(&path, "2026-11-21T12:00:00Z"));
    let (done, begun) = (AtomicBool::new(false), Barrier::new(3));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                begun.wait();
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let totals = Reader::open(&path).unwrap().report(&ever()).unwrap().totals;
                    let (signals, lost) = (totals.get(Counter::Signals), totals.get(Counter::SignalsLost));
                    assert_eq!(signals, lost, "half a batch was seen");
                    assert!(signals >= last, "history went back");
                    last = signals;
                    // Readers come now and then: two that never pause would keep the writer out.
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let _end = AtEnd(&done);
        begun.wait();
        for n in 0..200 {
            let time = noon() + jiff::SignedDuration::from_hours(n);
            let mut batch = counted(Counter::Signals, 1, time);
            batch.count(&account(), Counter::SignalsLost, 1, time);
            // As the recorder does: open while it writes only.
            let mut ledger = Ledger::open_again(&path, Limits::default()).unwrap();
            ledger.write(&batch).unwrap();
            if n % 50 == 0 {
                ledger.keep_house(time + jiff::SignedDuration::from_hours(24 * 365)).unwrap();
            }
        }
    });
    assert_eq!(signals(&path), 200);
}

/// Ends the readers, also when the writer fails: they would go on for ever otherwise, and the test with them.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const FULL: &str = "LONGRUN_LEDGER_TEST_FULL";

/// A file that is mapped and shared with a snapshot cannot be stored to when the volume is full: the process would die of
/// SIGBUS. The recorder is this test program, started anew with a variable set, so that its death can be seen.
#[test]
fn loop_a_full_volume_with_snapshots_does_not_kill_the_recorder() {
    if let Some(path) = std::env::var_os(FULL) {
        return record_on_a_volume_that_fills(Path::new(&path));
    }
    let volume = Btrfs::new();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loop_a_full_volume_with_snapshots_does_not_kill_the_recorder"])
        .env(FULL, volume.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn record_on_a_volume_that_fills(volume: &Path) {
    let path = volume.join("ledger.db");
    let recorder = recorder(&path, settings_by_hand());
    recorder.count(&account(), Counter::Signals, 1);
    assert!(recorder.flush(PATIENCE));
    // A reader maps nothing either; and a database may be open just then.
    assert_eq!(signals(&path), 1);
    let mut ledger = Ledger::open(&path, Limits::default(), noon()).unwrap().ledger;
    ledger.write(&counted(Counter::Signals, 1, noon())).unwrap();
    let snapshot =
        Command::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(volume).arg(volume.join("s")).status();
    assert!(snapshot.unwrap().success());
    let mut rest = fs::File::create(volume.join("rest")).unwrap();
    for piece in [1 << 20, 64 << 10, 4096, 512] {
        while rest.write_all(&vec![1; piece]).and_then(|()| rest.sync_all()).is_ok() {}
    }
    let mut batch = Batch::default();
    batch.events.push(event(&"x".repeat(900)));
    let failures = (0..2000).filter(|_| ledger.write(&batch).is_err()).count();
    assert!(failures > 0, "the volume was not full");
    drop(ledger);
    (0..20).for_each(|_| drop(Reader::open(&path).and_then(|reader| reader.report(&ever()))));
    assert!(!volume.join("ledger.db-shm").exists(), "somebody maps a file");
    let mut failed = false;
    for n in 0..50 {
        (0..100).for_each(|m| recorder.event(event(&format!("{n}.{m}{}", "x".repeat(900)))));
        recorder.count(&account(), Counter::Signals, 1);
        failed |= !recorder.flush(PATIENCE);
    }
    assert!(failed, "the volume is not full any more");
    drop(rest);
    fs::remove_file(volume.join("rest")).unwrap();
    until("history goes on", || recorder.flush(PATIENCE));
    assert_eq!(signals(&path), 52);
}

const CHILD: &str = "LONGRUN_LEDGER_TEST_CHILD";

/// Kills a process that writes, again and again. The process is this test program, started anew with a variable set.
#[test]
fn a_kill_during_writes_leaves_a_database_that_opens_and_has_all_that_was_written() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let mut at_least = 0;
    for round in 0..15 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("a_kill_during_writes_leaves_a_database_that_opens_and_has_all_that_was_written")
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let confirmed = directory.path().join("ledger.db.confirmed");
        let confirmed = || fs::read_to_string(&confirmed).ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let goal = at_least + 2;
        until("the child writes", || confirmed() >= goal);
        // At another moment of a write each time.
        thread::sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = Ledger::open(&path, Limits::default(), noon()).unwrap();
        assert_eq!(opened.note, None, "the database is whole");
        let totals = opened.ledger.report(&ever()).unwrap().totals;
        let written = totals.get(Counter::Signals);
        assert_eq!(written, totals.get(Counter::SignalsLost), "half a batch");
        assert!(written >= confirmed(), "{written} < {}: more than the last batch is missing", confirmed());
        at_least = written;
    }
}

fn write_until_killed(path: &Path) {
    let mut ledger = open(path, "2026-11-21T12:00:00Z");
    let mut written = ledger.report(&ever()).unwrap().totals.get(Counter::Signals);
    let confirmed = path.with_extension("db.confirmed");
    let beside = path.with_extension("db.beside");
    loop {
        let mut batch = counted(Counter::Signals, 1, noon());
        batch.count(&account(), Counter::SignalsLost, 1, noon());
        batch.events.push(event(&"x".repeat(500)));
        ledger.write(&batch).unwrap();
        if written.is_multiple_of(64) {
            ledger.keep_house(noon()).unwrap();
        }
        written += 1;
        fs::write(&beside, written.to_string()).unwrap();
        fs::rename(&beside, &confirmed).unwrap();
    }
}
