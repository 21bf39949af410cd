//! Story: files with runways, and a volume that fills up. Who fills it gets what he would have got without prevention.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{FileSystemKind, Pressure, pressure};

/// What is allowed to be missing.
const MIB: u64 = 1 << 20;

#[test]
fn loop_who_fills_a_volume_gets_what_he_would_have_got_without_prevention() {
    for kind in FileSystemKind::ALL {
        for what in [Pressure::OneWrites, Pressure::OnePreallocates, Pressure::AllWrite] {
            let report = pressure(kind, 1536, what).unwrap();
            eprintln!("{report:?}: {} missing, {} at the first refusal", report.shortfall(), report.early());
            assert!(report.shortfall() <= MIB, "bytes were withheld: {report:?}");
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
