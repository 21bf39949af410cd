//! Story: on NTFS the directories and $MFT stayed wherever they had been, and $MFT grew into fragments again. In full mode they have a place
//! of their own, with room behind $MFT.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{Shape, build, policy, replay, shapes};
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, LayoutBuilder, VolumeLayout};
use longrun_planner::{Batch, Mode, Planner, plan_whole};
use proptest::prelude::*;

/// One file in so many is a directory.
const DIRECTORIES: u32 = 30;

/// The same volume with directories, the file `table` as its table, and `more` free blocks behind everything.
fn with_metadata(shape: &Shape, table: u32, more: u64) -> VolumeLayout {
    let plain = build(&Shape { copies: Vec::new(), ..shape.clone() });
    let mut builder = LayoutBuilder::new(plain.block_size(), Blocks(shape.total + more)).moving_directories();
    for file in plain.files() {
        let is_directory = file.index.0 % DIRECTORIES == 5;
        builder.push_file(file.id(), file.record.directory, is_directory, None, &mut file.runs().collect());
    }
    plain.free().iter().for_each(|piece| builder.push_free(*piece));
    builder.push_free(Extent::new(shape.total, more));
    let mut layout = builder.build().unwrap();
    layout.set_table(Some(FileIndex(table)));
    layout
}

fn directories(layout: &VolumeLayout) -> ExtentSet {
    let directories = layout.files().filter(|file| file.record.is_directory);
    directories.flat_map(|file| file.runs().collect::<Vec<_>>()).map(|run| run.extent()).collect()
}

/// Free blocks behind the table.
fn behind(layout: &VolumeLayout) -> u64 {
    let end = layout.file(layout.table().unwrap()).unwrap().runs().last().unwrap().extent().end();
    layout.free().iter().find(|piece| piece.start == end).map_or(0, |piece| piece.length.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn placing_metadata_is_legal_and_costs_little(shape in shapes(), table in 0u32..4, more in 0u64..2000) {
        let layout = with_metadata(&shape, table, more);
        let plain = replay(&layout, Planner::new(&layout, policy(Mode::Full)).collect());
        let end = replay(&layout, plan_whole(&layout, policy(Mode::Full)).collect());
        prop_assert!(end.after.excess_fragments <= plain.after.excess_fragments);
        prop_assert!(end.after.free_space.pieces <= plain.after.free_space.pieces + 2);
        prop_assert_eq!(end.after.free_space.bytes, end.before.free_space.bytes);
        let used = end.before.used_bytes.0 / 4096;
        prop_assert!(end.moved <= plain.moved + (plain.moved / 10).max(used / 50), "{} {}", end.moved, plain.moved);
    }
}

#[test]
fn directories_end_side_by_side_and_the_table_has_room_and_both_stay_there() {
    let files: Vec<(u64, u64)> = (0..400).map(|number| (1 + number % 23, 1 + number % 4)).collect();
    let mut placed = 0;
    for seed in 0..20 {
        let obstacles = vec![(300, 9), (700, 5)];
        let shape = Shape { total: 6000, files: files.clone(), obstacles, copies: Vec::new(), seed };
        let layout = with_metadata(&shape, 0, 3000);
        let end = replay(&layout, plan_whole(&layout, policy(Mode::Full)).collect());
        if directories(&end.layout).iter().count() > 4 {
            continue;
        }
        placed += 1;
        assert!(behind(&end.layout) > 0, "seed {seed}");
        assert_eq!(end.after.excess_fragments, 0, "seed {seed}");
        let again: Vec<Batch> = plan_whole(&end.layout, policy(Mode::Full)).collect();
        assert!(again.iter().all(|batch| batch.moves().next().is_none()), "seed {seed}: it is planned again");
    }
    assert!(placed >= 15, "{placed}");
}
