//! Files whose places were taken step out of the way of others.

use super::meddler::{Meddled, Moment};
use super::scenarios::{place, plan, run, settings, skipped, volume};
use crate::SkipReason;
use crate::sim::SimVolume;
use longrun_layout::{Extent, Run};

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
