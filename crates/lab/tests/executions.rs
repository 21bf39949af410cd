//! A program can be executed as soon as it has been written, whatever the service does with its runway.
//!
//! The only test of its process. A child that another test starts has a copy of every open file of this process until it
//! executes its own program; the kernel then refuses to execute the program that is being written here, and the service would
//! be blamed for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod common;
#[path = "common/measure.rs"]
mod measure;

use longrun_bench::Profile;
use longrun_bench::protocol::Side;
use longrun_lab::FileSystemKind;
use measure::{measure, work};
use std::time::Duration;

#[test]
fn loop_programs_can_be_executed_at_once_after_they_have_been_written_100_times_each() {
    for kind in FileSystemKind::ALL {
        for comparison in measure(kind, &[Profile::Install, Profile::Compile], work(4, 25, Duration::ZERO)) {
            for iteration in &comparison.iterations {
                let (done, name) = (iteration.done, kind.name());
                let who = format!("{} on {name}, service {:?}: {done:?}", comparison.profile, iteration.side);
                assert_eq!(done.executions, 200, "each at once and once more when its runway is given back: {who}");
                // What is installed fragments until the moment in which it is made executable: one that meets the very
                // preallocation (a fraction of a millisecond) is refused. Opened carelessly, dozens of them are.
                let with = iteration.side == Side::On && comparison.profile == Profile::Install;
                let tolerated = if with { 2 } else { 0 };
                assert!(done.failed_executions <= tolerated, "{who}");
                assert_eq!(done.refused_opens, 0, "{who}");
            }
        }
    }
}
