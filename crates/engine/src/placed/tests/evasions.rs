//! Files whose places were taken step out of the way of others.

use super::meddler::{Meddled, Moment};
use super::scenarios::{batch, place, plan, run, settings, skipped, volume};
use super::support::Impatient;
use crate::placed::{PlanSource, optimize_with};
use crate::sim::SimVolume;
use crate::{Report, SkipReason};
use longrun_layout::{Extent, Run, VolumeLayout};
use longrun_planner::{Batch, Policy};

/// Somebody takes this block before the first capture.
fn beside_a_taker(sim: SimVolume, block: u64) -> Meddled<'static> {
    Meddled::new(sim, move |moment, sim| {
        if moment == Moment::BeforeCapture(1) {
            sim.user().take(Extent::new(block, 1));
        }
        None
    })
}

#[test]
fn a_file_whose_place_was_taken_makes_way_for_those_that_wait_for_its_present_one() {
    let sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]]);
    let mut meddled = beside_a_taker(sim, 101);
    let report = run(&mut meddled, &settings(), &plan(&[(0, 0, 10, 100, 4), (1, 0, 40, 10, 4)]));
    assert_eq!(report.skipped, [skipped(SkipReason::TargetTaken, 1)]);
    let places = (place(&meddled.sim, 0), place(&meddled.sim, 1));
    assert_eq!(places, (vec![Run::new(0, 104, 4)], vec![Run::new(0, 10, 4)]), "whole, in the largest piece");
    meddled.sim.check().unwrap();
}

#[test]
fn a_file_that_stepped_aside_gets_to_its_last_place_all_the_same() {
    let sim = volume(&[&[Run::new(0, 10, 4)], &[Run::new(0, 40, 4)]]);
    let mut meddled = beside_a_taker(sim, 101);
    let aside = [(0, 0, 10, 100, 4), (1, 0, 40, 10, 4), (0, 0, 100, 60, 2), (0, 2, 102, 62, 2)];
    // The unit that follows has the same part twice.
    let moves = aside.into_iter().chain([(0, 0, 60, 80, 4)]);
    let report = run(&mut meddled, &settings(), &plan(&moves.collect::<Vec<_>>()));
    assert_eq!(report.skipped, [], "nobody changed it");
    let places = (place(&meddled.sim, 0), place(&meddled.sim, 1));
    assert_eq!(places, (vec![Run::new(0, 80, 4)], vec![Run::new(0, 10, 4)]));
    meddled.sim.check().unwrap();
}

#[test]
fn where_no_piece_is_large_enough_a_file_goes_around_what_was_taken() {
    let in_three: &[Run] = &[Run::new(0, 10, 4), Run::new(4, 16, 4), Run::new(8, 22, 4)];
    let filling = [
        (1, 9),
        (14, 2),
        (20, 2),
        (26, 14),
        (48, 12),
        (68, 2),
        (78, 12),
        (102, 8),
        (117, 3),
        (127, 3),
        (137, 3),
        (147, 53),
    ];
    let mut logical = 0;
    let filled = filling.map(|(at, length)| {
        logical += length;
        Run::new(logical - length, at, length)
    });
    let sim = volume(&[in_three, &[Run::new(0, 40, 8)], &[Run::new(0, 70, 8)], &filled]);
    let mut meddled = beside_a_taker(sim, 63);
    // The first file saves as many fragments as the second one costs.
    let joined = [(0, 0, 10, 90, 4), (0, 4, 16, 94, 4), (0, 8, 22, 98, 4)];
    let moves: Vec<_> = joined.into_iter().chain([(1, 0, 40, 60, 8), (2, 0, 70, 40, 8)]).collect();
    let report = run(&mut meddled, &settings(), &plan(&moves));
    assert_eq!(report.skipped, [skipped(SkipReason::TargetTaken, 1)]);
    assert_eq!(
        place(&meddled.sim, 1),
        [Run::new(0, 60, 3), Run::new(3, 110, 1), Run::new(4, 64, 4)],
        "held for that from the beginning"
    );
    assert_eq!(place(&meddled.sim, 2), [Run::new(0, 40, 8)]);
    assert!(report.after.excess_fragments <= report.before.excess_fragments);
    meddled.sim.check().unwrap();
}

#[test]
fn a_file_that_may_not_be_split_goes_into_one_piece_as_a_whole() {
    let sim = volume(&[&[Run::new(0, 40, 8)], &[Run::new(0, 70, 8)]]);
    let mut meddled = beside_a_taker(sim, 63);
    run(&mut meddled, &settings(), &plan(&[(0, 0, 40, 60, 8), (1, 0, 70, 40, 8)]));
    assert_eq!(place(&meddled.sim, 0).len(), 1, "nothing has been saved that would permit a split");
    assert_eq!(place(&meddled.sim, 1), [Run::new(0, 40, 8)]);
    meddled.sim.check().unwrap();
}

/// Sends a file to the first of some places that are free by the layout that it is given, as the planner does.
struct FirstFree(&'static [u64]);

impl PlanSource for FirstFree {
    fn plan<'l>(&self, layout: &'l VolumeLayout, _: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let is_free = |at: &u64| layout.free().iter().any(|piece| piece.contains(&Extent::new(*at, 4)));
        let place = self.0.iter().copied().find(is_free);
        Box::new(place.map(|at| batch(&[(0, 0, 10, at, 4)])).into_iter())
    }
}

fn run_first_free(places: &'static [u64], block: u64) -> (Report, Vec<Run>) {
    let mut meddled = beside_a_taker(volume(&[&[Run::new(0, 10, 4)]]), block);
    let report = optimize_with(&mut meddled, &settings(), &mut Impatient::default(), &FirstFree(places)).unwrap();
    meddled.sim.check().unwrap();
    (report, place(&meddled.sim, 0))
}

/// Story: 25 blocks of an ext4 volume became blocks of the extent trees of what captured 98,789 others. Twelve files did not get their
/// places, and each further round missed a few more.
#[test]
fn a_plan_that_lacks_blocks_before_anything_has_moved_is_made_again_in_the_same_round() {
    let (report, place) = run_first_free(&[100, 120], 101);
    assert_eq!((report.skipped.as_slice(), report.rounds, report.moves), (&[][..], 1, 1));
    assert_eq!(place, [Run::new(0, 120, 4)]);
    let round = report.by_round.first().unwrap();
    assert_eq!((round.units, round.done), (1, 1), "the first plan was not begun");
}

#[test]
fn where_no_plan_does_without_the_missing_blocks_nothing_moves() {
    let (report, place) = run_first_free(&[100], 101);
    assert_eq!((report.moves, report.bytes_moved.0), (0, 0));
    assert_eq!(place, [Run::new(0, 10, 4)]);
}
