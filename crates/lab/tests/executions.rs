//! A program can be executed as soon as it has been written, whatever the service does with its runway.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[path = "common/measure.rs"]
mod measure;

use longrun_bench::Profile;
use longrun_bench::protocol::Side;
use longrun_lab::FileSystemKind;
use measure::{measure, work};
use std::time::Duration;

/// Each of 4 writers makes this many programs for each of two habits, and executes each at once and once more when its runway is given back.
fn check(kind: FileSystemKind, programs: u64, tolerated: u64) {
    for comparison in measure(kind, &[Profile::Install, Profile::Compile], work(4, programs, Duration::ZERO)) {
        for iteration in &comparison.iterations {
            let (done, name) = (iteration.done, kind.name());
            let who = format!("{} on {name}, service {:?}: {done:?}", comparison.profile, iteration.side);
            assert_eq!(done.executions, programs * 8, "{who}");
            // What is installed fragments until the moment in which it is made executable: one that meets the very
            // preallocation (a fraction of a millisecond) is refused. Opened carelessly, dozens of them are.
            let with = iteration.side == Side::On && comparison.profile == Profile::Install;
            assert!(done.failed_executions <= if with { tolerated } else { 0 }, "{who}");
            assert_eq!(done.refused_opens, 0, "{who}");
        }
    }
}

#[test]
fn loop_programs_can_be_executed_at_once_after_they_have_been_written() {
    check(FileSystemKind::Xfs, 8, 2);
}

#[test]
fn campaign_programs_can_be_executed_at_once_after_they_have_been_written() {
    FileSystemKind::ALL.into_iter().for_each(|kind| check(kind, 25, 2));
}
