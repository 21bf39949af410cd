//! Recipes of aged layouts, of any size, without a disk: inputs for the planner.
//!
//! Each recipe is a pure function of seed and size. [`server`], [`office`] and [`media`] replay a history through an
//! allocator. [`scattered`] chooses the state of every block of a tiny volume at random. [`many_files`] lays out up to
//! 100 million files in one sweep.

use super::ager::{Ager, FIRST_INODE, Sizes, block_size};
use fastrand::Rng;
use longrun_layout::{
    Blocks, Extent, ExtentSet, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, PhysicalBlock, Pin, Run, VolumeLayout,
};

/// The root directory's inode, parent of the recipes' directories.
pub(super) const ROOT: u32 = 2;

/// 4 GiB in blocks of 4 KiB: the size for which the recipes' figures are stated.
pub const FOUR_GIB: Blocks = Blocks(1 << 20);

/// A server at 60 %: files of all sizes, logs appended side by side, much deleted. At 4 GiB about 3900 excess
/// fragments and 8000 free pieces.
#[must_use]
pub fn server(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (40.0 * scale).ceil() as u32, 400);
    let all = Sizes { least: 1, most: 2048 };
    let small = Sizes { least: 1, most: 32 };
    fill(&mut ager, 0.95, |rng, _| if rng.u8(..10) == 0 { all.draw(rng) } else { small.draw(rng) });
    thin_out(&mut ager, 0.60, u64::MAX);
    fill(
        &mut ager,
        0.78,
        |rng, n| if n % 8 == 0 { Sizes { least: 4, most: 16_384 }.draw(rng) } else { small.draw(rng) },
    );
    append_logs(&mut ager, 24, 0.90, (900.0 * scale) as u64, &[1, 2, 4, 8, 16]);
    thin_out(&mut ager, 0.60, u64::MAX);
    ager.layout()
}

/// An office file server at 96.5 %: 27 000 files at 4 GiB, about 12 000 excess fragments and 7700 free pieces.
#[must_use]
pub fn office(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (40.0 * scale).ceil() as u32, 128);
    let documents = Sizes { least: 1, most: 170 };
    fill(&mut ager, 0.975, |rng, _| documents.draw(rng));
    for _ in 0..2 {
        thin_out(&mut ager, 0.80, u64::MAX);
        fill(&mut ager, 0.983, |rng, _| documents.draw(rng));
    }
    // Temporary and lock files, of which offices have many, leave small holes.
    thin_out(&mut ager, 0.963, 16);
    ager.layout()
}

/// A media store at 80 %: 1000 files at 4 GiB, about 550 excess fragments and 540 free pieces.
#[must_use]
pub fn media(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (12.0 * scale).ceil() as u32, 32);
    let files = Sizes { least: 4, most: 6000 };
    fill(&mut ager, 0.96, |rng, _| files.draw(rng));
    for _ in 0..3 {
        thin_out(&mut ager, 0.65, u64::MAX);
        fill(&mut ager, 0.92, |rng, _| files.draw(rng));
    }
    thin_out(&mut ager, 0.80, u64::MAX);
    ager.layout()
}

/// A tiny volume without any pattern: every file a few runs anywhere, holes, pinned files, islands. Full to a random
/// degree. For `total` up to some ten thousand blocks.
#[must_use]
pub fn scattered(seed: u64, total: Blocks) -> VolumeLayout {
    let mut rng = Rng::with_seed(seed);
    let mut free: ExtentSet = [Extent::new(1, total.0.saturating_sub(1))].into_iter().collect();
    for _ in 0..rng.u64(0..4) {
        free.remove(Extent::new(rng.u64(..total.0), rng.u64(1..4)));
    }
    let wanted = (free.total().0 as f64 * rng.f64() * 0.98) as u64;
    let least_free = free.total().0.saturating_sub(wanted);
    let longest_run = rng.u64(1..=(total.0 / 16).max(1));
    let mut builder = LayoutBuilder::new(block_size(), total);
    let mut inode = FIRST_INODE;
    while free.total().0 > least_free {
        let mut runs = Vec::new();
        let mut logical = 0;
        for _ in 0..rng.u64(1..=5) {
            let at = PhysicalBlock(rng.u64(..total.0));
            let Some(piece) = free.extent_at(at) else { continue };
            let length = (piece.end() - at).0.min(rng.u64(1..=longest_run)).min(free.total().0 - least_free);
            if length == 0 {
                break;
            }
            logical += if rng.u8(..8) == 0 { rng.u64(1..10) } else { 0 };
            runs.push(Run::new(logical, at.0, length));
            logical += length;
            free.remove(Extent::new(at.0, length));
        }
        if runs.is_empty() {
            continue;
        }
        let id = FileId { inode: InodeNumber(inode), generation: rng.u32(1..) };
        let is_directory = rng.u8(..16) == 0;
        let pin = (rng.u8(..24) == 0).then_some(Pin::Immutable);
        let directory = if rng.u8(..8) == 0 { NO_DIRECTORY } else { ROOT + rng.u32(..3) };
        let copies = if rng.u8(..12) == 0 { rng.u64(1..4) } else { 0 };
        for copy in 0..=copies {
            let id = FileId { inode: InodeNumber(inode + copy), ..id };
            let file = builder.push_file(id, directory, is_directory, pin, &mut runs.clone());
            if copies > 0 {
                builder.shares_blocks(file);
            }
        }
        inode += 1 + copies;
    }
    for extent in free.iter() {
        builder.push_free(extent);
    }
    built(builder)
}

/// `files` files of a few blocks each with one in ten fragmented, on a volume that is full to about 85 %: made in one
/// sweep over the volume, for planning at sizes that no history can be replayed for. About 48 bytes a file.
#[must_use]
pub fn many_files(seed: u64, files: u32) -> VolumeLayout {
    let mut rng = Rng::with_seed(seed);
    let total = sweep_end(&mut Rng::with_seed(seed), files);
    let mut builder = LayoutBuilder::new(block_size(), Blocks(total));
    sweep(&mut rng, files, &mut |event| match event {
        Swept::File(index, mut runs) => {
            let id = FileId { inode: InodeNumber(FIRST_INODE + u64::from(index)), generation: 1 + index % 1000 };
            builder.push_file(id, ROOT + index / 64, index % 512 == 0, None, &mut runs);
        }
        Swept::Free(extent) => builder.push_free(extent),
        Swept::End(_) => {}
    });
    built(builder)
}

enum Swept {
    File(u32, Vec<Run>),
    Free(Extent),
    End(u64),
}

/// The size of the volume that [`sweep`] fills: the same dice thrown once more, with nothing kept.
fn sweep_end(rng: &mut Rng, files: u32) -> u64 {
    let mut end = 0;
    sweep(rng, files, &mut |event| {
        if let Swept::End(at) = event {
            end = at;
        }
    });
    end
}

/// Lays out files and gaps from the front of the volume to its end. A handful of files stay open at a time, so that a
/// fragmented file's next run lies behind its neighbours' runs.
fn sweep(rng: &mut Rng, files: u32, emit: &mut dyn FnMut(Swept)) {
    const OPEN: usize = 48;
    const FLEX_BLOCKS: u64 = 32_768 * 16;
    const TABLES: u64 = 8224;
    let sizes = Sizes { least: 1, most: 96 };
    let gaps = Sizes { least: 1, most: 160 };
    let mut open: Vec<(u32, u64, Vec<Run>)> = Vec::with_capacity(OPEN);
    let (mut at, mut next_tables, mut started) = (TABLES, FLEX_BLOCKS, 0);
    while started < files || !open.is_empty() {
        if at >= next_tables {
            at += TABLES;
            next_tables += FLEX_BLOCKS;
        }
        if rng.u8(..8) == 0 {
            let gap = gaps.draw(rng);
            emit(Swept::Free(Extent::new(at, gap)));
            at += gap;
        }
        let resume = open.len() >= OPEN || started >= files || rng.u8(..16) == 0;
        if resume && !open.is_empty() {
            let (index, logical, mut runs) = open.swap_remove(rng.usize(..open.len()));
            let length = sizes.draw(rng);
            runs.push(Run::new(logical, at, length));
            at += length;
            if rng.u8(..3) == 0 && started < files {
                open.push((index, logical + length, runs));
            } else {
                emit(Swept::File(index, runs));
            }
        } else if started < files {
            let length = sizes.draw(rng);
            let runs = vec![Run::new(0, at, length)];
            at += length;
            if rng.u8(..10) == 0 && open.len() < OPEN {
                open.push((started, length, runs));
            } else {
                emit(Swept::File(started, runs));
            }
            started += 1;
        }
    }
    emit(Swept::End(at));
}

/// Creates files until the volume is full to `share`.
fn fill(ager: &mut Ager, share: f64, mut size: impl FnMut(&mut Rng, u32) -> u64) {
    let mut n = 0;
    while ager.fill() < share {
        let blocks = size(&mut ager.rng, n);
        let directory = ager.rng.u32(..);
        ager.create(directory, blocks);
        n += 1;
    }
}

/// Deletes files of at most `longest` blocks at random until the volume is full to `share` only.
fn thin_out(ager: &mut Ager, share: f64, longest: u64) {
    let mut handles = ager.handles();
    ager.rng.shuffle(&mut handles);
    for handle in handles {
        if ager.fill() <= share {
            break;
        }
        if ager.size(handle) <= longest {
            ager.delete(handle);
        }
    }
}

/// Logs that grow side by side, synchronously, so that each append is allocated on its own.
fn append_logs(ager: &mut Ager, logs: u32, share: f64, appends: u64, sizes: &[u64]) {
    let handles: Vec<usize> = (0..logs).map(|directory| ager.create(directory, 1)).collect();
    for n in 0..appends {
        if ager.fill() >= share {
            break;
        }
        let Some(&handle) = handles.get(n as usize % handles.len().max(1)) else { break };
        let blocks = sizes.get(ager.rng.usize(..sizes.len())).copied().unwrap_or(1);
        ager.append(handle, blocks);
    }
}

/// The finished layout of a recipe, whose files and free pieces lie inside the volume by construction.
pub(super) fn built(builder: LayoutBuilder) -> VolumeLayout {
    builder.build().unwrap_or_else(|error| unreachable!("a recipe laid blocks outside its volume: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, excess fragments, free pieces, and the used share in percent.
    fn figures(layout: &VolumeLayout) -> [u64; 4] {
        let f = layout.fragmentation();
        let share = f.used_bytes.0 * 100 / layout.block_size().to_bytes(layout.total_blocks()).0;
        [f.files, f.excess_fragments, f.free_space.pieces, share]
    }

    fn check(name: &str, recipe: fn(u64, Blocks) -> VolumeLayout, expected: [(u64, u64); 4]) {
        for seed in 0..3 {
            let got = figures(&recipe(seed, FOUR_GIB));
            let inside = got.iter().zip(expected).all(|(value, (low, high))| (low..=high).contains(value));
            assert!(inside, "{name}, seed {seed}: files, excess, pieces, percent used = {got:?}, not in {expected:?}");
        }
    }

    #[test]
    fn the_recipes_age_as_their_namesakes_do() {
        check("server", server, [(10_000, 25_000), (2000, 5000), (5000, 10_000), (60, 61)]);
        check("office", office, [(23_000, 28_000), (5000, 15_000), (5000, 9000), (96, 96)]);
        check("media", media, [(900, 1300), (350, 900), (400, 1000), (80, 80)]);
    }

    #[test]
    fn a_recipe_is_a_function_of_its_seed() {
        let total = Blocks(1 << 16);
        for recipe in [server, office, media, scattered] {
            assert_eq!(recipe(7, total), recipe(7, total));
            assert_ne!(recipe(7, total), recipe(8, total));
        }
        assert_eq!(many_files(1, 5000), many_files(1, 5000));
    }

    #[test]
    fn a_million_files_are_laid_out_without_a_history() {
        let layout = many_files(3, 1_000_000);
        let [files, excess, pieces, share] = figures(&layout);
        assert_eq!(layout.file_count(), 1_000_000);
        assert!(files > 990_000 && excess > 100_000 && pieces > 100_000 && (80..90).contains(&share));
        assert!(layout.files().all(|f| f.is_movable() || f.record.is_directory), "no recipe contradicts itself");
    }
}
