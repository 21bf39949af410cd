//! The production pass on simulated volumes: what it achieves, and that nothing is lost whatever goes wrong.

use super::{ChunkFaults, SimChunkedVolume};
use crate::relocated::{ChunkKey, DataChunk, Picture, UnitOfFiles};
use crate::relocated::{foresee, optimize};
use crate::{Observer, Report, Scope, Settings, Stop, Unobserved, Work};
use fastrand::Rng;
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex, InodeNumber, LayoutBuilder, NO_DIRECTORY, Run,
};
use longrun_planner::Mode;
use std::cell::Cell;
use std::time::Duration;

const CHUNK: u64 = 4096;
const CHUNKS: u64 = 10;
const FIRST: u64 = 1000;

/// A volume on which files have grown side by side while others went; some of them shared as a whole, some in parts.
fn aged(seed: u64) -> Picture {
    aged_to(92, seed)
}

/// The same, of which so many percent are used.
fn aged_to(percent: u64, seed: u64) -> Picture {
    let mut rng = Rng::with_seed(seed);
    let (mut files, mut growing): (Vec<Vec<Run>>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut used = ExtentSet::new();
    for chunk in 0..CHUNKS {
        let (mut at, end) = (FIRST + chunk * CHUNK, FIRST + (chunk + 1) * CHUNK);
        // The last chunk is nearly empty.
        let fill = if chunk + 1 == CHUNKS { 15 } else { percent };
        while at < end {
            while growing.len() < 4 {
                growing.push(files.len());
                files.push(Vec::new());
            }
            let length = rng.u64(1..17).min(end - at);
            let slot = rng.usize(..4);
            if rng.u64(..100) < fill {
                let file = &mut files[growing[slot]];
                let logical = file.last().map_or(0, |run| run.logical_end().0);
                file.push(Run::new(logical, at, length));
                used.insert(Extent::new(at, length));
                if rng.u64(..25) == 0 {
                    growing.swap_remove(slot);
                }
            }
            at += length;
        }
    }
    let mut units: Vec<UnitOfFiles> = Vec::new();
    let total = files.len();
    let size = |runs: &[Run]| Bytes(runs.last().map_or(0, |run| run.logical_end().0) * 4096);
    for number in 0..total {
        let mut members = vec![(FileIndex(number as u32), size(&files[number]))];
        if rng.u64(..8) == 0 && files[number].len() > 2 {
            // A snapshot, and an older one that has less of it.
            let copies = [files[number].clone(), files[number][..files[number].len() / 2].to_vec()];
            for copy in copies {
                members.push((FileIndex(files.len() as u32), size(&copy)));
                files.push(copy);
            }
        }
        units.push(UnitOfFiles { divisible: members.len() == 1, members });
    }
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(FIRST + CHUNKS * CHUNK)).sharing(true);
    for (number, runs) in files.iter().enumerate() {
        let id = FileId { inode: InodeNumber(number as u64 + 257), generation: 5 };
        builder.push_file(id, NO_DIRECTORY, false, None, &mut runs.clone());
    }
    let mut chunks = Vec::new();
    for chunk in 0..CHUNKS {
        let extent = Extent::new(FIRST + chunk * CHUNK, CHUNK);
        let free = used.gaps(extent);
        free.iter().for_each(|piece| builder.push_free(*piece));
        chunks.push(DataChunk { key: ChunkKey(chunk + 1), extent, free });
    }
    let layout = builder.build().unwrap();
    units.retain(|unit| layout.file(unit.members[0].0).is_some_and(|file| file.runs().len() > 0));
    Picture {
        layout,
        chunks,
        unallocated: Blocks(0),
        chunk_length: Blocks(CHUNK),
        units,
        staying: Vec::new(),
        only_files: None,
    }
}

fn settings(mode: Mode) -> Settings {
    Settings { mode, patience: Duration::ZERO, ..Settings::default() }
}

#[test]
fn full_passes_put_nearly_all_files_together_and_consolidate_the_free_space() {
    let (mut excess, mut pieces) = ((0, 0), (0, 0));
    for seed in 0..8 {
        let mut volume = SimChunkedVolume::new(&aged(seed));
        let total = volume.total();
        let report = optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        volume.check().unwrap();
        assert_eq!(volume.total(), total);
        let (before, after) = (&report.before, &report.after);
        assert!(before.excess_fragments > 500, "{before:?}");
        // One of them has no room to begin with; and what snapshots share in parts cannot be whole in all.
        assert!(after.excess_fragments * 4 <= before.excess_fragments, "seed {seed}: {before:#?} {after:#?}");
        assert!(after.free_space.pieces <= before.free_space.pieces, "seed {seed}: {before:#?} {after:#?}");
        assert!(report.bytes_moved.0 <= before.used_bytes.0 * 3, "seed {seed}: {report:?}");
        assert_eq!(after.free_space.bytes, before.free_space.bytes, "nothing takes more space than before");
        excess = (excess.0 + before.excess_fragments, excess.1 + after.excess_fragments);
        pieces = (pieces.0 + before.free_space.pieces, pieces.1 + after.free_space.pieces);
    }
    assert!(excess.1 * 10 <= excess.0 && pieces.1 * 2 <= pieces.0, "{excess:?} {pieces:?}");
}

#[test]
fn the_rounds_tell_what_a_pass_did() {
    let mut volume = SimChunkedVolume::new(&aged(3));
    let report = optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
    let rounds = &report.by_round;
    assert_eq!(rounds.iter().map(|round| round.moved).sum::<Bytes>(), report.bytes_moved);
    assert_eq!(rounds.iter().map(|round| round.commits).sum::<u64>(), report.barriers);
    assert_eq!(rounds.iter().map(|round| round.done).sum::<u64>(), report.moves);
    let last = rounds.last().unwrap();
    let figures = (report.after.excess_fragments, report.after.free_space.pieces);
    assert_eq!((last.excess_fragments, last.free_pieces), figures);
    assert!(rounds.iter().all(|round| round.work.is_some() && round.units > 0), "a round without work: {rounds:#?}");
    assert!(rounds.iter().any(|round| round.work == Some(Work::Files)), "{rounds:#?}");
}

/// A second pass once wrote a third of what the first did: it cleared stretches for the free space's sake that the first had
/// cleared, and the allocator put what lay there into the next ones.
#[test]
fn a_volume_that_nobody_touches_comes_to_rest() {
    for (percent, seed) in [60, 75, 85, 92].into_iter().flat_map(|percent| (0..8).map(move |seed| (percent, seed))) {
        let mut volume = SimChunkedVolume::new(&aged_to(percent, seed));
        let mut pass = || optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        let (first, second) = (pass(), pass());
        volume.check().unwrap();
        let of_used = |report: &Report| report.bytes_moved.0 as f64 / report.before.used_bytes.0 as f64;
        // Where the first has ended at the most that a pass writes, the second goes on.
        let most = if of_used(&first) < 2.35 { 0.02 } else { 0.8 };
        assert!(of_used(&second) <= most, "{percent} %, seed {seed}: {first:?} {second:?}");
        assert!(second.after.excess_fragments <= first.after.excess_fragments, "{percent} %, seed {seed}");
    }
}

#[test]
fn where_there_is_room_all_files_and_nearly_all_the_free_space_come_together() {
    for seed in 0..8 {
        let mut volume = SimChunkedVolume::new(&aged_to(60, seed));
        let report = optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        volume.check().unwrap();
        let (before, after) = (&report.before, &report.after);
        // What snapshots share in parts cannot be whole in all.
        assert!(after.excess_fragments <= 5, "seed {seed}: {before:?} {after:?}");
        assert!(after.free_space.pieces * 20 <= before.free_space.pieces, "seed {seed}: {before:?} {after:?}");
    }
}

#[test]
fn efficient_and_files_passes_write_less_and_never_leave_files_worse() {
    for seed in 0..6 {
        for mode in [Mode::Efficient, Mode::Files] {
            let mut volume = SimChunkedVolume::new(&aged(seed));
            let report = optimize(&mut volume, &settings(mode), &mut Unobserved).unwrap();
            volume.check().unwrap();
            assert!(report.after.excess_fragments < report.before.excess_fragments, "{mode:?}: {report:?}");
            // Of these volumes nearly every file is in pieces.
            assert!(report.bytes_moved.0 <= report.before.used_bytes.0 / 10 * 15, "{mode:?}: {report:?}");
        }
    }
}

#[test]
fn chosen_files_alone_are_touched() {
    let picture = aged(3);
    let small = picture.layout.files().filter(|file| file.size() < Blocks(60));
    let worst = small.max_by_key(|file| file.fragments()).unwrap();
    let mut volume = SimChunkedVolume::new(&picture);
    let settings = Settings { scope: Scope::File(worst.id()), ..settings(Mode::Full) };
    let report = optimize(&mut volume, &settings, &mut Unobserved).unwrap();
    volume.check().unwrap();
    assert_eq!(report.moves, 1, "{report:?}");
    let after = volume.layout();
    let changed = picture.layout.files().filter(|file| !file.runs().eq(after.file(file.index).unwrap().runs()));
    let size = |file: FileIndex| picture.units.iter().find(|unit| unit.members[0].0 == file).map(|u| u.members.len());
    assert!(changed.count() <= size(worst.index).unwrap_or(3), "only it and who shares with it");
}

#[test]
fn the_budget_is_kept_with_what_is_written_to_empty_chunks() {
    for seed in 0..4 {
        for budget in [1 << 20, 10 << 20, 60 << 20] {
            let mut volume = SimChunkedVolume::new(&aged(seed));
            let settings = Settings { budget: Some(Bytes(budget)), ..settings(Mode::Full) };
            let report = optimize(&mut volume, &settings, &mut Unobserved).unwrap();
            volume.check().unwrap();
            assert!(report.bytes_moved.0 <= budget, "{report:?}");
            assert_eq!(report.stop, Some(Stop::Budget), "{report:?}");
        }
    }
}

#[test]
fn some_space_is_left_to_others_at_any_moment() {
    for seed in 0..6 {
        let mut volume = SimChunkedVolume::new(&aged(seed));
        optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        assert!(volume.least_unclaimed() >= Blocks((4 << 20) / 4096), "{}", volume.least_unclaimed());
    }
}

#[test]
fn whichever_call_fails_no_block_is_lost() {
    let picture = aged(1);
    for call in 1.. {
        let faults = ChunkFaults { fails_at: Some(call), ..ChunkFaults::default() };
        let mut volume = SimChunkedVolume::new(&picture).with_faults(faults, 1);
        let settings = Settings { budget: Some(Bytes(30 << 20)), ..settings(Mode::Full) };
        let ended = optimize(&mut volume, &settings, &mut Unobserved);
        volume.check().unwrap_or_else(|problem| panic!("call {call}: {problem}"));
        if !volume.fault_happened() {
            assert!(ended.is_ok());
            assert!(call > 50, "only {call} calls");
            break;
        }
        assert!(ended.is_err(), "call {call} failed and nobody said so");
    }
}

#[test]
fn other_users_lose_nothing_and_get_all_the_space_they_want() {
    for seed in 0..12 {
        let faults = ChunkFaults {
            others: 30,
            stubborn: if seed % 3 == 0 { 50 } else { 0 },
            hungry_from: (seed % 4 == 0).then_some(200),
            ..ChunkFaults::default()
        };
        let mut volume = SimChunkedVolume::new(&aged(seed)).with_faults(faults, seed);
        let total = volume.total();
        let report = optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        volume.check().unwrap();
        assert_eq!(volume.total(), total);
        if seed % 4 == 0 {
            assert_eq!(report.after.free_space.bytes, Bytes(0), "{report:?}");
        }
    }
}

#[test]
fn a_chunk_that_could_not_be_emptied_is_not_tried_again_as_it_is() {
    for seed in 0..4 {
        let faults = ChunkFaults { stubborn: 100, ..ChunkFaults::default() };
        let mut volume = SimChunkedVolume::new(&aged(seed)).with_faults(faults, seed);
        optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
        volume.check().unwrap();
        assert!(volume.refusals().all(|held| held.windows(2).all(|w| w[1] * 4 <= w[0] * 3)), "as it was");
    }
}

/// Stops at the call with a number.
struct Impatient(Cell<u32>);

impl Observer for Impatient {
    fn cancelled(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

#[test]
fn a_pass_can_be_stopped_anywhere() {
    let picture = aged(2);
    for after in [1, 2, 5, 20, 100, 300] {
        let mut volume = SimChunkedVolume::new(&picture);
        let mut observer = Impatient(Cell::new(after));
        let report = optimize(&mut volume, &settings(Mode::Full), &mut observer).unwrap();
        volume.check().unwrap();
        assert!(report.interrupted && report.stop == Some(Stop::Cancelled), "{report:?}");
        assert!(report.after.excess_fragments <= report.before.excess_fragments);
    }
}

#[test]
fn what_is_foreseen_is_what_happens_where_the_model_is_right() {
    let picture = aged(4);
    let expected = foresee(&picture, &settings(Mode::Full)).unwrap();
    let mut volume = SimChunkedVolume::new(&picture);
    let report = optimize(&mut volume, &settings(Mode::Full), &mut Unobserved).unwrap();
    assert_eq!(expected.after, report.after);
    assert_eq!((expected.moves, expected.bytes), (report.moves, report.bytes_moved));
    assert!(!expected.most_improved.is_empty());
}
