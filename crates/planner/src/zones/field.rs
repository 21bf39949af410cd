//! Where each file lies, and where it belongs.

use super::input::{FastEnd, FileUse, Placement};
use longrun_layout::{Extent, ExtentSet, FileIndex, VolumeLayout};

/// A file is hot when it is read so many times as often for its size as the average of the volume.
const HOT: f64 = 2.0;
/// All hot files together are at most this part of what is used: with more, the zone is no zone.
const MOST_HOT: u64 = 4;
/// What was changed in so many minutes, at a half-life of seven days, is changed three times a week or more.
const CHANGING: f64 = 4.3;
/// The zone of hot files is longer than these by so many percent: otherwise the last of them find nobody of their length in it.
const SLACK: u64 = 40;
/// With fewer reads in all nothing is known.
const LEAST_READS: f64 = 1000.0;

/// A file that can be exchanged: in one piece, movable, and sharing no blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub file: FileIndex,
    pub extent: Extent,
    /// It is read often for its size, and seldom changed: it belongs into the zone.
    pub hot: bool,
    /// Reads, for certain and at most: of few reads some are chance.
    pub least: f64,
    pub most: f64,
    /// It is changed three times a week or more: its place is beside the free space, not among what stays.
    pub changing: bool,
}

/// The volume as a row of files, and the zones on it.
pub(super) struct Field {
    /// By address.
    pub items: Vec<Item>,
    /// Where the zone of the hot files is. What lies between two parts of it belongs to it, too.
    pub hot: Extent,
    /// Where the disk is fast.
    pub fast: FastEnd,
}

impl Field {
    pub(super) fn of(layout: &VolumeLayout, placement: &Placement) -> Self {
        let mut items = items(layout, placement);
        let used: u64 = layout.files().map(|file| file.size().0).sum();
        mark_hot(&mut items, placement, used);
        items.sort_unstable_by_key(|item| item.extent);
        let hot: u64 = items.iter().filter(|item| item.hot).map(|item| item.extent.length.0).sum();
        let hot = zone(&taken(&items), placement.fast, hot + hot * SLACK / 100);
        Self { items, hot, fast: placement.fast }
    }

    /// Whether an item lies where it belongs, or in a faster place.
    pub(super) fn is_home(&self, item: &Item) -> bool {
        !item.hot
            || match self.fast {
                FastEnd::Beginning => item.extent.end() <= self.hot.end(),
                FastEnd::End => item.extent.start >= self.hot.start,
            }
    }
}

fn items(layout: &VolumeLayout, placement: &Placement) -> Vec<Item> {
    let mut items = Vec::new();
    for file in layout.files().filter(|file| file.is_movable() && !file.record.is_directory) {
        let may_move = layout.shares_nothing(file.index) && !placement.stay.contains(&file.id());
        let mut runs = file.runs();
        let Some(first) = runs.next().filter(|_| may_move) else { continue };
        let mut extent = first.extent();
        // Holes of a file take no place: adjacent runs are one fragment.
        let in_one_piece = runs.all(|run| {
            let follows = run.physical == extent.end();
            extent.length += run.length;
            follows
        });
        if !in_one_piece {
            continue;
        }
        let FileUse { reads, changes } = placement.uses.get(&file.id()).copied().unwrap_or_default();
        let chance = 1.5 * reads.sqrt();
        items.push(Item {
            file: file.index,
            extent,
            hot: false,
            least: (reads - chance).max(0.0),
            most: reads + chance,
            changing: changes >= CHANGING,
        });
    }
    items
}

/// Marks what is read often for its size and seldom changed, the most often read first.
fn mark_hot(items: &mut [Item], placement: &Placement, used: u64) {
    let all: f64 = placement.uses.values().map(|of| of.reads).sum();
    if all < LEAST_READS || used == 0 {
        return;
    }
    let average = all / used as f64;
    let density = |item: &Item| item.least / item.extent.length.0 as f64;
    let is_hot = |item: &&mut Item| !item.changing && item.least > 0.0 && density(item) >= HOT * average;
    let mut hot: Vec<&mut Item> = items.iter_mut().filter(|item| is_hot(item)).collect();
    hot.sort_unstable_by(|a, b| density(b).total_cmp(&density(a)).then(a.file.cmp(&b.file)));
    let mut room = used / MOST_HOT;
    for item in hot {
        if item.extent.length.0 <= room {
            room -= item.extent.length.0;
            item.hot = true;
        }
    }
}

/// What exchangeable files take, ascending. Free space is not counted: where it lies at the fast end, a zone in it would have nobody who
/// could make room.
fn taken(items: &[Item]) -> Vec<Extent> {
    let space: ExtentSet = items.iter().map(|item| item.extent).collect();
    space.iter().collect()
}

/// The place that holds so many blocks of `space` from the fast end on.
fn zone(space: &[Extent], fast: FastEnd, hot: u64) -> Extent {
    let (none, hot) = (reach(space, fast, 0), reach(space, fast, hot));
    Extent::new(none.min(hot), none.abs_diff(hot))
}

/// How far so many blocks of `space` reach from the fast end.
fn reach(space: &[Extent], fast: FastEnd, blocks: u64) -> u64 {
    let mut rest = blocks;
    let mut reached = 0;
    let mut take = |extent: &Extent| {
        let part = rest.min(extent.length.0);
        reached = if fast == FastEnd::Beginning { extent.start.0 + part } else { extent.end().0 - part };
        rest -= part;
        rest == 0
    };
    _ = match fast {
        FastEnd::Beginning => space.iter().any(&mut take),
        FastEnd::End => space.iter().rev().any(&mut take),
    };
    reached
}
