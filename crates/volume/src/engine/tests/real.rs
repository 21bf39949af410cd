//! The real planner and the engine together, on aged volumes.

use super::support::{Impatient, for_seeds, small_settings, small_volume};
use crate::VolumeError;
use crate::engine::{Report, Settings, Stop, dry_run, optimize};
use crate::sim::{Faults, Foreigners, SimVolume, recipes};
use longrun_layout::{Blocks, Bytes, VolumeLayout};
use longrun_planner::Mode;

const MODES: [Mode; 3] = [Mode::Full, Mode::Efficient, Mode::Files];

/// 256 MiB.
const AGED: Blocks = Blocks(1 << 16);

fn aged(recipe: fn(u64, Blocks) -> VolumeLayout) -> SimVolume {
    SimVolume::new(recipe(5, AGED), 1)
}

fn pass(sim: &mut SimVolume, settings: &Settings) -> Report {
    let report = optimize(sim, settings, &mut Impatient::default()).unwrap();
    sim.check().unwrap();
    assert!(sim.held().is_empty());
    report
}

#[test]
fn a_full_pass_reaches_zero_excess_and_few_pieces_on_every_kind_of_volume() {
    for recipe in [recipes::server, recipes::office, recipes::media] {
        let report = pass(&mut aged(recipe), &Settings::default());
        assert_eq!(report.skipped, []);
        assert!(report.after.excess_fragments <= 2, "{report:?}");
        assert!(report.after.free_space.pieces <= report.after.free_space.floor_pieces + 4, "{report:?}");
        assert_eq!(report.after.free_space.bytes, report.before.free_space.bytes, "no space is lost");
    }
}

#[test]
fn a_pass_that_nobody_disturbs_does_what_the_dry_run_foretold() {
    for recipe in [recipes::server, recipes::office, recipes::media] {
        for mode in MODES {
            let mut sim = aged(recipe);
            let settings = Settings { mode, rounds: 1, ..Settings::default() };
            let layout = sim.layout();
            let expected = dry_run(&layout, settings.policy(&layout, Bytes(0)), None).unwrap();
            let report = pass(&mut sim, &settings);
            assert_eq!((&report.after, report.moves), (&expected.after, expected.moves), "{mode:?}");
            assert_eq!(report.bytes_moved, expected.bytes, "{mode:?}");
            assert_eq!(expected.by_reason.values().map(|kind| kind.moves).sum::<u64>(), expected.moves);
        }
    }
}

#[test]
fn after_a_pass_there_is_nothing_left_to_do() {
    for mode in MODES {
        let mut sim = aged(recipes::server);
        let settings = Settings { mode, ..Settings::default() };
        pass(&mut sim, &settings);
        let again = pass(&mut sim, &settings);
        assert_eq!((again.moves, again.bytes_moved), (0, Bytes(0)), "{mode:?}");
    }
}

#[test]
fn one_file_alone_becomes_whole_and_no_other_is_touched() {
    let mut sim = aged(recipes::server);
    let layout = sim.layout();
    let largest = layout.free().iter().map(|e| e.length).max().unwrap();
    let worst = layout.most_fragmented(100).into_iter().find(|f| f.size < largest).unwrap();
    let id = layout.file(worst.file).unwrap().id();
    let report = pass(&mut sim, &Settings { only: Some(id), ..Settings::default() });
    assert_eq!(report.after.excess_fragments, report.before.excess_fragments - (worst.fragments - 1));
    let after = sim.layout();
    let moved = layout.files().zip(after.files()).filter(|(a, b)| !a.runs().eq(b.runs())).count();
    assert_eq!(moved, 1);
}

#[test]
fn a_budget_bounds_all_rounds_together() {
    for mode in MODES {
        let budget = Bytes(8 << 20);
        let mut sim = aged(recipes::server);
        let report = pass(&mut sim, &Settings { mode, budget: Some(budget), ..Settings::default() });
        assert!(report.bytes_moved <= budget);
        assert!(report.after.excess_fragments <= report.before.excess_fragments);
    }
}

#[test]
fn a_real_pass_cancelled_anywhere_leaves_no_more_excess_than_it_found() {
    for_seeds("a_real_pass_cancelled_anywhere", 60, |seed| {
        for cancel_at in (2..).step_by(1 + seed as usize % 7) {
            let mut sim = small_volume(seed);
            let mut observer = Impatient { cancel_at: Some(cancel_at), ..Impatient::default() };
            let settings = Settings { mode: MODES[seed as usize % 3], ..small_settings(seed) };
            let report = optimize(&mut sim, &settings, &mut observer).unwrap();
            sim.check().unwrap();
            assert!(sim.held().is_empty());
            let (found, left) = (report.before.excess_fragments, report.after.excess_fragments);
            assert!(left <= found, "cancelled at question {cancel_at}: {found} excess fragments became {left}");
            if !report.interrupted {
                return;
            }
            assert_eq!(report.stop, Some(Stop::Cancelled));
        }
    });
}

#[test]
fn a_real_pass_survives_crashes_anywhere() {
    for_seeds("a_real_pass_survives_crashes", 30, |seed| {
        for crash_at in (1 + seed % 3..).step_by(3) {
            let faults = Faults { crash_at: Some(crash_at), commits: (seed % 4) as u8 * 5, ..Faults::default() };
            let mut sim = small_volume(seed).with_faults(faults);
            let settings = Settings { mode: MODES[seed as usize % 3], ..small_settings(seed) };
            let _ = optimize(&mut sim, &settings, &mut Impatient::default());
            if !sim.fault_happened() {
                break;
            }
            sim.after_crash().check().unwrap();
        }
    });
}

#[test]
fn a_real_pass_copes_with_other_users() {
    for_seeds("a_real_pass_copes", 200, |seed| {
        let habits = Foreigners {
            activity: (seed % 4) as u8 * 4,
            takers: (seed % 3) as u8 * 4,
            busy: (seed % 5) as u8 * 3,
            hungry_from: (seed % 13 == 0).then_some(seed),
            guard: seed % 2 == 0,
        };
        let faults = Faults { partial_captures: 10, short_exchanges: 5, commits: 5, ..Faults::default() };
        let mut sim = small_volume(seed).with_faults(faults).with_foreigners(habits);
        let settings = Settings { mode: MODES[seed as usize % 3], ..small_settings(seed) };
        let outcome = optimize(&mut sim, &settings, &mut Impatient::default());
        sim.check().unwrap();
        assert!(sim.held().is_empty());
        assert!(matches!(outcome.map_err(|e| e.cause), Ok(_) | Err(VolumeError::TooFull { .. })));
    });
}
