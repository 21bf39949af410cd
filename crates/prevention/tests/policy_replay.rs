//! The policy, replayed: on a model of files that grow beside each other, and on recorded traces of signals.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::expect_used)]

mod simulator;

use longrun_layout::Bytes;
use longrun_prevention::policy::{Decision, Policy, Settings, SpaceFacts};
use longrun_sys::FileSystem;
use simulator::{Condition, Load, Outcome, Scenario};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What is prevented, in percent; and in any case there are not more extents than without.
fn prevented(scenario: &Scenario) -> f64 {
    let (without, with) = (scenario.without().run(), scenario.run());
    assert!(with.fragments <= without.fragments, "{} extents became {}", without.fragments, with.fragments);
    with.prevented(&without)
}

fn check(scenario: &Scenario, least: f64) {
    for seed in 1..4 {
        let scenario = Scenario { seed, ..scenario.clone() };
        let share = prevented(&scenario);
        assert!(share >= least, "{share:.2} % prevented, {least} % expected: {scenario:?}");
    }
}

const BOTH: [FileSystem; 2] = [FileSystem::Xfs, FileSystem::Btrfs];

#[test]
fn on_healthy_free_space_nearly_all_excess_of_direct_writers_is_prevented() {
    for filesystem in BOTH {
        check(&Scenario::new(filesystem, Condition::Healthy, ms(1)), 99.0);
        check(&Scenario::new(filesystem, Condition::Healthy, ms(5)), 98.5);
        // A hopeless delay costs what is written meanwhile, and no more.
        check(&Scenario::new(filesystem, Condition::Healthy, ms(50)), 85.0);
    }
}

#[test]
fn on_fragmented_free_space_most_excess_is_prevented() {
    for (filesystem, least) in [(FileSystem::Xfs, 90.0), (FileSystem::Btrfs, 85.0)] {
        for condition in [Condition::Holes, Condition::Runs] {
            for latency in [ms(1), ms(5), ms(50)] {
                check(&Scenario::new(filesystem, condition, latency), if latency > ms(5) { 80.0 } else { least });
            }
        }
    }
}

#[test]
fn where_the_free_space_is_nothing_but_dust_there_are_never_more_extents() {
    for filesystem in BOTH {
        let dust = Scenario::new(filesystem, Condition::Dust, ms(1));
        let dust = Scenario { total: Bytes(2 << 30), size: Bytes(32 * MIB), ..dust };
        for request in [16 << 10, 64 << 10] {
            prevented(&Scenario { request: Bytes(request), ..dust.clone() });
        }
        // What is written in pieces as long as the longest free ones is left alone, once one runway has shown it.
        for request in [256 << 10, MIB] {
            let dust = Scenario { request: Bytes(request), ..dust.clone() };
            let (without, with) = (dust.without().run(), dust.run());
            assert!(with.fragments <= without.fragments * 102 / 100, "{} → {}", without.fragments, with.fragments);
        }
    }
}

#[test]
fn sparse_files_written_all_over_come_out_whole() {
    for filesystem in BOTH {
        for condition in [Condition::Healthy, Condition::Holes] {
            let sparse = Scenario { load: Load::Scattered, ..Scenario::new(filesystem, condition, ms(1)) };
            check(&sparse, 97.0);
        }
    }
}

#[test]
fn on_ext4_sparse_files_are_left_to_the_kernel() {
    let sparse = Scenario::new(FileSystem::Ext4, Condition::Healthy, ms(1));
    let outcome = Scenario { load: Load::Scattered, ..sparse }.run();
    assert!(!outcome.decisions.is_empty() && outcome.grants == 0);
}

#[test]
fn the_second_file_of_a_kind_is_right_from_its_first_runway() {
    let first = Scenario::new(FileSystem::Xfs, Condition::Healthy, ms(1));
    let second = Scenario { rounds: 2, ..first.clone() };
    let (first, second) = (first.run(), second.run());
    assert!(second.fragments < first.fragments && second.grants < first.grants);
    let Some(Decision::Runway { range, .. }) = second.decisions.first() else { panic!("{:?}", second.decisions) };
    assert!(range.start.0 + range.length.0 >= 64 * MIB, "{range:?}");
    // With the history off nothing is learned.
    let settings = Settings { history: false, ..Settings::default() };
    let forgetful = Scenario::new(FileSystem::Xfs, Condition::Healthy, ms(1));
    let forgetful = Scenario { rounds: 2, settings: Some(settings), ..forgetful }.run();
    let Some(Decision::Runway { range, .. }) = forgetful.decisions.first() else { panic!() };
    assert!(range.length <= Bytes(16 * MIB));
}

#[test]
fn a_single_writer_is_hardly_noticed() {
    for filesystem in BOTH {
        let alone = Scenario { writers: 1, ..Scenario::new(filesystem, Condition::Healthy, ms(5)) };
        let (without, with) = (alone.without().run(), alone.run());
        assert!(with.fragments <= without.fragments && with.grants == 0, "{with:?}");
    }
}

#[test]
fn more_writers_than_runways_at_once_are_served_one_after_the_other() {
    for writers in [32, 128] {
        let size = Bytes(512 * MIB / writers as u64);
        let many = Scenario { writers, size, ..Scenario::new(FileSystem::Xfs, Condition::Healthy, ms(2)) };
        check(&many, 70.0);
    }
}

#[test]
fn of_hundreds_that_fragment_at_once_each_gets_something() {
    let (policy, first) = (Policy::new(Settings::default()).unwrap(), Settings::default().first_runway);
    let mut space = SpaceFacts { total: Bytes(8192 * MIB), free: Bytes(7000 * MIB), held: Bytes(0) };
    let mut served = 0;
    loop {
        let runway = policy.room(space).min(first);
        if runway < Bytes(MIB) {
            break;
        }
        served += 1;
        space.held.0 += runway.0;
        space.free.0 -= runway.0;
    }
    assert!(served >= 130, "{served} files get a runway of 1 MiB at least");
}

#[test]
fn runways_never_hold_more_than_their_share() {
    for gib in [1, 2, 8] {
        let total = Bytes(gib << 30);
        let scenario = Scenario { total, ..Scenario::new(FileSystem::Xfs, Condition::Healthy, ms(1)) };
        let held = scenario.run().held;
        assert!(held.0 > 0 && held.0 <= total.0 / 4, "{held:?} of {total:?}");
    }
}

#[test]
fn what_is_claimed_is_about_what_is_true() {
    for filesystem in BOTH {
        let scenario = Scenario::new(filesystem, Condition::Healthy, ms(1));
        let (without, with) = (scenario.without().run(), scenario.run());
        let truth = without.excess().saturating_sub(with.excess());
        let off = with.claimed.abs_diff(truth) as f64 / truth as f64;
        assert!(off < 0.2, "claimed {} where {truth} were prevented", with.claimed);
    }
}

#[test]
fn the_same_signals_get_the_same_decisions() {
    let run =
        || -> Outcome { Scenario { rounds: 2, ..Scenario::new(FileSystem::Btrfs, Condition::Runs, ms(5)) }.run() };
    assert_eq!(run(), run());
}
