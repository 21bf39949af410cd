//! Laws of placing by heat, on random small volumes: nothing gets worse, the allowance is kept, and what is placed is placed for good.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{Shape, build, policy, replay, run, shapes};
use longrun_layout::{Blocks, FileId, VolumeLayout};
use longrun_planner::{FastEnd, FileUse, Mode, Placement, plan_zones};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Blocks of so many files at the fast end, weighted by their reads: the mean distance from there, as a share of the volume.
fn distance(layout: &VolumeLayout, placement: &Placement) -> f64 {
    let (mut sum, mut reads) = (0.0, 0.0);
    for file in layout.files() {
        let Some(of) = placement.uses.get(&file.id()) else { continue };
        let Some(run) = file.runs().next() else { continue };
        let at = run.physical.0 as f64 / layout.total_blocks().0 as f64;
        let at = if placement.fast == FastEnd::Beginning { at } else { 1.0 - at };
        (sum, reads) = (sum + at * of.reads, reads + of.reads);
    }
    if reads > 0.0 { sum / reads } else { 0.0 }
}

/// Every fifth file is read much.
fn placement(layout: &VolumeLayout, seed: u64, fast: FastEnd, budget: u64, stay: usize) -> Placement {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut uses = BTreeMap::new();
    let mut ids: Vec<FileId> = layout.files().map(|file| file.id()).collect();
    for id in &ids {
        let reads = if random.u8(..5) == 0 { random.u32(500..5000) } else { random.u32(..50) };
        let changes = if random.u8(..10) == 0 { 20.0 } else { 0.0 };
        uses.insert(*id, FileUse { reads: reads.into(), changes });
    }
    random.shuffle(&mut ids);
    ids.truncate(stay);
    Placement { uses, stay: ids.into_iter().collect(), fast, budget: Blocks(budget) }
}

fn ends() -> impl Strategy<Value = FastEnd> {
    prop_oneof![Just(FastEnd::Beginning), Just(FastEnd::End)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn placing_is_legal_makes_nothing_worse_and_keeps_the_allowance(
        shape in shapes(), seed: u64, fast in ends(), share in 0u64..=150, stay in 0usize..6,
    ) {
        let layout = build(&shape);
        let used = layout.fragmentation().used_bytes.0 / 4096;
        let placement = placement(&layout, seed, fast, used * share / 100, stay);
        let plan = plan_zones(&layout, &placement, Blocks(512));
        let end = replay(&layout, plan.batches.clone());
        prop_assert_eq!(end.moved, plan.moved.0);
        prop_assert!(end.moved <= placement.budget.0);
        prop_assert!(end.after.excess_fragments <= end.before.excess_fragments);
        prop_assert!(end.after.free_space.pieces <= end.before.free_space.pieces);
        prop_assert!(end.after.free_space.largest_bytes >= end.before.free_space.largest_bytes);
        prop_assert!(distance(&end.layout, &placement) <= distance(&layout, &placement) + 1e-9);
        for file in layout.files().filter(|file| placement.stay.contains(&file.id())) {
            prop_assert!(end.layout.file(file.index).unwrap().runs().eq(file.runs()));
        }
    }

    #[test]
    fn every_batch_can_be_the_last(shape in shapes(), seed: u64, fast in ends()) {
        let layout = build(&shape);
        let placement = placement(&layout, seed, fast, u64::MAX, 3);
        let batches = plan_zones(&layout, &placement, Blocks(40)).batches;
        for length in 0..batches.len() {
            let end = replay(&layout, batches[..length].to_vec());
            prop_assert!(end.after.excess_fragments <= end.before.excess_fragments);
            prop_assert!(end.after.free_space.pieces <= end.before.free_space.pieces);
        }
    }

    #[test]
    fn what_is_placed_is_not_moved_again_even_when_the_counts_differ_a_little(shape in shapes(), seed: u64, fast in ends()) {
        let layout = build(&shape);
        let mut placement = placement(&layout, seed, fast, u64::MAX, 3);
        let first = plan_zones(&layout, &placement, Blocks(512));
        let end = replay(&layout, first.batches);
        let again = plan_zones(&end.layout, &placement, Blocks(512));
        prop_assert!(again.batches.is_empty(), "{} files are placed again", again.placed);
        // A quarter more or less here and there.
        let mut random = fastrand::Rng::with_seed(seed);
        for of in placement.uses.values_mut() {
            of.reads *= 0.75 + random.f64() / 2.0;
        }
        let later = plan_zones(&end.layout, &placement, Blocks(512));
        // A few may pass the bar by it; where few were placed, they are as many.
        prop_assert!(later.placed * 4 <= first.placed.max(16), "{} of {} files are placed again", later.placed, first.placed);
    }

    #[test]
    fn the_same_heat_gives_the_same_plan(shape in shapes(), seed: u64) {
        let layout = build(&shape);
        let placement = placement(&layout, seed, FastEnd::Beginning, u64::MAX, 2);
        prop_assert_eq!(plan_zones(&layout, &placement, Blocks(99)), plan_zones(&layout, &placement, Blocks(99)));
    }

    #[test]
    fn where_all_is_read_alike_or_little_is_known_nothing_is_moved(shape in shapes(), reads in 0u32..5000) {
        let layout = build(&shape);
        let used = layout.fragmentation().used_bytes.0 / 4096;
        let mut placement = placement(&layout, 1, FastEnd::Beginning, u64::MAX, 0);
        for file in layout.files() {
            let share = file.size().0 as f64 / used.max(1) as f64;
            placement.uses.insert(file.id(), FileUse { reads: f64::from(reads) * share, changes: 0.0 });
        }
        prop_assert_eq!(plan_zones(&layout, &placement, Blocks(512)).batches, vec![]);
    }
}

/// A volume as full mode leaves it.
fn optimized(files: u64, seed: u64) -> VolumeLayout {
    let files: Vec<(u64, u64)> = (0..files).map(|number| (1 + number * 7 % 23, 1 + number % 3)).collect();
    let blocks: u64 = files.iter().map(|(size, _)| size).sum();
    let shape = Shape { total: blocks * 10 / 7, files, obstacles: vec![(200, 9), (600, 5)], copies: Vec::new(), seed };
    run(&build(&shape), policy(Mode::Full)).layout
}

#[test]
fn nearly_all_hot_files_come_to_the_fast_end_and_changing_ones_do_not() {
    let layout = optimized(3000, 5);
    for fast in [FastEnd::Beginning, FastEnd::End] {
        let placement = placement(&layout, 3, fast, u64::MAX, 0);
        let plan = plan_zones(&layout, &placement, Blocks(512));
        let end = replay(&layout, plan.batches);
        assert!(
            plan.placed > 300 && plan.without_partner * 4 <= plan.placed,
            "{} {}",
            plan.placed,
            plan.without_partner
        );
        let (before, after) = (distance(&layout, &placement), distance(&end.layout, &placement));
        assert!(after < before * 0.6, "{fast:?}: {before} to {after}");
        // Some make room for others, and only what stays in a group may come a few blocks nearer.
        for file in end.layout.files().filter(|file| placement.uses[&file.id()].changes > 0.0) {
            let at = |layout: &VolumeLayout| layout.file(file.index).unwrap().runs().next().unwrap().physical.0;
            let (before, after) = (at(&layout), at(&end.layout));
            let nearer =
                if fast == FastEnd::Beginning { before.saturating_sub(after) } else { after.saturating_sub(before) };
            assert!(nearer < 100, "{file:?}");
        }
    }
}
