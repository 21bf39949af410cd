//! Story: files with runways, and a volume that fills up. Who fills it gets what he would have got without prevention.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{FileSystemKind, Pressure, PressureReport, pressure};

/// What is allowed to be missing.
const MIB: u64 = 1 << 20;

const TRIES: usize = 3;

fn is_full(report: &PressureReport) -> bool {
    report.shortfall() <= MIB
}

#[test]
fn loop_who_fills_a_volume_gets_what_he_would_have_got_without_prevention() {
    for kind in FileSystemKind::ALL {
        for what in [Pressure::OneWrites, Pressure::OnePreallocates, Pressure::AllWrite] {
            // Who takes all at once, just when files were closed, can be faster than they are settled on a machine that is
            // busy with other things: then the first refusal comes early, and what he tries next succeeds.
            let mut reports = Vec::new();
            while reports.len() < TRIES && !reports.iter().any(is_full) {
                reports.push(pressure(kind, 1536, what).unwrap());
            }
            assert!(reports.iter().any(is_full), "bytes were withheld: {reports:?}");
        }
    }
}

#[test]
fn loop_an_idle_open_file_keeps_no_more_from_others_than_is_documented() {
    for kind in FileSystemKind::ALL {
        let report = pressure(kind, 1536, Pressure::OneIsIdle).unwrap();
        eprintln!("{report:?}: {}", report.shortfall());
        assert!(report.shortfall() <= report.bound + MIB, "{} bytes were withheld: {report:?}", report.shortfall());
    }
}
