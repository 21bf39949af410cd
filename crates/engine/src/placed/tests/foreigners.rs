//! Other users write, delete, take space and keep files busy while a pass runs.

use super::support::{Impatient, for_seeds, run, small_settings, small_volume, tidy, untidy};
use crate::VolumeError;
use crate::placed::optimize_with;
use crate::settings::Rule;
use crate::sim::{Faults, Foreigners};
use crate::{Observer, PassError, Permission, Settings, Stop, Turn};
use longrun_layout::{Blocks, Bytes};
use std::cell::Cell;
use std::time::Duration;

/// Somebody filled the volume before the first move.
fn is_too_full(error: &PassError) -> bool {
    matches!(error.cause, VolumeError::TooFull { .. })
}

#[test]
fn beside_other_users_every_byte_stays_right_and_no_space_is_lost() {
    for_seeds("beside_other_users", 400, |seed| {
        let habits = Foreigners {
            activity: (seed % 7) as u8 * 5,
            takers: (seed % 5) as u8 * 5,
            busy: (seed % 3) as u8 * 5,
            hungry_from: (seed % 11 == 0).then_some(seed % 90),
            guard: seed % 2 == 0,
        };
        let faults = Faults {
            partial_captures: (seed % 4) as u8 * 10,
            short_exchanges: (seed % 6) as u8 * 10,
            commits: (seed % 3) as u8 * 10,
            ..Faults::default()
        };
        let mut sim = small_volume(seed).with_faults(faults).with_foreigners(habits);
        let plan = if seed % 2 == 0 { tidy(seed) } else { untidy(seed) };
        let mut observer = Impatient::default();
        let outcome = optimize_with(&mut sim, &small_settings(seed), &mut observer, &plan);
        sim.check().unwrap();
        assert!(sim.held().is_empty());
        let report = match outcome {
            Ok(report) => report,
            Err(error) if is_too_full(&error) => return,
            Err(error) => panic!("{error}"),
        };
        if report.stop.is_none() && observer.skips == 0 {
            assert!(report.skipped.iter().all(|s| matches!(s.reason, crate::SkipReason::Pinned(_))));
        }
    });
}

#[test]
fn captures_leave_the_reserve_to_others() {
    for_seeds("captures_leave_the_reserve", 60, |seed| {
        let mut sim = small_volume(seed);
        let layout = sim.layout();
        let settings = Settings { reserve: None, ..small_settings(seed) };
        let reserve = settings.policy(&layout, Bytes(0)).reserve;
        run(&mut sim, &settings, &tidy(seed)).unwrap();
        assert!(sim.least_unclaimed() >= reserve, "{} blocks left, reserve {reserve}", sim.least_unclaimed());
    });
}

#[test]
fn without_the_reserve_captures_take_more() {
    let taken = (0..60).any(|seed| {
        let mut sim = small_volume(seed);
        let free = sim.layout().free_blocks();
        // A reserve that leaves little to work with.
        let reserve = Blocks(free.0 * 3 / 4);
        let settings = Settings {
            reserve: Some(Bytes(reserve.0 * 4096)),
            window: Bytes(1 << 30),
            broken: Some(Rule::Reserve),
            ..small_settings(seed)
        };
        let plan = super::support::RandomPlan { seed, tidy: true };
        let _ = run(&mut sim, &settings, &plan);
        sim.least_unclaimed() < reserve
    });
    assert!(taken, "nothing shows what the reserve is for");
}

/// A user wants all space from the given point on. Returns what the user got, and all that the volume had free.
fn hunger(seed: u64, from: u64, broken: Option<Rule>) -> (Blocks, Blocks, Option<Stop>) {
    let habits = Foreigners { hungry_from: Some(from), ..Foreigners::default() };
    let mut sim = small_volume(seed).with_foreigners(habits);
    let free = sim.layout().free_blocks();
    let settings = Settings { rounds: 1, window: Bytes(1 << 30), reserve: None, broken, ..small_settings(seed) };
    let stop = match run(&mut sim, &settings, &tidy(seed)) {
        Ok(report) => report.stop,
        Err(error) if is_too_full(&error) => None,
        Err(error) => panic!("{error}"),
    };
    sim.check().unwrap();
    // What was freed on the way out is there for the next question.
    (0..from + 2).for_each(|_| sim.idle());
    (sim.hoarded(), free, stop)
}

#[test]
fn a_user_who_fills_the_volume_gets_all_the_space_that_was_free() {
    for_seeds("a_user_who_fills_the_volume", 60, |seed| {
        for from in [1, 5, 9, 17, 30, 50] {
            let (got, free, _) = hunger(seed, from, None);
            assert_eq!(got, free, "hungry from point {from}");
        }
    });
}

#[test]
fn a_volume_without_any_space_to_work_with_is_refused() {
    let refused = (0..60).any(|seed| {
        let mut sim = small_volume(seed).with_foreigners(Foreigners { hungry_from: Some(1), ..Foreigners::default() });
        let outcome = run(&mut sim, &small_settings(seed), &tidy(seed));
        outcome.is_err_and(|error| is_too_full(&error))
    });
    assert!(refused);
}

#[test]
fn under_pressure_the_pass_stops_instead_of_holding_on() {
    let stops = |broken| (0..60).filter(|seed| hunger(*seed, 12, broken).2 == Some(Stop::SpaceNeeded)).count();
    assert!(stops(None) > 10, "{} passes stopped", stops(None));
    assert_eq!(stops(Some(Rule::Pressure)), 0, "the rule is what makes them stop");
}

/// Permits two chunks and then none, until it has been asked very often.
#[derive(Default)]
struct Reluctant {
    asked: u64,
}

impl Observer for Reluctant {
    fn permission(&mut self, _next: Bytes) -> Permission {
        self.asked += 1;
        if self.asked <= 2 { Permission::Go } else { Permission::Wait(Duration::from_millis(10)) }
    }

    fn turn(&self) -> Turn {
        Turn { pieces: 1, ..Turn::UNLIMITED }
    }

    fn cancelled(&self) -> bool {
        self.asked > 5000
    }

    fn wait(&mut self, _time: Duration) {}
}

#[test]
fn space_that_others_need_is_given_back_while_permission_is_waited_for() {
    let given_back = Cell::new(0);
    for_seeds("space_while_waiting", 60, |seed| {
        let habits = Foreigners { hungry_from: Some(500), ..Foreigners::default() };
        let mut sim = small_volume(seed).with_foreigners(habits);
        let settings = Settings { rounds: 1, window: Bytes(1 << 30), reserve: None, ..small_settings(seed) };
        let mut observer = Reluctant::default();
        let report = optimize_with(&mut sim, &settings, &mut observer, &tidy(seed)).unwrap();
        given_back.set(given_back.get() + u32::from(report.stop == Some(Stop::SpaceNeeded)));
        sim.check().unwrap();
    });
    assert!(given_back.get() > 30, "{} of 60", given_back.get());
}
