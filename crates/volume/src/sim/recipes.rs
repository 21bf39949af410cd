//! Seeded recipes of aged layouts: what a planner must cope with, at any size, without a disk.
//!
//! Each recipe is a pure function of seed and size. [`server`], [`office`] and [`media`] replay a history through an
//! allocator; [`scattered`] throws a dice for every block of a tiny volume; [`many_files`] lays out up to 100 million
//! files in one sweep.

use super::ager::{Ager, FIRST_INODE, Sizes, block_size};
use fastrand::Rng;
use longrun_layout::{
    Blocks, Extent, ExtentSet, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, PhysicalBlock, Pin, Run, VolumeLayout,
};

/// The root directory's inode, parent of the recipes' directories.
pub(super) const ROOT: u32 = 2;

/// 4 GiB in blocks of 4 KiB: the size for which the recipes' figures are stated.
pub const FOUR_GIB: Blocks = Blocks(1 << 20);

/// A server at 60 %: files of all sizes, logs appended side by side, much deleted. At 4 GiB about 2600 excess
/// fragments and 7000 free pieces.
#[must_use]
pub fn server(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (40.0 * scale).ceil() as u32);
    let all = Sizes { least: 1, most: 2048 };
    let small = Sizes { least: 1, most: 64 };
    fill(&mut ager, 0.95, |rng, _| if rng.u8(..8) == 0 { all.draw(rng) } else { small.draw(rng) });
    thin_out(&mut ager, 0.55);
    fill(&mut ager, 0.86, |rng, n| if n % 8 == 0 { Sizes { least: 4, most: 16_384 }.draw(rng) } else { all.draw(rng) });
    append_logs(&mut ager, 24, 0.93, (2200.0 * scale) as u64, &[1, 2, 4, 8, 16]);
    thin_out(&mut ager, 0.60);
    ager.layout()
}

/// An office file server at 96.5 %: 25 000 files at 4 GiB, above 5000 excess fragments, about 7000 free pieces.
#[must_use]
pub fn office(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (40.0 * scale).ceil() as u32);
    let documents = Sizes { least: 1, most: 320 };
    fill(&mut ager, 0.97, |rng, _| documents.draw(rng));
    for _ in 0..2 {
        thin_out(&mut ager, 0.80);
        fill(&mut ager, 0.965, |rng, _| documents.draw(rng));
    }
    ager.layout()
}

/// A media store at 80 %: 1000 files at 4 GiB, about 480 excess fragments, about 800 free pieces.
#[must_use]
pub fn media(seed: u64, total: Blocks) -> VolumeLayout {
    let scale = total.0 as f64 / FOUR_GIB.0 as f64;
    let mut ager = Ager::new(seed, total.0, (12.0 * scale).ceil() as u32);
    let files = Sizes { least: 8, most: 6000 };
    fill(&mut ager, 0.96, |rng, _| files.draw(rng));
    thin_out(&mut ager, 0.65);
    fill(&mut ager, 0.93, |rng, _| files.draw(rng));
    thin_out(&mut ager, 0.80);
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
        builder.push_file(id, directory, is_directory, pin, &mut runs);
        inode += 1;
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
    let gaps = Sizes { least: 1, most: 64 };
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

/// Deletes files at random until the volume is full to `share` only.
fn thin_out(ager: &mut Ager, share: f64) {
    let mut handles = ager.handles();
    ager.rng.shuffle(&mut handles);
    for handle in handles {
        if ager.fill() <= share {
            break;
        }
        ager.delete(handle);
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

    fn show(name: &str, layout: &VolumeLayout) {
        let f = layout.fragmentation();
        let used = f.used_bytes.0 as f64 / (layout.total_blocks().0 * 4096) as f64;
        println!("{name}: {f:?} used {used:.3} segments {}", layout.segments().len());
    }
    #[test]
    fn figures() {
        for seed in 0..2 {
            show("server", &server(seed, FOUR_GIB));
            show("office", &office(seed, FOUR_GIB));
            show("media", &media(seed, FOUR_GIB));
            show("scattered", &scattered(seed, Blocks(1000)));
        }
        let t = std::time::Instant::now();
        show("many", &many_files(0, 1_000_000));
        println!("{:?}", t.elapsed());
    }
}
