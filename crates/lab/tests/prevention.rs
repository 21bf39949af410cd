//! Prevention, measured in small: what it must bring, and what it must never cost. Only counts and shares are asserted; times
//! depend on what else the machine does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[path = "common/measure.rs"]
mod measure;

use longrun_bench::Profile;
use longrun_lab::FileSystemKind;
use measure::{SEED, measure, work};
use std::time::Duration;

/// Between two writes of a writer. A loop device takes a whole file in the time in which a busy machine lets the service run
/// once: how much is prevented there says how busy the machine was. With this rest the writers take turns, whoever else
/// runs, and what the service misses are a few turns of hundreds.
const REST: Duration = Duration::from_millis(2);

#[track_caller]
fn check_prevented(kind: FileSystemKind, profile: Profile, at_least: f64) {
    for comparison in measure(kind, &[profile], work(8, 32, REST)) {
        let off = comparison.off.excess_fragments;
        assert!(off > 1000.0, "{profile:?}, seed {SEED}: without it there is too little to prevent: {off}");
        let prevented = comparison.prevented_percent.unwrap();
        assert!(prevented >= at_least, "{profile:?}, seed {SEED}: prevented {prevented:.1} %, not {at_least}");
    }
}

#[test]
fn campaign_direct_writers_on_xfs_keep_at_least_nine_tenths_of_their_excess_from_coming_to_be() {
    check_prevented(FileSystemKind::Xfs, Profile::Direct, 90.0);
}

#[test]
fn campaign_writers_on_btrfs_keep_most_of_their_excess_from_coming_to_be() {
    check_prevented(FileSystemKind::Btrfs, Profile::Direct, 85.0);
    check_prevented(FileSystemKind::Btrfs, Profile::Dsync, 85.0);
}

#[test]
fn campaign_writers_that_need_no_service_are_never_worse_off_with_it() {
    for kind in FileSystemKind::ALL {
        for comparison in
            measure(kind, &[Profile::Buffered, Profile::Single, Profile::Short], work(4, 16, Duration::ZERO))
        {
            let (off, on) = (comparison.off.excess_fragments, comparison.on.excess_fragments);
            // So much two runs without the service differ by, when the machine is busy and btrfs writes back while a file is
            // written; that the service granted nothing is told below.
            assert!(on <= off + 16.0, "{} on {}: {on} against {off}", comparison.profile, kind.name());
            let services = comparison.iterations.iter().filter_map(|iteration| iteration.service.as_ref());
            for service in services.filter(|_| comparison.profile != Profile::Single) {
                let grants = service.totals.pointer("/last/volumes/0/grants").and_then(serde_json::Value::as_u64);
                assert_eq!(grants, Some(0), "{} on {}: {}", comparison.profile, kind.name(), service.totals);
            }
        }
    }
}
