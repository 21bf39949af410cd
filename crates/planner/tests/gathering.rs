//! Laws of gathering, on random small volumes: the files lie side by side afterwards, in order and whole, and nothing else has moved.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{build, policy, replay, shapes};
use longrun_layout::{Blocks, FileId, FileView, VolumeLayout};
use longrun_planner::{FastEnd, Mode, Policy, plan_gathering};
use proptest::prelude::*;

/// Some files of a volume, in any order.
fn some(layout: &VolumeLayout, seed: u64, count: usize) -> Vec<FileId> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ids: Vec<FileId> = layout.files().map(|file| file.id()).collect();
    random.shuffle(&mut ids);
    ids.truncate(count);
    ids
}

fn file(layout: &VolumeLayout, id: FileId) -> FileView<'_> {
    layout.files().find(|file| file.id() == id).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn files_come_together_in_order_and_no_other_is_moved(
        shape in shapes(), seed: u64, count in 1usize..12, at_end: bool, epoch in 1u64..200,
    ) {
        let layout = build(&shape);
        let asked = some(&layout, seed, count);
        let fast = if at_end { FastEnd::End } else { FastEnd::Beginning };
        let policy = Policy { epoch: Blocks(epoch), ..policy(Mode::Full) };
        let Some(plan) = plan_gathering(&layout, &asked, fast, &policy) else {
            let most = layout.free().iter().map(|piece| piece.length).max().unwrap_or_default();
            let movable = |id: &&FileId| {
                let file = file(&layout, **id);
                file.is_movable() && layout.owners(file.index) == 1 && layout.leader_of(file.index).is_none()
            };
            let all: Blocks = asked.iter().filter(movable).map(|id| file(&layout, *id).size()).sum();
            prop_assert!(all.0 == 0 || all > most, "{all} blocks, and a free piece of {most}");
            return Ok(());
        };
        // Nothing waits for what another move leaves: every batch can be the last.
        for batch in &plan.batches {
            for target in batch.moves().map(|planned| planned.step.occupies()) {
                prop_assert!(layout.free().iter().any(|piece| piece.contains(&target)));
            }
        }
        let end = replay(&layout, plan.batches.clone());
        prop_assert_eq!(end.moved, plan.moved.0);
        prop_assert!(end.after.excess_fragments <= end.before.excess_fragments);
        let mut next = None;
        for id in &plan.files {
            for run in file(&end.layout, *id).runs() {
                prop_assert_eq!(run.physical, next.unwrap_or(run.physical));
                next = Some(run.physical + run.length);
            }
        }
        let chosen: Vec<&FileId> = asked.iter().filter(|id| plan.files.contains(id)).collect();
        prop_assert_eq!(chosen, plan.files.iter().collect::<Vec<_>>(), "in the order that was asked for");
        for other in layout.files().filter(|file| !plan.files.contains(&file.id())) {
            prop_assert!(end.layout.file(other.index).unwrap().runs().eq(other.runs()));
        }
    }

    #[test]
    fn what_is_dearer_than_the_budget_is_not_begun(shape in shapes(), seed: u64, count in 1usize..12) {
        let layout = build(&shape);
        let asked = some(&layout, seed, count);
        let all = policy(Mode::Full);
        if let Some(plan) = plan_gathering(&layout, &asked, FastEnd::Beginning, &all) {
            let with = |budget| plan_gathering(&layout, &asked, FastEnd::Beginning, &Policy { budget: Some(budget), ..all });
            prop_assert_eq!(with(Blocks(plan.moved.0 - 1)), None);
            prop_assert_eq!(with(plan.moved), Some(plan));
        }
    }
}
