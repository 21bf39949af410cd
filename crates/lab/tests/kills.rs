//! Story: Longrun, or the program of QEMU that shows it an image, is killed in the middle of work on a virtual disk. The long form
//! is `longrun-lab kills --runs 30`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{KillSettings, kills};

#[test]
fn loop_killing_longrun_or_qemu_at_any_moment_costs_no_byte_of_a_virtual_disk() {
    let mut survived = 0;
    // Seeds with each format and each kind of work.
    kills(&KillSettings { seed: 1, runs: 6, mebibytes: 32 }, &mut |kill| {
        survived += 1;
        eprintln!("{kill:?}");
    })
    .unwrap();
    assert_eq!(survived, 6);
}
