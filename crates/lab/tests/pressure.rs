//! Story: files with runways, and a volume that fills up. Who fills it gets what he would have got without prevention.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{FileSystemKind, Pressure, pressure};

/// What is allowed to be missing.
const MIB: u64 = 1 << 20;

/// One that keeps its file open and idle keeps back what its runway has; all others keep back nothing.
fn check(kind: FileSystemKind, what: Pressure) {
    let report = pressure(kind, 1536, what).unwrap();
    eprintln!("{report:?}: {} missing, {} at the first refusal", report.shortfall(), report.early());
    let permitted = if what == Pressure::OneIsIdle { report.bound } else { 0 };
    assert!(report.shortfall() <= permitted + MIB, "{} bytes were withheld: {report:?}", report.shortfall());
}

#[test]
fn loop_who_fills_a_volume_gets_what_he_would_have_got_without_prevention() {
    [FileSystemKind::Ext4, FileSystemKind::Btrfs].into_iter().for_each(|kind| check(kind, Pressure::OneWrites));
}

#[test]
fn loop_an_idle_open_file_keeps_no_more_from_others_than_is_documented() {
    check(FileSystemKind::Xfs, Pressure::OneIsIdle);
}

#[test]
fn campaign_who_fills_a_volume_gets_what_he_would_have_got_without_prevention() {
    for kind in FileSystemKind::ALL {
        Pressure::ALL.into_iter().for_each(|what| check(kind, what));
    }
}
