//! Units that need more space than may be held at once.

use super::scenarios::{place, plan, run, settings, skipped, volume};
use crate::{Settings, SkipReason};
use longrun_layout::{Bytes, Run};

#[test]
fn a_file_that_needs_more_space_than_may_be_held_is_left_to_its_reason() {
    let mut sim = volume(&[&[Run::new(0, 1, 90)]]);
    let settings = Settings { reserve: Some(Bytes(60 * 4096)), ..settings() };
    let report = run(&mut sim, &settings, &plan(&[(0, 0, 1, 100, 90)]));
    assert_eq!(report.skipped, [skipped(SkipReason::SpaceNeeded, 1)]);
    assert_eq!(place(&sim, 0), [Run::new(0, 1, 90)]);
}

/// Story: the last unit of a plan for a nearly full ext4 was 50 MiB of one file, more than may be held there at once. It was left, four
/// rounds in turn, and with it 74 fragments and 55 pieces of free space.
#[test]
fn what_needs_more_space_than_may_be_held_moves_in_parts_where_its_file_may_be_split_meanwhile() {
    let mut sim = volume(&[&[Run::new(0, 70, 2), Run::new(2, 74, 2), Run::new(4, 78, 2)], &[Run::new(0, 1, 60)]]);
    let settings = Settings { reserve: Some(Bytes(60 * 4096)), ..settings() };
    let joined = [(0, 0, 70, 190, 2), (0, 2, 74, 192, 2), (0, 4, 78, 194, 2)];
    let moves: Vec<_> = joined.into_iter().chain([(1, 0, 1, 100, 60)]).collect();
    let report = run(&mut sim, &settings, &plan(&moves));
    assert_eq!((report.skipped, place(&sim, 1)), (vec![], vec![Run::new(0, 100, 60)]));
    assert!(report.by_round[0].units > 2 && report.by_round[0].units == report.by_round[0].done);
    sim.check().unwrap();
}

/// Story: ten parts of a file, of 10 MiB each, were to be joined where 13 MiB may be held. They were cut after each 6 MiB: one fragment more
/// meanwhile, for which nothing had been saved, and so the file was left.
#[test]
fn a_unit_is_divided_between_its_fragments() {
    let fragments: Vec<Run> = (0..4).map(|n| Run::new(n * 20, 1 + n * 22, 20)).collect();
    let mut sim = volume(&[&fragments]);
    let settings = Settings { reserve: Some(Bytes(60 * 4096)), ..settings() };
    let moves: Vec<_> = (0..4).map(|n| (0, n as u64 * 20, 1 + n as u64 * 22, 110 + n as u64 * 20, 20)).collect();
    let report = run(&mut sim, &settings, &plan(&moves));
    assert_eq!((report.skipped, place(&sim, 0)), (vec![], vec![Run::new(0, 110, 80)]));
    assert_eq!(report.by_round[0].units, 4, "a part for each fragment: what may be held is a little more than one");
    sim.check().unwrap();
}
