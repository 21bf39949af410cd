//! What an opening finds: nothing, a newer or foreign database, damage, or a place where nothing can be written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may")]

mod common;

use common::{Tmpfs, account, at, counted, ever, open};
use longrun_ledger::{Counter, Ledger, LedgerError, Limits, Note, Reader};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const NOW: &str = "2026-11-21T12:00:00Z";

fn filled(path: &Path) {
    let mut ledger = open(path, NOW);
    for hour in 0..2000 {
        let time = at("2026-11-01T00:00:00Z") + jiff::SignedDuration::from_hours(hour);
        ledger.write(&counted(Counter::FragmentsPrevented, 3, time)).unwrap();
    }
}

#[test]
fn a_database_is_begun_for_the_eyes_of_owner_and_group_and_keeps_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    filled(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o007, 0);
    let report = Reader::open(&path).unwrap().report(&ever()).unwrap();
    assert_eq!(report.totals.get(Counter::FragmentsPrevented), 6000);
}

#[test]
fn a_newer_format_is_refused_and_the_file_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    filled(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let refused = Ledger::open(&path, Limits::default(), at(NOW)).unwrap_err();
    assert!(matches!(refused, LedgerError::Newer { found: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("has format 99"), "{refused}");
    assert!(matches!(Reader::open(&path), Err(LedgerError::Newer { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn the_database_of_another_program_is_refused_and_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')").unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let refused = Ledger::open(&path, Limits::default(), at(NOW)).unwrap_err();
    assert!(matches!(refused, LedgerError::Foreign { .. }), "{refused}");
    assert!(matches!(Reader::open(&path), Err(LedgerError::Foreign { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Damages a filled database and opens it: the damaged bytes must still be there, and a new history begins.
fn check_that_damage_is_set_aside(damage: impl FnOnce(&mut Vec<u8>)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let opened = Ledger::open(&path, Limits::default(), at(NOW)).unwrap();
    let Some(Note::SetAside { kept, .. }) = &opened.note else { panic!("the damage was not noticed") };
    assert_eq!(kept, &directory.path().join("ledger.db.damaged-2026-11-21"));
    assert_eq!(fs::read(kept).unwrap(), bytes, "what was damaged is kept as it was");
    let mut ledger = opened.ledger;
    ledger.write(&counted(Counter::Signals, 7, at(NOW))).unwrap();
    let totals = ledger.report(&ever()).unwrap().totals;
    assert_eq!((totals.get(Counter::Signals), totals.get(Counter::FragmentsPrevented)), (7, 0));
}

#[test]
fn a_truncated_database_is_set_aside_and_a_new_one_begun() {
    check_that_damage_is_set_aside(|bytes| bytes.truncate(bytes.len() / 2));
}

#[test]
fn a_database_cut_within_its_header_is_set_aside() {
    check_that_damage_is_set_aside(|bytes| bytes.truncate(60));
}

#[test]
fn random_bytes_are_set_aside() {
    check_that_damage_is_set_aside(|bytes| bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 31 % 251) as u8));
}

#[test]
fn a_page_of_garbage_is_set_aside() {
    check_that_damage_is_set_aside(|bytes| bytes[8192..12288].fill(0xa5));
}

#[test]
fn a_second_damage_on_one_day_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    for content in ["first damage", "second damage"] {
        fs::write(&path, content).unwrap();
        Ledger::open(&path, Limits::default(), at(NOW)).unwrap();
    }
    let kept = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(kept("ledger.db.damaged-2026-11-21"), "first damage");
    assert_eq!(kept("ledger.db.damaged-2026-11-21.1"), "second damage");
}

#[test]
fn reading_leaves_a_damaged_database_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    fs::write(&path, vec![0x5a; 8192]).unwrap();
    assert!(matches!(Reader::open(&path), Err(LedgerError::Damaged { .. })));
    assert_eq!(fs::read(&path).unwrap(), vec![0x5a; 8192]);
}

#[test]
fn no_history_yet_is_told_from_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    assert!(matches!(Reader::open(&path), Err(LedgerError::Missing { .. })));
    assert!(!path.exists(), "reading begins nothing");
    assert!(matches!(Reader::open(directory.path()), Err(LedgerError::Io { .. })));
    let missing = Ledger::open(&directory.path().join("no/ledger.db"), Limits::default(), at(NOW)).unwrap_err();
    assert!(matches!(missing, LedgerError::Io { .. }), "{missing}");
}

#[test]
fn loop_a_read_only_place_is_named_and_can_be_read() {
    let place = Tmpfs::of_kibibytes(8192);
    let path = place.path().join("ledger.db");
    let new = place.path().join("new.db");
    filled(&path);
    place.remount("ro");
    for path in [&path, &new] {
        let refused = Ledger::open(path, Limits::default(), at(NOW)).unwrap_err();
        assert!(matches!(refused, LedgerError::ReadOnly { .. }), "{refused:?}");
    }
    let report = Reader::open(&path).unwrap().report(&ever()).unwrap();
    assert_eq!(report.totals.get(Counter::FragmentsPrevented), 6000);
}

#[test]
fn loop_a_full_disk_is_named() {
    let place = Tmpfs::of_kibibytes(512);
    let full = Ledger::open(&place.path().join("ledger.db"), Limits::default(), at(NOW)).map(|mut opened| {
        (0..100_000).find_map(|hour| {
            let mut batch = counted(Counter::Signals, 1, at(NOW) + jiff::SignedDuration::from_hours(hour));
            batch.spend(&account(), longrun_layout::Bytes(1), at(NOW));
            opened.ledger.write(&batch).err()
        })
    });
    assert!(matches!(full, Ok(Some(LedgerError::Full { .. }))), "{full:?}");
    fs::write(place.path().join("rest"), vec![0; 1 << 20]).unwrap_err();
    let full = Ledger::open(&place.path().join("second.db"), Limits::default(), at(NOW)).unwrap_err();
    assert!(matches!(full, LedgerError::Full { .. }), "{full:?}");
}
