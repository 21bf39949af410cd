//! Batches written by hand: one situation each, with the rule that handles it and, where there is one, without it.

use super::meddler::{Meddled, Moment};
use super::support::{FixedPlan, Impatient, fragments};
use crate::placed::{PlanSource, optimize_with};
use crate::settings::Rule;
use crate::sim::{Faults, SimVolume};
use crate::{Observer, Permission, Report, ScanProgress, Settings, Skipped, Stop, Turn};
use crate::{Placed, Progress, SkipReason};
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, FileId, FileIndex, FileMove, InodeNumber, LayoutBuilder, LogicalBlock,
    NO_DIRECTORY, PhysicalBlock, Run, VolumeLayout,
};
use longrun_planner::{Batch, PlannedMove, Policy, Step, Why};
use std::cell::{Cell, RefCell};
use std::time::Duration;

fn id(number: u32) -> FileId {
    FileId { inode: InodeNumber(100 + u64::from(number)), generation: 1 }
}

/// A volume of 200 blocks where only the files' blocks and block 0 are taken.
pub(super) fn volume(files: &[&[Run]]) -> SimVolume {
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(200));
    let mut free: longrun_layout::ExtentSet = [Extent::new(1, 199)].into_iter().collect();
    for (number, runs) in files.iter().enumerate() {
        builder.push_file(id(number as u32), NO_DIRECTORY, false, None, &mut runs.to_vec());
        runs.iter().for_each(|run| {
            free.remove(run.extent());
        });
    }
    free.iter().for_each(|extent| builder.push_free(extent));
    SimVolume::new(builder.build().unwrap(), 1)
}

/// File, logical block, source, target, length.
pub(super) fn batch(moves: &[(u32, u64, u64, u64, u64)]) -> Batch {
    let step = |&(file, logical, source, target, length): &(u32, u64, u64, u64, u64)| {
        let step = FileMove {
            file: FileIndex(file),
            logical: LogicalBlock(logical),
            source: PhysicalBlock(source),
            target: PhysicalBlock(target),
            length: Blocks(length),
        };
        Step::Move(PlannedMove { step, why: Why::Defragment })
    };
    Batch { steps: moves.iter().map(step).collect(), saves: 0 }
}

pub(super) fn plan(moves: &[(u32, u64, u64, u64, u64)]) -> FixedPlan {
    FixedPlan(vec![batch(moves)])
}

/// One round, chunks of four blocks, two blocks of reserve.
pub(super) fn settings() -> Settings {
    let blocks = |n: u64| Bytes(n * 4096);
    Settings { rounds: 1, chunk: blocks(4), reserve: Some(blocks(2)), ..Settings::default() }
}

pub(super) fn run(volume: &mut dyn Placed, settings: &Settings, plan: &FixedPlan) -> Report {
    optimize_with(volume, settings, &mut Impatient::default(), plan).unwrap()
}

pub(super) fn place(sim: &SimVolume, number: u32) -> Vec<Run> {
    let layout = sim.layout();
    layout.files().find(|f| f.id() == id(number)).unwrap().runs().collect()
}

pub(super) fn skipped(reason: SkipReason, files: u64) -> Skipped {
    Skipped { reason, files }
}

#[test]
fn a_fragmented_file_becomes_whole() {
    let mut sim = volume(&[&[Run::new(0, 10, 10), Run::new(10, 40, 10)]]);
    let report = run(&mut sim, &settings(), &plan(&[(0, 0, 10, 100, 10), (0, 10, 40, 110, 10)]));
    assert_eq!(place(&sim, 0), [Run::new(0, 100, 20)]);
    assert_eq!((report.moves, report.bytes_moved.0 / 4096, report.skipped), (2, 20, vec![]));
    assert_eq!((report.before.excess_fragments, report.after.excess_fragments), (1, 0));
    sim.check().unwrap();
}

#[test]
fn a_file_in_many_pieces_is_moved_by_few_exchanges() {
    let runs: Vec<Run> = (0..16).map(|n| Run::new(n, 10 + 2 * n, 1)).collect();
    let moves: Vec<_> = (0..16).map(|n| (0, n, 10 + 2 * n, 100 + n, 1)).collect();
    let exchanges = Cell::new(0);
    let mut meddled = Meddled::new(volume(&[&runs]), |moment, _| {
        exchanges.set(exchanges.get() + u32::from(matches!(moment, Moment::AfterExchange(_))));
        None
    });
    let report = run(&mut meddled, &settings(), &plan(&moves));
    assert_eq!(place(&meddled.sim, 0), [Run::new(0, 100, 16)]);
    assert_eq!((report.moves, exchanges.get()), (16, 4), "four chunks of four blocks");
    meddled.sim.check().unwrap();
}

#[test]
fn a_vacated_place_is_filled_only_behind_a_barrier_that_the_plan_did_not_ask_for() {
    let files: [&[Run]; 2] = [&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]];
    let moves = plan(&[(0, 0, 10, 100, 4), (1, 0, 40, 10, 4)]);
    let mut sim = volume(&files);
    run(&mut sim, &settings(), &moves);
    assert_eq!((place(&sim, 0), place(&sim, 1)), (vec![Run::new(0, 100, 4)], vec![Run::new(0, 10, 4)]));
    let harmed = |broken| {
        (1..80).any(|crash_at| {
            let faults = Faults { crash_at: Some(crash_at), ..Faults::default() };
            let mut sim = volume(&files).with_faults(faults);
            let settings = Settings { broken, ..settings() };
            let _ = optimize_with(&mut sim, &settings, &mut Impatient::default(), &moves);
            sim.after_crash().check().is_err()
        })
    };
    assert!(!harmed(None));
    assert!(harmed(Some(Rule::Barrier)));
}

/// The user of file 0 replaces it between its map and its exchange, by content at a place that was taken from us a
/// moment ago and that file 1 is to have: the exchange vacates that place, and not the planned one.
fn replaced_at_the_worst_moment(broken: Option<Rule>) -> bool {
    let files: [&[Run]; 2] = [&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]];
    let wanted = Extent::new(60, 4);
    (1..80).any(|crash_at| {
        let sim = volume(&files).with_faults(Faults { crash_at: Some(crash_at), ..Faults::default() });
        let mut meddled = Meddled::new(sim, |moment, sim| {
            if moment == Moment::BeforeExchange(1) {
                sim.user().reclaim(wanted);
                sim.user().sync();
                sim.user().rewrite(id(0), wanted);
                sim.user().sync();
            }
            None
        });
        let settings = Settings { broken, ..settings() };
        let moves = plan(&[(0, 0, 10, 100, 4), (1, 0, 40, 60, 4)]);
        let _ = optimize_with(&mut meddled, &settings, &mut Impatient::default(), &moves);
        meddled.sim.after_crash().check().is_err()
    })
}

#[test]
fn what_an_exchange_vacated_is_pending_whatever_the_plan_believed() {
    assert!(!replaced_at_the_worst_moment(None));
    assert!(replaced_at_the_worst_moment(Some(Rule::AskVacated)), "nothing shows what asking is for");
}

#[test]
fn a_file_that_was_rewritten_since_the_scan_is_left_alone() {
    let rewritten = |broken| {
        let sim = volume(&[&[Run::new(0, 10, 4), Run::new(4, 20, 4)]]);
        let mut meddled = Meddled::new(sim, |moment, sim| {
            if moment == Moment::Scanned(1) {
                sim.user().rewrite(id(0), Extent::new(140, 8));
            }
            None
        });
        let settings = Settings { broken, ..settings() };
        let report = run(&mut meddled, &settings, &plan(&[(0, 4, 20, 14, 4)]));
        meddled.sim.check().unwrap();
        (report.skipped, fragments(&meddled.sim.layout()))
    };
    assert_eq!(rewritten(None), (vec![skipped(SkipReason::Changed, 1)], 1));
    assert_eq!(rewritten(Some(Rule::MapFirst)).1, 2, "the stale plan tears a whole file apart");
}

#[test]
fn a_file_that_changes_while_it_is_moved_is_not_counted_as_done() {
    let reported = |broken| {
        let sim = volume(&[&[Run::new(0, 10, 4), Run::new(4, 20, 4)]]);
        let mut meddled = Meddled::new(sim, |moment, sim| {
            if moment == Moment::AfterExchange(2) {
                sim.user().rewrite(id(0), Extent::new(140, 8));
            }
            None
        });
        let settings = Settings { broken, ..settings() };
        run(&mut meddled, &settings, &plan(&[(0, 0, 10, 100, 4), (0, 4, 20, 104, 4)])).skipped
    };
    assert_eq!(reported(None), [skipped(SkipReason::Changed, 1)]);
    assert_eq!(reported(Some(Rule::Verify)), []);
}

#[test]
fn a_deleted_file_and_a_taken_place_are_skipped_with_their_reasons() {
    let sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)], &[Run::new(0, 60, 4)]]);
    let mut meddled = Meddled::new(sim, |moment, sim| {
        if moment == Moment::BeforeCapture(1) {
            sim.user().delete(id(0));
            sim.user().take(Extent::new(112, 1));
        }
        None
    });
    let moves = [(0, 0, 10, 100, 4), (1, 0, 40, 110, 4), (2, 0, 60, 120, 4)];
    let report = run(&mut meddled, &settings(), &plan(&moves));
    assert_eq!(report.skipped, [skipped(SkipReason::Vanished, 1), skipped(SkipReason::TargetTaken, 1)]);
    assert_eq!(place(&meddled.sim, 2), [Run::new(0, 120, 4)]);
    meddled.sim.check().unwrap();
}

#[test]
fn captures_that_bring_nothing_end_a_round_and_the_report_says_so() {
    let runs: Vec<[Run; 1]> = (0..40).map(|n| [Run::new(0, 10 + 2 * n, 1)]).collect();
    let files: Vec<&[Run]> = runs.iter().map(<[Run; 1]>::as_slice).collect();
    let moves: Vec<_> = (0..40).map(|n| (n, 0, 10 + 2 * u64::from(n), 120 + u64::from(n), 1)).collect();
    let captures = Cell::new(0);
    let mut meddled = Meddled::new(volume(&files), |moment, sim| {
        if let Moment::BeforeCapture(number) = moment {
            captures.set(number);
            if number == 1 {
                sim.user().take(Extent::new(120, 40));
            }
        }
        None
    });
    // Space for one file is captured at a time.
    let settings = Settings { window: Bytes(4096), ..settings() };
    let report = run(&mut meddled, &settings, &plan(&moves));
    assert_eq!((report.moves, report.given_up), (0, 1));
    assert!(captures.get() <= 8, "{} captures for nothing", captures.get());
    meddled.sim.check().unwrap();
}

#[test]
fn a_file_in_use_gets_a_second_chance_and_those_that_wait_for_its_place_with_it() {
    let files: [&[Run]; 3] = [&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)], &[Run::new(0, 60, 4)]];
    let moves = [(0, 0, 10, 100, 4), (1, 0, 40, 10, 4), (2, 0, 60, 40, 4)];
    let run_with_busy = |times: u32| {
        let seen = RefCell::new(0);
        let mut meddled = Meddled::new(volume(&files), |moment, _| {
            let first = matches!(moment, Moment::BeforeExchange(_)) && *seen.borrow() < times;
            first.then(|| {
                *seen.borrow_mut() += 1;
                SkipReason::Busy
            })
        });
        let report = run(&mut meddled, &settings(), &plan(&moves));
        meddled.sim.check().unwrap();
        (report.skipped, (0..3).map(|n| place(&meddled.sim, n)[0].physical.0).collect::<Vec<_>>())
    };
    assert_eq!(run_with_busy(1), (vec![], vec![100, 10, 40]));
    let (left, places) = run_with_busy(2);
    assert_eq!(left, [skipped(SkipReason::Busy, 1), skipped(SkipReason::Blocked, 2)]);
    assert_eq!(places, [10, 40, 60]);
}

#[test]
fn a_file_that_cannot_be_moved_to_its_end_is_brought_back() {
    let broken_off = |broken| {
        let mut meddled = Meddled::new(volume(&[&[Run::new(0, 10, 12)]]), |moment, _| {
            (moment == Moment::BeforeExchange(2)).then_some(SkipReason::NotExchangeable)
        });
        let settings = Settings { broken, ..settings() };
        let report = run(&mut meddled, &settings, &plan(&[(0, 0, 10, 100, 12)]));
        meddled.sim.check().unwrap();
        assert_eq!(report.skipped, [skipped(SkipReason::NotExchangeable, 1)]);
        place(&meddled.sim, 0)
    };
    assert_eq!(broken_off(None), [Run::new(0, 10, 12)]);
    assert_eq!(broken_off(Some(Rule::Settle)), [Run::new(0, 100, 4), Run::new(4, 14, 8)]);
}

/// A plan for the first round only, which notes what may be moved in each.
struct Noting {
    first: FixedPlan,
    movable: RefCell<Vec<Vec<bool>>>,
}

impl PlanSource for Noting {
    fn plan<'l>(&self, layout: &'l VolumeLayout, policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let mut movable = self.movable.borrow_mut();
        movable.push(layout.files().map(|file| file.is_movable()).collect());
        if movable.len() > 1 { Box::new(std::iter::empty()) } else { self.first.plan(layout, policy) }
    }
}

#[test]
fn no_later_round_counts_on_the_place_of_a_file_that_cannot_be_moved() {
    let torn: [&[Run]; 2] = [&[Run::new(0, 10, 4), Run::new(4, 40, 4)], &[Run::new(0, 60, 4), Run::new(4, 80, 4)]];
    let mut meddled = Meddled::new(volume(&torn), |moment, _| {
        (moment == Moment::BeforeExchange(1)).then_some(SkipReason::NotExchangeable)
    });
    let first = plan(&[(0, 0, 10, 100, 4), (0, 4, 40, 104, 4), (1, 0, 60, 120, 4), (1, 4, 80, 124, 4)]);
    let noting = Noting { first, movable: RefCell::default() };
    let report = optimize_with(&mut meddled, &Settings { rounds: 3, ..settings() }, &mut Impatient::default(), &noting);
    assert_eq!(report.unwrap().skipped, [skipped(SkipReason::NotExchangeable, 1)]);
    assert!(noting.movable.borrow().iter().eq([&[true, true], &[false, true]]), "{:?}", noting.movable);
}

/// A whole file is split for a while, after another one was to be joined but had been rewritten.
fn split_without_a_saving(broken: Option<Rule>) -> u64 {
    let mut sim = volume(&[&[Run::new(0, 10, 4), Run::new(4, 40, 4)], &[Run::new(0, 60, 8)]]);
    let moves = [(0, 0, 11, 100, 4), (0, 4, 40, 104, 4), (1, 0, 60, 120, 4)];
    run(&mut sim, &Settings { broken, ..settings() }, &plan(&moves)).after.excess_fragments
}

#[test]
fn no_file_is_split_before_as_many_fragments_have_been_saved() {
    assert_eq!(split_without_a_saving(None), 1);
    assert_eq!(split_without_a_saving(Some(Rule::NeverWorse)), 2, "the rule is what prevents it");
    let mut sim = volume(&[&[Run::new(0, 10, 4), Run::new(4, 40, 4)], &[Run::new(0, 60, 8)]]);
    let report = run(&mut sim, &settings(), &plan(&[(0, 0, 10, 100, 4), (0, 4, 40, 104, 4), (1, 0, 60, 120, 4)]));
    assert_eq!((report.after.excess_fragments, report.skipped), (1, vec![]), "with the saving it may");
}

#[test]
fn a_pass_whose_space_was_taken_goes_on_when_others_have_enough() {
    let sim = volume(&[&[Run::new(0, 10, 12)], &[Run::new(0, 40, 4)]]);
    let mut meddled = Meddled::new(sim, |moment, sim| {
        (moment == Moment::BeforeExchange(2)).then(|| {
            sim.user().reclaim(Extent::new(0, 200));
            SkipReason::SpaceNeeded
        })
    });
    let report = run(&mut meddled, &settings(), &plan(&[(0, 0, 10, 100, 12), (1, 0, 40, 120, 4)]));
    assert_eq!((report.skipped, report.stop), (vec![], None));
    assert_eq!(place(&meddled.sim, 0), [Run::new(0, 100, 12)]);
    assert_eq!(place(&meddled.sim, 1), [Run::new(0, 120, 4)]);
    meddled.sim.check().unwrap();
}

#[test]
fn a_budget_is_not_exceeded() {
    let mut sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]]);
    let settings = Settings { budget: Some(Bytes(6 * 4096)), ..settings() };
    let report = run(&mut sim, &settings, &plan(&[(0, 0, 10, 100, 4), (1, 0, 40, 110, 4)]));
    assert_eq!((report.stop, report.interrupted, report.bytes_moved.0), (Some(Stop::Budget), false, 4 * 4096));
}

#[test]
fn a_pass_without_time_moves_nothing() {
    let mut sim = volume(&[&[Run::new(0, 10, 4)]]);
    let settings = Settings { deadline: Some(Duration::ZERO), ..settings() };
    let report = run(&mut sim, &settings, &plan(&[(0, 0, 10, 100, 4)]));
    assert_eq!((report.stop, report.interrupted, report.bytes_moved.0), (Some(Stop::Deadline), true, 0));
    assert!(sim.held().is_empty());
}

/// Lets every other chunk wait.
#[derive(Default)]
struct Governor {
    asked: u32,
    waited: Duration,
}

impl Observer for Governor {
    fn permission(&mut self, _next: Bytes) -> Permission {
        self.asked += 1;
        if self.asked % 2 == 1 { Permission::Wait(Duration::from_secs(1)) } else { Permission::Go }
    }

    fn wait(&mut self, time: Duration) {
        self.waited += time;
    }
}

#[test]
fn every_chunk_waits_for_its_permission() {
    let mut sim = volume(&[&[Run::new(0, 10, 12)]]);
    let mut governor = Governor::default();
    optimize_with(&mut sim, &settings(), &mut governor, &plan(&[(0, 0, 10, 100, 12)])).unwrap();
    assert_eq!(governor.waited, Duration::from_secs(3), "three chunks, each of which had to wait once");
}

#[test]
fn a_commit_waits_for_its_permission_too() {
    let mut sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]]);
    let mut governor = Governor::default();
    let moves = plan(&[(0, 0, 10, 100, 4), (1, 0, 40, 10, 4)]);
    optimize_with(&mut sim, &settings(), &mut governor, &moves).unwrap();
    assert_eq!(place(&sim, 1), [Run::new(0, 10, 4)]);
    assert_eq!(governor.waited, Duration::from_secs(3), "two chunks, and the commit before the second");
}

#[test]
fn a_scan_gives_way_too_but_not_for_ever() {
    /// Never permits anything while the volume is read; afterwards everything.
    #[derive(Default)]
    struct Busy {
        asked: u32,
        waited: Duration,
        reading: bool,
    }
    impl Observer for Busy {
        fn permission(&mut self, _next: Bytes) -> Permission {
            self.asked += 1;
            if self.reading { Permission::Wait(Duration::from_millis(100)) } else { Permission::Go }
        }

        fn wait(&mut self, time: Duration) {
            self.waited += time;
        }
    }
    let mut busy = Busy { reading: true, ..Busy::default() };
    let progress = ScanProgress::new(&mut busy, 1);
    progress.give_way();
    assert_eq!(busy.waited, Duration::from_secs(1), "then a little is read all the same");
    busy.reading = false;
    let progress = ScanProgress::new(&mut busy, 1);
    (0..1000).for_each(|_| progress.give_way());
    assert!(busy.asked < 100, "asked {} times: not before each of many small steps", busy.asked);
}

/// Permits everything, so many pieces at a time, and counts.
struct InTurns {
    pieces: usize,
    asked: u32,
}

impl Observer for InTurns {
    fn permission(&mut self, _next: Bytes) -> Permission {
        self.asked += 1;
        Permission::Go
    }

    fn turn(&self) -> Turn {
        Turn { pieces: self.pieces, bytes: Bytes(8 * 4096) }
    }
}

#[test]
fn a_chunk_in_many_pieces_is_read_in_turns_and_each_is_asked_for() {
    let pieces = [70, 10, 50, 30].iter().enumerate().map(|(n, place)| Run::new(n as u64 * 2, *place, 2));
    let moves = [(0, 0, 70, 100, 2), (0, 2, 10, 102, 2), (0, 4, 50, 104, 2), (0, 6, 30, 106, 2)];
    let outcome = |most| {
        let sim = volume(&[&pieces.clone().collect::<Vec<_>>()]);
        let mut meddled = Meddled::new(sim, |_, _| None);
        let mut observer = InTurns { pieces: most, asked: 0 };
        let settings = Settings { chunk: Bytes(100 * 4096), ..settings() };
        optimize_with(&mut meddled, &settings, &mut observer, &plan(&moves)).unwrap();
        assert_eq!(place(&meddled.sim, 0), [Run::new(0, 100, 8)]);
        assert_eq!(meddled.awaited, meddled.read, "all of it is there before the exchange");
        (meddled.read, observer.asked)
    };
    // In the order of the device; asked before the first turn, between turns, and before the exchange.
    assert_eq!(outcome(1), (vec![vec![10], vec![30], vec![50], vec![70]], 5));
    assert_eq!(outcome(6), (vec![vec![10, 30, 50], vec![70]], 3));
    assert_eq!(outcome(usize::MAX), (vec![], 1), "without a limit an exchange reads by itself");
}

/// The more pieces, the shorter the ways between them: reading goes farther ahead than one exchange.
#[test]
fn what_several_exchanges_need_is_read_in_one_sweep_and_each_is_asked_for() {
    let places = [70, 10, 50, 30, 90, 20, 60, 40];
    let pieces: Vec<Run> = places.iter().enumerate().map(|(n, place)| Run::new(n as u64 * 2, *place, 2)).collect();
    let moves: Vec<_> = (0..8).map(|n| (0, n * 2, places[n as usize], 100 + n * 2, 2)).collect();
    let mut meddled = Meddled::new(volume(&[&pieces]), |_, _| None);
    let mut observer = InTurns { pieces: 1, asked: 0 };
    let settings = Settings { chunk: Bytes(100 * 4096), ..settings() };
    optimize_with(&mut meddled, &settings, &mut observer, &plan(&moves)).unwrap();
    assert_eq!(place(&meddled.sim, 0), [Run::new(0, 100, 16)]);
    let mut sweep: Vec<Vec<u64>> = places.iter().map(|place| vec![*place]).collect();
    sweep.sort();
    assert_eq!((&meddled.read, observer.asked), (&sweep, 10), "eight turns, and one for each of two exchanges");
}

#[test]
fn a_chunk_is_no_larger_than_a_turn() {
    let mut sim = volume(&[&[Run::new(0, 10, 16)]]);
    let mut observer = InTurns { pieces: usize::MAX, asked: 0 };
    let settings = Settings { chunk: Bytes(100 * 4096), ..settings() };
    optimize_with(&mut sim, &settings, &mut observer, &plan(&[(0, 0, 10, 100, 16)])).unwrap();
    assert_eq!(observer.asked, 2);
}

#[test]
fn a_plan_that_contradicts_itself_harms_nobody() {
    let mut sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]]);
    let moves = [
        (0, 0, 10, 40, 4),    // onto another file
        (0, 0, 10, 12, 4),    // onto itself
        (0, 0, 10, 198, 4),   // beyond the end
        (7, 0, 10, 100, 4),   // of a file that does not exist
        (1, 100, 40, 100, 4), // beyond the end of the file
        (1, 0, 40, 0, 4),     // onto the boot block
    ];
    run(&mut sim, &settings(), &plan(&moves));
    sim.check().unwrap();
    assert_eq!((place(&sim, 0), place(&sim, 1)), (vec![Run::new(0, 10, 4)], vec![Run::new(0, 40, 4)]));
}
