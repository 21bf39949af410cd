//! The power goes at every point of a pass: no file may ever hold a wrong byte, and no space may be lost.

use super::support::{Impatient, for_seeds, run, small_settings, small_volume, tidy, untidy};
use crate::Settings;
use crate::placed::optimize;
use crate::settings::Rule;
use crate::sim::{Faults, Foreigners, SimVolume, Violation};

/// Crashes at every point; the first violation found after one, if any.
fn crash_everywhere(volume: &SimVolume, seed: u64, settings: &Settings, neat: bool) -> Option<(u64, Violation)> {
    for crash_at in 1.. {
        let mut sim = volume.clone().with_faults(Faults {
            crash_at: Some(crash_at),
            commits: (seed % 5) as u8 * 5,
            short_exchanges: (seed % 3) as u8 * 20,
            ..Faults::default()
        });
        if seed.is_multiple_of(4) {
            sim = sim.with_claims();
        }
        if seed.is_multiple_of(2) {
            sim = sim.with_foreigners(Foreigners { activity: 10, takers: 5, busy: 3, ..Foreigners::default() });
        }
        let plan = if neat { tidy(seed) } else { untidy(seed) };
        let outcome = run(&mut sim, settings, &plan);
        assert!(outcome.is_err() || !sim.fault_happened(), "a pass noticed nothing of a crash");
        if !sim.fault_happened() {
            assert!(crash_at > 1, "the pass did nothing");
            return sim.check().err().map(|violation| (0, violation));
        }
        let after = sim.after_crash();
        if let Err(violation) = after.check() {
            return Some((crash_at, violation));
        }
        assert!(after.held().is_empty());
    }
    None
}

#[test]
fn a_crash_at_any_point_leaves_every_byte_of_every_file_right() {
    for_seeds("a_crash_at_any_point", 40, |seed| {
        let found = crash_everywhere(&small_volume(seed), seed, &small_settings(seed), seed % 3 > 0);
        assert_eq!(found, None, "(point of the crash, what it broke)");
    });
}

#[test]
fn without_the_barrier_rule_a_crash_corrupts_files() {
    let bitten = (0..40).any(|seed| {
        let settings = Settings { broken: Some(Rule::Barrier), ..small_settings(seed) };
        matches!(
            crash_everywhere(&small_volume(seed), seed, &settings, true),
            Some((_, Violation::WrongContent { .. }))
        )
    });
    assert!(bitten, "the simulator does not show what the barrier is for");
}

#[test]
fn a_crash_among_all_kinds_of_trouble_harms_nobody() {
    for_seeds("a_crash_among_all_kinds_of_trouble", 400, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let faults = Faults {
            crash_at: Some(rng.u64(1..300)),
            partial_captures: rng.u8(..30),
            short_exchanges: rng.u8(..30),
            commits: rng.u8(..20),
            ..Faults::default()
        };
        let habits = Foreigners {
            activity: rng.u8(..20),
            takers: rng.u8(..20),
            busy: rng.u8(..10),
            hungry_from: rng.bool().then(|| rng.u64(1..300)),
            guard: rng.bool(),
        };
        let mut sim = small_volume(seed).with_faults(faults).with_foreigners(habits);
        if rng.bool() {
            sim = sim.with_claims();
        }
        let _ = match seed % 3 {
            0 => run(&mut sim, &small_settings(seed), &tidy(seed)),
            1 => run(&mut sim, &small_settings(seed), &untidy(seed)),
            _ => optimize(&mut sim, &small_settings(seed), &mut Impatient::default()),
        };
        sim.after_crash().check().unwrap();
    });
}

#[test]
fn a_pass_after_a_crash_goes_on_where_the_journal_left_off() {
    for_seeds("a_pass_after_a_crash", 20, |seed| {
        let mut sim = small_volume(seed).with_faults(Faults { crash_at: Some(20 + seed * 7), ..Faults::default() });
        let _ = run(&mut sim, &small_settings(seed), &tidy(seed));
        let mut after = sim.after_crash();
        let report = run(&mut after, &small_settings(seed), &tidy(seed + 1)).unwrap();
        assert!(!report.interrupted);
        after.check().unwrap();
        assert!(after.held().is_empty());
    });
}
