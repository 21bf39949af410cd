//! `longrun report`, as the shell sees it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{check, longrun};
use longrun_ledger::{Batch, Counter, Ledger, Limits, VolumeIdentity};
use std::fs;
use std::path::Path;

/// A state directory whose history is of one hour of 2026-11-20.
fn with_history() -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    let now = "2026-11-20T10:20:30Z".parse().unwrap();
    let mut ledger = Ledger::open(&state.path().join("ledger.db"), Limits::default(), now).unwrap().ledger;
    let volume = VolumeIdentity {
        uuid: "a-uuid".into(),
        label: None,
        point: "/mnt/\x1b[2J<b>".into(),
        device: "/dev/sdb1".into(),
        filesystem: "xfs".into(),
    };
    let mut batch = Batch::default();
    batch.count(&volume.account(), Counter::FragmentsPrevented, 1234, now);
    batch.saw(volume, now);
    ledger.write(&batch).unwrap();
    state
}

fn report(state: &Path, words: &str) -> std::process::Output {
    let state = state.to_str().unwrap();
    let words = words.split(' ').filter(|word| !word.is_empty());
    longrun(["report", "--state", state].into_iter().chain(words))
}

#[test]
fn before_there_is_any_history_it_says_so_and_is_content() {
    let state = tempfile::tempdir().unwrap();
    for words in ["", "--format html", "--since 2026-01-01 --until 2026-02-01"] {
        assert!(check(&report(state.path(), words), 0, "").contains("There is no history yet"), "{words}");
    }
    let json: serde_json::Value = serde_json::from_str(&check(&report(state.path(), "--json"), 0, "")).unwrap();
    assert_eq!(json["has_history"], false);
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0, "looking begins nothing");
}

#[test]
fn what_was_counted_is_told_in_every_form() {
    let state = with_history();
    let period = "--since 2026-11-01 --until 2026-12-01";
    let text = check(&report(state.path(), period), 0, "");
    assert!(text.contains("1,234 excess fragments prevented") && !text.contains('\x1b'), "{text}");
    let json = check(&report(state.path(), &format!("{period} --json")), 0, "");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["totals"]["fragments-prevented"], 1234);
    let page = state.path().join("report.html");
    let words = format!("{period} --format html --output {}", page.display());
    assert_eq!(check(&report(state.path(), &words), 0, ""), "");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("1,234") && !page.contains("<b>"));
    let other = check(&report(state.path(), "--since 2025-11-01 --until 2025-12-01"), 0, "");
    assert!(other.contains("Benefit: none"), "{other}");
}

#[test]
fn a_period_or_volume_that_makes_no_sense_is_answered_with_an_example() {
    let state = with_history();
    check(&report(state.path(), "--since 2026-12-01 --until 2026-11-01"), 2, "--since 2026-11-01 --until 2026-11-08");
    check(&report(state.path(), "--volume /nowhere"), 2, "it has /mnt/\\x1b[2J<b>");
    let output = report(state.path(), "--since yesterday");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("write for example 7d"));
}

#[test]
fn a_damaged_history_is_named_and_left_for_the_service() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("ledger.db");
    fs::write(&path, vec![0x5a; 9000]).unwrap();
    check(&report(state.path(), ""), 1, "the history is damaged");
    assert_eq!(fs::read(&path).unwrap(), vec![0x5a; 9000]);
}
