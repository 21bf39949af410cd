//! What placing by heat gains: planned day by day with the daily allowance, judged by modelled disks in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests may fail loudly, and tell their figures"
)]

use longrun_lab::disk::DiskModel;
use longrun_lab::disk::model::{Access, Nanos, Request};
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex, InodeNumber, LayoutBuilder, Run, VolumeLayout,
    apply_moves,
};
use longrun_planner::{Batch, FastEnd, FileUse, Mode, Placement, Planner, Policy, plan_zones};
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: u64 = 4096;
const FILES: u64 = 6000;

/// A volume, 70 % full, as it is after optimizing: files of many sizes that were laid into random places.
fn optimized(seed: u64) -> VolumeLayout {
    let mut random = fastrand::Rng::with_seed(seed);
    let sizes: Vec<u64> = (0..FILES)
        .map(|_| match random.u8(..10) {
            0..6 => random.u64(1..16),
            6..9 => random.u64(16..128),
            _ => random.u64(128..1024),
        })
        .collect();
    let total = sizes.iter().sum::<u64>() * 10 / 7;
    let mut free = ExtentSet::new();
    free.insert(Extent::new(1, total - 1));
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(total));
    for (nth, size) in (11..).zip(&sizes) {
        let (mut runs, mut left, mut logical) = (Vec::new(), *size, 0);
        while left > 0 {
            let at = random.u64(1..total);
            let hole = free.iter().find(|hole| hole.end().0 > at).or(free.iter().next()).unwrap();
            let from = hole.start.0.max(at.min(hole.end().0 - 1));
            let length = left.min(hole.end().0 - from);
            free.remove(Extent::new(from, length));
            runs.push(Run::new(logical, from, length));
            (left, logical) = (left - length, logical + length);
        }
        let id = FileId { inode: InodeNumber(nth), generation: 1 };
        builder.push_file(id, random.u32(..50), false, None, &mut runs);
    }
    free.iter().for_each(|piece| builder.push_free(piece));
    let mut layout = builder.build().unwrap();
    let policy = Policy {
        mode: Mode::Full,
        budget: None,
        reserve: Blocks(0),
        most_held: Blocks(u64::MAX),
        epoch: Blocks(32_768),
        goal: None,
    };
    for _ in 0..4 {
        let batches: Vec<Batch> = Planner::new(&layout, policy).collect();
        let moves: Vec<_> = batches.iter().flat_map(Batch::moves).map(|planned| planned.step).collect();
        if moves.is_empty() {
            break;
        }
        layout = apply_moves(&layout, moves).unwrap();
    }
    layout
}

/// A load: which files are read, in proportion to their sizes.
struct Load {
    hot: Vec<(FileIndex, u64)>,
    cold: Vec<(FileIndex, u64)>,
}

impl Load {
    /// Files with a fifth of the data take four fifths of the reads.
    fn of(layout: &VolumeLayout, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut files: Vec<(FileIndex, u64)> = layout.files().map(|file| (file.index, file.size().0)).collect();
        random.shuffle(&mut files);
        let used: u64 = files.iter().map(|(_, size)| size).sum();
        let (mut hot, mut cold, mut sum) = (Vec::new(), Vec::new(), 0);
        for (file, size) in files {
            if sum + size <= used / 5 {
                sum += size;
                hot.push((file, size));
            } else {
                cold.push((file, size));
            }
        }
        Self { hot, cold }
    }

    /// The next read: of which file, and from which block of it.
    fn next(&self, random: &mut fastrand::Rng) -> (FileIndex, u64) {
        let of = if random.u8(..5) < 4 { &self.hot } else { &self.cold };
        let total: u64 = of.iter().map(|(_, size)| size).sum();
        let mut at = random.u64(..total);
        for (file, size) in of {
            match at.checked_sub(*size) {
                Some(left) => at = left,
                None => return (*file, at),
            }
        }
        unreachable!()
    }

    fn reads(&self, count: usize, seed: u64) -> Vec<(FileIndex, u64)> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| self.next(&mut random)).collect()
    }
}

/// The reads of 16 KiB, as requests to the device.
fn requests(layout: &VolumeLayout, reads: &[(FileIndex, u64)]) -> Vec<Request> {
    let requests = reads.iter().zip(0..).map(|((file, block), id)| {
        let file = layout.file(*file).unwrap();
        let block = (*block).min(file.size().0.saturating_sub(4));
        let run = file.runs().find(|run| run.logical.0 <= block && block < run.logical.0 + run.length.0).unwrap();
        let at = (run.physical.0 + block - run.logical.0) * BLOCK;
        Request { id, access: Access::Read, at: Bytes(at), length: Bytes(4 * BLOCK) }
    });
    requests.collect()
}

/// What the reads take, one after the other: those of hot files, and all.
fn times(layout: &VolumeLayout, model: &str, reads: &[(FileIndex, u64)], hot: &BTreeSet<FileIndex>) -> (Nanos, Nanos) {
    let mut device = DiskModel::by_name(model).unwrap().device(Bytes(layout.total_blocks().0 * BLOCK), 1);
    let (mut now, mut of_hot) = (Nanos(0), Nanos(0));
    for (request, (file, _)) in requests(layout, reads).iter().zip(reads) {
        device.submit(now, *request);
        let begun = now;
        while now == begun {
            let due = device.due().unwrap();
            now = device.take_done(due).first().map_or(now, |done| done.at);
        }
        if hot.contains(file) {
            of_hot = of_hot + now.since(begun);
        }
    }
    (of_hot, now)
}

#[test]
fn hot_files_take_less_of_the_time_of_a_hard_disk_and_no_day_moves_more_than_its_allowance() {
    for seed in [1, 2] {
        let before = optimized(seed);
        let load = Load::of(&before, seed);
        let mut uses: BTreeMap<FileId, FileUse> = BTreeMap::new();
        for (file, _) in load.reads(100_000, 10 + seed) {
            uses.entry(before.file(file).unwrap().id()).or_default().reads += 1.0;
        }
        let figures = before.fragmentation();
        let used = figures.used_bytes.0 / BLOCK;
        let placement = Placement { uses, stay: BTreeSet::new(), fast: FastEnd::Beginning, budget: Blocks(used / 100) };
        let (mut after, mut days, mut moved, mut placed) = (before.clone(), 0, 0, 0);
        loop {
            let plan = plan_zones(&after, &placement, Blocks(32_768));
            if plan.batches.is_empty() {
                println!("seed {seed}: {} without partner, {} over budget", plan.without_partner, plan.over_budget);
                break;
            }
            assert!(plan.moved <= placement.budget, "day {days}: {}", plan.moved);
            let moves = plan.batches.iter().flat_map(Batch::moves).map(|planned| planned.step);
            after = apply_moves(&after, moves).unwrap();
            (days, moved, placed) = (days + 1, moved + plan.moved.0, placed + plan.placed);
            assert!(days < 200, "it does not end");
        }
        let end = after.fragmentation();
        assert!(end.excess_fragments <= figures.excess_fragments);
        assert!(end.free_space.pieces <= figures.free_space.pieces);
        assert!(end.free_space.largest_bytes >= figures.free_space.largest_bytes);
        let reads = load.reads(4000, 77 + seed);
        let hot: BTreeSet<FileIndex> = load.hot.iter().map(|(file, _)| *file).collect();
        let (slow, fast) = (times(&before, "hdd", &reads, &hot), times(&after, "hdd", &reads, &hot));
        let less = |slow: Nanos, fast: Nanos| 100.0 - 100.0 * fast.0 as f64 / slow.0 as f64;
        println!(
            "seed {seed}: reads of the hot files {:.1} s to {:.1} s, {:.1} % less; all reads {:.1} % less; {placed} files in {days} days, \
             {:.0} % of the used blocks moved",
            slow.0.0 as f64 / 1e9,
            fast.0.0 as f64 / 1e9,
            less(slow.0, fast.0),
            less(slow.1, fast.1),
            moved as f64 * 100.0 / used as f64
        );
        assert!(less(slow.0, fast.0) >= 15.0, "the reads of hot files take {:.1} % less", less(slow.0, fast.0));
        assert!(less(slow.1, fast.1) >= 8.0, "all reads take {:.1} % less", less(slow.1, fast.1));
        // On other disks there is nothing to gain: there, nothing is moved.
        for model in ["ssd", "san", "cloud"] {
            let (slow, fast) = (times(&before, model, &reads, &hot), times(&after, model, &reads, &hot));
            println!("seed {seed}, {model}: {:+.1} %", -less(slow.0, fast.0));
            assert!(less(slow.0, fast.0).abs() < 5.0, "{model}");
        }
    }
}
