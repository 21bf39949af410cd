//! Prevention, measured in small: what it must bring, and what it must never cost. Only counts and shares are asserted; times
//! depend on what else the machine does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod common;

use longrun_bench::protocol::Comparison;
use longrun_bench::{Parameters, Profile};
use longrun_lab::{FileSystemKind, FreeSpaceKind, PreventionSettings, longrun_binary, prevention};
use longrun_layout::Bytes;
use std::time::Duration;

const SEED: u64 = 11;

/// One comparison of each profile on a new volume.
fn measure(kind: FileSystemKind, profiles: &[Profile], parameters: Parameters) -> Vec<Comparison> {
    common::build();
    let settings = PreventionSettings {
        program: longrun_binary().unwrap(),
        kinds: vec![kind],
        spaces: vec![FreeSpaceKind::Whole],
        profiles: profiles.to_vec(),
        iterations: 1,
        control_iterations: 1,
        parameters,
        mebibytes: 3072,
        reread: false,
        paced: Duration::ZERO,
    };
    let results = prevention(&settings, &mut |what| eprintln!("{what}")).unwrap();
    results.measured.into_iter().map(|measured| measured.comparison).collect()
}

const fn work(writers: u32, mebibytes: u64, pause: Duration) -> Parameters {
    Parameters { writers, bytes: Bytes(mebibytes << 20), seed: SEED, pause }
}

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
fn loop_direct_writers_on_xfs_keep_at_least_nine_tenths_of_their_excess_from_coming_to_be() {
    check_prevented(FileSystemKind::Xfs, Profile::Direct, 90.0);
}

#[test]
fn loop_writers_on_btrfs_keep_most_of_their_excess_from_coming_to_be() {
    check_prevented(FileSystemKind::Btrfs, Profile::Direct, 85.0);
    check_prevented(FileSystemKind::Btrfs, Profile::Dsync, 85.0);
}

#[test]
fn loop_writers_that_need_no_service_are_never_worse_off_with_it() {
    for kind in FileSystemKind::ALL {
        for comparison in
            measure(kind, &[Profile::Buffered, Profile::Single, Profile::Short], work(4, 16, Duration::ZERO))
        {
            let (off, on) = (comparison.off.excess_fragments, comparison.on.excess_fragments);
            // One part more or less of each file is what two runs without the service differ by.
            assert!(on <= off + 4.0, "{} on {}: {on} against {off}", comparison.profile, kind.name());
            let services = comparison.iterations.iter().filter_map(|iteration| iteration.service.as_ref());
            for service in services.filter(|_| comparison.profile != Profile::Single) {
                let grants = service.totals.pointer("/last/volumes/0/grants").and_then(serde_json::Value::as_u64);
                assert_eq!(grants, Some(0), "{} on {}: {}", comparison.profile, kind.name(), service.totals);
            }
        }
    }
}

#[test]
fn loop_programs_can_be_executed_at_once_after_they_have_been_written_100_times_each() {
    for kind in FileSystemKind::ALL {
        for comparison in measure(kind, &[Profile::Install, Profile::Compile], work(4, 25, Duration::ZERO)) {
            let done = comparison.iterations.iter().map(|iteration| iteration.done);
            for done in done {
                assert_eq!(done.executions, 200, "each at once and once more when its runway is given back");
                // What is installed fragments until the moment in which it is made executable: one that meets the very
                // preallocation (a fraction of a millisecond) is refused. Opened carelessly, dozens of them are.
                let tolerated = if comparison.profile == Profile::Install { 2 } else { 0 };
                assert!(done.failed_executions <= tolerated, "{} on {}", done.failed_executions, kind.name());
                assert_eq!(done.refused_opens, 0, "on {}, of {}", kind.name(), done.opens);
            }
        }
    }
}
