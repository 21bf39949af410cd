//! The real planner and the engine together, on aged volumes.

use super::meddler::{Meddled, Moment};
use super::support::{Impatient, for_seeds, small_settings, small_volume};
use crate::observer::computed;
use crate::placed::{PlanSource, Planned, carry_out, optimize, optimize_with, plan};
use crate::sim::{Faults, Foreigners, SimVolume, recipes};
use crate::{NoProgress, Observer, Progress, ScanProgress, Volume, VolumeError};
use crate::{Report, Scope, Settings, Stop};
use longrun_layout::{Blocks, Bytes, ExtentSet, InodeNumber, VolumeLayout};
use longrun_planner::{Batch, Mode, Policy};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

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
            let expected = plan(&mut sim.layout(), &ExtentSet::new(), &settings, &NoProgress).unwrap().expected;
            let report = pass(&mut sim, &settings);
            assert_eq!((&report.after, report.moves), (&expected.after, expected.moves), "{mode:?}");
            assert_eq!(report.bytes_moved, expected.bytes, "{mode:?}");
            assert_eq!(expected.by_reason.values().map(|kind| kind.moves).sum::<u64>(), expected.moves);
        }
    }
}

#[test]
fn a_pass_reads_the_volume_before_its_plan_and_behind_each_round_and_carries_out_what_was_shown() {
    for recipe in [recipes::server, recipes::office, recipes::media] {
        for (mode, rounds) in MODES.into_iter().flat_map(|mode| [(mode, 1), (mode, 64)]) {
            let settings = Settings { mode, rounds, ..Settings::default() };
            let mut scans = 0;
            let mut volume = Meddled::new(aged(recipe), |moment, _| {
                if let Moment::Scanned(number) = moment {
                    scans = number;
                }
                None
            });
            let mut layout = volume.scan(&NoProgress).unwrap();
            let shown = plan(&mut layout, &ExtentSet::new(), &settings, &NoProgress).unwrap();
            let expected = shown.expected.clone();
            let begun = Instant::now();
            let ended = carry_out(&mut volume, layout.into(), shown, begun, &settings, &mut Impatient::default());
            let (report, last) = ended.unwrap();
            drop(volume);
            assert!(scans <= 1 + report.rounds, "{mode:?}: {scans} scans for {report:?}");
            assert_eq!(last.fragmentation(), report.after, "{mode:?}: the last layout is that of the last scan");
            if rounds == 1 {
                assert_eq!((&report.after, report.moves), (&expected.after, expected.moves), "{mode:?}");
            }
        }
    }
}

#[test]
fn blocks_that_cannot_be_had_are_left_out_of_plans_and_not_of_figures() {
    let mut layout = recipes::server(5, AGED);
    let before = layout.clone();
    let largest = layout.free().iter().copied().max_by_key(|piece| piece.length).unwrap();
    let settings = Settings { mode: Mode::Files, ..Settings::default() };
    let shown = plan(&mut layout, &[largest].into_iter().collect(), &settings, &NoProgress).unwrap();
    assert_eq!((layout.free(), layout.obstacles()), (before.free(), before.obstacles()));
    assert_eq!(shown.expected.before, before.fragmentation());
    let mut moves = shown.batches.iter().flat_map(longrun_planner::Batch::moves);
    assert!(moves.all(|planned| planned.step.occupies().intersection(&largest).is_none()));
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
    let report = pass(&mut sim, &Settings { scope: Scope::File(id), ..Settings::default() });
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

/// Also after the first round, whose scan shows all files again.
#[test]
fn files_outside_the_chosen_directory_stay_where_they_are() {
    let mut sim = aged(recipes::server);
    let before = sim.scan(&NoProgress).unwrap();
    let in_pieces = before.files().filter(|file| file.is_movable() && file.fragments() > 1);
    let inodes: BTreeSet<InodeNumber> = in_pieces.step_by(2).map(|file| file.record.inode).collect();
    let scope = Scope::Directory { inodes: Arc::new(inodes.clone()), subvolume: 0 };
    let report = pass(&mut sim, &Settings { mode: Mode::Files, scope, ..Settings::default() });
    assert!(report.rounds > 1 && report.before.excess_fragments > 0, "{report:?}");
    assert!(report.after.excess_fragments < report.before.excess_fragments / 10, "{report:?}");
    let after = sim.scan(&NoProgress).unwrap();
    for (file, then) in before.files().zip(after.files()) {
        assert!(inodes.contains(&file.record.inode) || file.runs().eq(then.runs()), "{:?}", file.id());
    }
}

thread_local! {
    /// Whether the observer of this thread has something computed.
    static COMPUTES: Cell<bool> = const { Cell::new(false) };
}

/// Computes, and says so.
struct Computer;

impl Observer for Computer {
    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        COMPUTES.set(true);
        work();
        COMPUTES.set(false);
    }
}

impl Progress for Computer {
    fn at(&self, _done: u64, _total: u64) {}

    fn cancelled(&self) -> bool {
        false
    }

    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        Observer::compute(self, work);
    }
}

/// The planner, which is used while the observer computes only.
struct Checked;

impl PlanSource for Checked {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        Box::new(Planned { only: None }.plan(layout, policy).inspect(|_| assert!(COMPUTES.get())))
    }
}

#[test]
fn what_takes_long_without_a_system_call_is_computed_as_the_observer_wants_it() {
    let mut sim = aged(recipes::server);
    let report = optimize_with(&mut sim, &Settings::default(), &mut Computer, &Checked).unwrap();
    assert!(report.rounds > 1);
    // As the progress of a dry run has it, too.
    let mut layout = aged(recipes::server).layout();
    let mut observer = Computer;
    for progress in [&Computer as &dyn Progress, &ScanProgress::new(&mut observer, 0)] {
        let computed = computed(|work| progress.compute(work), || COMPUTES.get());
        assert!(computed);
        plan(&mut layout, &ExtentSet::new(), &Settings::default(), progress).unwrap();
    }
}
