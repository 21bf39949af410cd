//! Random small volumes, and a referee that replays a plan step by step under the rules of a real volume.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use longrun_layout::{
    BlockSize, Blocks, Extent, ExtentSet, FileId, FileMove, Fragmentation, InodeNumber, LayoutBuilder, Run,
    VolumeLayout, apply_moves,
};
use longrun_planner::{Batch, Mode, Planner, Policy, Step};
use proptest::prelude::*;

/// What a random volume is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Blocks of the volume.
    pub total: u64,
    /// Files: size, and into how many fragments they are torn at most.
    pub files: Vec<(u64, u64)>,
    /// Immovable blocks.
    pub obstacles: Vec<(u64, u64)>,
    /// How many further files lie in the blocks of a file, for the first files.
    pub copies: Vec<u64>,
    pub seed: u64,
}

/// Volumes of up to a few thousand blocks, mostly full.
pub fn shapes() -> impl Strategy<Value = Shape> {
    let file = (prop_oneof![4 => 1u64..12, 2 => 8u64..80, 1 => 60u64..400], prop_oneof![3 => Just(1u64), 2 => 2u64..9]);
    let obstacle = (0u64..1000, 1u64..20);
    let copies = prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => 1u64..4], 0..20);
    (200u64..3000, prop::collection::vec(file, 1..120), prop::collection::vec(obstacle, 0..12), copies, any::<u64>())
        .prop_map(|(total, files, obstacles, copies, seed)| Shape { total, files, obstacles, copies, seed })
}

/// Builds the volume: files are laid into random free places, torn as the shape says, as long as there is room.
pub fn build(shape: &Shape) -> VolumeLayout {
    let mut rng = fastrand::Rng::with_seed(shape.seed);
    let mut free = ExtentSet::new();
    free.insert(Extent::new(1, shape.total - 1));
    for (at, length) in &shape.obstacles {
        free.remove(Extent::new(at * shape.total / 1000, *length));
    }
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(shape.total));
    for (index, (size, tears)) in shape.files.iter().enumerate() {
        let mut runs = Vec::new();
        let (mut rest, mut logical) = (*size, 0);
        while rest > 0 {
            let wanted = rest.min(size.div_ceil(*tears)).max(1);
            let holes: Vec<Extent> = free.iter().collect();
            let Some(hole) = (!holes.is_empty()).then(|| holes[rng.usize(..holes.len())]) else { break };
            let length = wanted.min(hole.length.0);
            let start = hole.start.0 + rng.u64(..=hole.length.0 - length);
            free.remove(Extent::new(start, length));
            runs.push(Run::new(logical, start, length));
            logical += length + u64::from(rng.u8(..16) == 0) * 3;
            rest -= length;
        }
        if !runs.is_empty() {
            let copies = shape.copies.get(index).copied().unwrap_or(0);
            for copy in 0..=copies {
                let id = FileId { inode: InodeNumber(copy * 1000 + index as u64 + 11), generation: 1 };
                let file = builder.push_file(id, rng.u32(..5), false, None, &mut runs.clone());
                if copies > 0 {
                    builder.shares_blocks(file);
                }
            }
        }
    }
    for extent in free.iter() {
        builder.push_free(extent);
    }
    builder.build().unwrap()
}

pub fn policy(mode: Mode) -> Policy {
    Policy { mode, budget: None, reserve: Blocks(0), most_held: Blocks(u64::MAX), epoch: Blocks(512), goal: None }
}

/// What a plan came to, as the referee saw it.
#[allow(dead_code, reason = "not every test asks for everything")]
pub struct Outcome {
    pub layout: VolumeLayout,
    pub before: Fragmentation,
    pub after: Fragmentation,
    pub moved: u64,
    pub moves: usize,
}

/// Replays batches: every target must be free and committed, every source right (`apply_moves` checks both), and at no
/// barrier may there be more excess fragments than at the start.
pub fn replay(layout: &VolumeLayout, batches: Vec<Batch>) -> Outcome {
    let before = layout.fragmentation();
    let mut current = layout.clone();
    let (mut moved, mut moves) = (0, 0);
    for batch in batches {
        let needed = batch.needs_free();
        let free: ExtentSet = current.free().iter().copied().collect();
        assert!(needed.iter().all(|e| free.covers(e)), "a batch needs blocks that are not free at its start");
        let mut epoch: Vec<FileMove> = Vec::new();
        let mut pending = ExtentSet::new();
        for step in batch.steps.into_iter().chain([Step::Barrier]) {
            match step {
                Step::Move(planned) => {
                    let target = planned.step.occupies();
                    assert!(pending.overlapping(target).next().is_none(), "target not committed: {planned:?}");
                    pending.insert(planned.step.vacates());
                    moved += planned.step.length.0;
                    moves += 1;
                    epoch.push(planned.step);
                }
                Step::Barrier => {
                    pending = ExtentSet::new();
                    current = apply_moves(&current, epoch.drain(..)).expect("a plan must fit its layout");
                    let excess = current.fragmentation().excess_fragments;
                    assert!(excess <= before.excess_fragments, "more excess ({excess}) than at the start: {before:?}");
                }
            }
        }
    }
    assert_eq!(current.obstacles(), layout.obstacles(), "obstacles must not move");
    assert_eq!(current.sharers(), layout.sharers(), "files that share blocks must go on sharing them");
    let sizes = |l: &VolumeLayout| l.files().map(|f| f.size()).collect::<Vec<_>>();
    assert_eq!(sizes(&current), sizes(layout), "no file may gain or lose a block");
    let after = current.fragmentation();
    Outcome { layout: current, before, after, moved, moves }
}

/// Plans and replays.
#[allow(dead_code, reason = "not every test plans so")]
pub fn run(layout: &VolumeLayout, policy: Policy) -> Outcome {
    replay(layout, Planner::new(layout, policy).collect())
}
