//! Story: leases were used with lengths read long before, paths that users had chosen were opened by root, a frozen volume held
//! the service up, and any user could keep root from optimizing. The long form, which foreign judges join, is
//! `make torture-hostile`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{FileSystemKind, HostileSettings, Medium, hostile};
use std::time::Duration;

#[test]
fn loop_hostile_users_and_stuck_volumes_cost_no_byte_no_hang_and_no_privilege() {
    check(FileSystemKind::Ext4, Medium::Rotating, 1);
}

#[test]
fn loop_hostile_users_and_stuck_volumes_cost_no_byte_no_hang_and_no_privilege_on_xfs() {
    check(FileSystemKind::Xfs, Medium::SolidState, 2);
}

#[test]
fn loop_hostile_users_and_stuck_volumes_cost_no_byte_no_hang_and_no_privilege_on_btrfs() {
    check(FileSystemKind::Btrfs, Medium::SolidState, 3);
}

/// Each act once, on which medium is not chosen by the run: all of it fits into what a test may take.
fn check(kind: FileSystemKind, medium: Medium, seed: u64) {
    let settings = HostileSettings {
        kind,
        medium,
        seed,
        time: Duration::ZERO,
        judges: Vec::new(),
        without: ["Stall", "FreezeAndStop"].map(str::to_owned).into(),
    };
    let report = hostile(&settings).unwrap();
    eprintln!("{report:#?}");
    assert!(report.acts.len() > 8 && report.by_user.len() > 5, "{report:?}");
}
