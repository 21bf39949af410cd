//! Plans simulated aged volumes and prints what the plans come to: figures before and after, blocks moved, barriers,
//! planning time. An image of an unmounted ext4 volume (*.img) can be named too. `cargo run --release -p longrun-volume --example plan_figures -- full office server media`
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, missing_docs)]

use longrun_layout::{Blocks, ExtentSet, VolumeLayout, apply_moves};
use longrun_planner::{Mode, Planner, Policy, Step, Why};
use longrun_volume::NoProgress;
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use longrun_volume::sim::recipes;
use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = match arguments.first().map(String::as_str) {
        Some("efficient") => Mode::Efficient,
        Some("files") => Mode::Files,
        _ => Mode::Full,
    };
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for name in arguments.iter().skip(1) {
        let total = Blocks(1 << 20);
        let layout = match name.as_str() {
            "server" => recipes::server(seed, total),
            "office" => recipes::office(seed, total),
            "media" => recipes::media(seed, total),
            "scattered" => recipes::scattered(seed, total),
            image if image.ends_with(".img") => {
                let mut reader = Ext4Reader::open(image.as_ref(), Access::Still).unwrap();
                let options = ScanOptions { free_space: FreeSpace::Bitmaps, directories: true };
                reader.scan(options, &NoProgress).unwrap().layout
            }
            count => recipes::many_files(seed, count.parse().unwrap()),
        };
        figures(name, &layout, mode);
    }
}

fn figures(name: &str, layout: &VolumeLayout, mode: Mode) {
    let budget = std::env::var("BUDGET").ok().and_then(|b| b.parse().ok()).map(Blocks);
    let policy = Policy { mode, budget, reserve: Blocks(6144), epoch: Blocks(32768), goal: None };
    let before = layout.fragmentation();
    let started = Instant::now();
    let mut first = None;
    let (mut moves, mut barriers, mut blocks) = (Vec::new(), 0, 0);
    let mut why: BTreeMap<Why, u64> = BTreeMap::new();
    let mut pending = ExtentSet::new();
    for batch in Planner::new(layout, policy) {
        first.get_or_insert_with(|| started.elapsed());
        for step in batch.steps {
            match step {
                Step::Barrier => {
                    barriers += 1;
                    pending = ExtentSet::new();
                }
                Step::Move(planned) => {
                    let target = planned.step.occupies();
                    assert!(pending.overlapping(target).next().is_none(), "target not committed: {planned:?}");
                    pending.insert(planned.step.vacates());
                    blocks += planned.step.length.0;
                    *why.entry(planned.why).or_default() += planned.step.length.0;
                    moves.push(planned.step);
                }
            }
        }
    }
    let seconds = started.elapsed();
    let count = moves.len();
    let after = apply_moves(layout, moves).unwrap();
    let figures = after.fragmentation();
    let used: u64 = layout.files().filter(|f| f.is_movable()).map(|f| f.size().0).sum();
    println!(
        "{name}: files {} excess {} -> {} pieces {} -> {} (floor {}) largest {:.1} -> {:.1} % of free; moves {count} moved/used {:.3} barriers {barriers} planning {seconds:.2?} (first batch {:.2?})\n  {why:?}",
        before.files,
        before.excess_fragments,
        figures.excess_fragments,
        before.free_space.pieces,
        figures.free_space.pieces,
        figures.free_space.floor_pieces,
        100.0 * before.free_space.largest_bytes.0 as f64 / before.free_space.bytes.0 as f64,
        100.0 * figures.free_space.largest_bytes.0 as f64 / figures.free_space.bytes.0 as f64,
        blocks as f64 / used as f64,
        first.unwrap_or_default(),
    );
    let again: usize = Planner::new(&after, policy).map(|b| b.moves().count()).sum();
    if again > 0 {
        println!("  replan after success moves again: {again}");
    }
}
