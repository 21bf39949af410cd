//! Operation 1, 2, 3, … fails until a pass ends unhit: whatever fails, everything is given back and nothing is lost.

use super::support::{Impatient, for_seeds, fragments, run, small_settings, small_volume, tidy, untidy};
use crate::placed::optimize_with;
use crate::settings::Rule;
use crate::sim::{Failure, Faults};
use crate::{Settings, Stop};
use crate::{SkipReason, VolumeError};
use std::cell::Cell;

const FAILURES: [Failure; 5] = [
    Failure::Io,
    Failure::Skip(SkipReason::Busy),
    Failure::Skip(SkipReason::NotExchangeable),
    Failure::Skip(SkipReason::Vanished),
    Failure::Skip(SkipReason::Unreadable),
];

#[test]
fn whatever_fails_everything_is_given_back() {
    for_seeds("whatever_fails", 10, |seed| {
        for failure in FAILURES {
            for fail_at in 1.. {
                let faults = Faults { fail_at: Some((fail_at, failure)), ..Faults::default() };
                let mut sim = small_volume(seed).with_faults(faults);
                let plan = if seed % 2 == 0 { tidy(seed) } else { untidy(seed) };
                let outcome = run(&mut sim, &small_settings(seed), &plan);
                sim.check().unwrap();
                assert!(sim.held().is_empty(), "failing operation {fail_at} with {failure:?} leaves space held");
                assert_eq!(sim.commits_after_failure(), 0, "operation {fail_at} failed with {failure:?}");
                if let Err(error) = outcome {
                    assert!(sim.fault_happened() && matches!(failure, Failure::Io), "{error}");
                }
                if !sim.fault_happened() {
                    assert!(fail_at > 1, "the pass did nothing");
                    break;
                }
            }
        }
    });
}

#[test]
fn a_failed_barrier_ends_the_pass_and_a_crash_then_harms_nobody() {
    let failed = Cell::new(0);
    for_seeds("a_failed_barrier_ends_the_pass", 10, |seed| {
        for fail_at in 1.. {
            let faults = Faults { fail_at: Some((fail_at, Failure::Io)), ..Faults::default() };
            let mut sim = small_volume(seed).with_faults(faults);
            let outcome = run(&mut sim, &small_settings(seed), &tidy(seed));
            if !sim.fault_happened() {
                break;
            }
            if matches!(outcome.map_err(|e| e.cause), Err(VolumeError::Barrier { .. })) {
                failed.set(failed.get() + 1);
                sim.after_crash().check().unwrap();
            }
        }
    });
    assert!(failed.get() > 0, "no barrier failed");
}

#[test]
fn a_pass_that_is_cancelled_anywhere_leaves_no_more_fragments_than_it_found() {
    for_seeds("a_pass_that_is_cancelled", 60, |seed| {
        let found = fragments(&small_volume(seed).layout());
        for cancel_at in 2.. {
            let mut sim = small_volume(seed);
            let mut observer = Impatient { cancel_at: Some(cancel_at), ..Impatient::default() };
            let settings = Settings { rounds: 1, ..small_settings(seed) };
            let report = optimize_with(&mut sim, &settings, &mut observer, &tidy(seed)).unwrap();
            sim.check().unwrap();
            assert!(sim.held().is_empty());
            let left = fragments(&sim.layout());
            assert!(left <= found, "cancelled at question {cancel_at}: {found} fragments became {left}");
            if !report.interrupted {
                return;
            }
            assert_eq!(report.stop, Some(Stop::Cancelled));
        }
    });
}

#[test]
fn without_settling_a_cancelled_pass_can_leave_more_fragments() {
    let worse = (0..60).any(|seed| {
        let found = fragments(&small_volume(seed).layout());
        (2..200).any(|cancel_at| {
            let mut sim = small_volume(seed);
            let mut observer = Impatient { cancel_at: Some(cancel_at), ..Impatient::default() };
            let settings = Settings { rounds: 1, broken: Some(Rule::Settle), ..small_settings(seed) };
            optimize_with(&mut sim, &settings, &mut observer, &tidy(seed)).unwrap();
            fragments(&sim.layout()) > found
        })
    });
    assert!(worse, "nothing shows what settling is for");
}

#[test]
fn without_the_way_out_space_stays_held() {
    let settings = |seed| Settings { broken: Some(Rule::GiveBack), ..small_settings(seed) };
    let held = (0..20).any(|seed| {
        let mut sim = small_volume(seed);
        let _ = run(&mut sim, &settings(seed), &tidy(seed));
        !sim.held().is_empty()
    });
    assert!(held, "nothing shows what giving back is for");
}
