//! Where each file lies, and where it belongs.

use super::input::{FastEnd, FileUse, Placement};
use longrun_layout::{Extent, ExtentSet, FileId, FileIndex, VolumeLayout};
use std::collections::BTreeMap;

/// A file is hot when it is read so many times as often for its size as the average of the volume.
const HOT: f64 = 2.0;
/// All hot files together are at most this part of what is used: with more, the zone is no zone.
const MOST_HOT: u64 = 4;
/// What was changed in so many minutes, at a half-life of seven days, is changed three times a week or more.
const CHANGING: f64 = 4.3;
/// The zone of hot files is longer than these by so many percent: otherwise the last of them find nobody of their length in it.
const SLACK: u64 = 40;
/// Among few files few fit each other: the zone of boot is so many times as long as its files.
const BOOT_SLACK: u64 = 2;
/// With fewer reads in all nothing is known.
const LEAST_READS: f64 = 1000.0;

/// Where a file belongs, from the fast end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Zone {
    /// What is read at boot.
    Boot,
    /// What is read often for its size, and seldom changed.
    Hot,
    /// Everything else.
    Rest,
}

/// A file that can be exchanged: in one piece, movable, and sharing no blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub file: FileIndex,
    pub extent: Extent,
    pub zone: Zone,
    /// Reads, for certain and at most: of few reads some are chance.
    pub least: f64,
    pub most: f64,
    /// The place in the list of boot.
    pub order: usize,
    /// It is changed three times a week or more: its place is beside the free space, not among what stays.
    pub changing: bool,
}

/// The volume as a row of files, and the zones on it.
pub(super) struct Field {
    /// By address.
    pub items: Vec<Item>,
    /// Where the zones are. What lies between two parts of one belongs to it, too.
    pub boot: Extent,
    /// Behind it.
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
        let blocks =
            |zone| -> u64 { items.iter().filter(|item| item.zone == zone).map(|item| item.extent.length.0).sum() };
        let (boot, hot) = (blocks(Zone::Boot), blocks(Zone::Hot));
        let (boot, hot) = zones(&taken(&items), placement.fast, boot * BOOT_SLACK, hot + hot * SLACK / 100);
        Self { items, boot, hot, fast: placement.fast }
    }

    /// The place of a zone; none of the rest.
    pub(super) fn place(&self, zone: Zone) -> Option<Extent> {
        let place = match zone {
            Zone::Boot => self.boot,
            Zone::Hot => self.hot,
            Zone::Rest => return None,
        };
        (place.length.0 > 0).then_some(place)
    }

    /// Whether an item lies where it belongs, or in a faster place.
    pub(super) fn is_home(&self, item: &Item) -> bool {
        let faster = |place: &Extent| match self.fast {
            FastEnd::Beginning => item.extent.end() <= place.end(),
            FastEnd::End => item.extent.start >= place.start,
        };
        self.place(item.zone).is_none_or(|place| faster(&place))
    }
}

fn items(layout: &VolumeLayout, placement: &Placement) -> Vec<Item> {
    let boot: BTreeMap<FileId, usize> = placement.boot.iter().enumerate().map(|(order, file)| (*file, order)).collect();
    let mut items = Vec::new();
    for file in layout.files().filter(|file| file.is_movable() && !file.record.is_directory) {
        let alone = layout.owners(file.index) == 1 && layout.leader_of(file.index).is_none();
        let mut runs = file.runs();
        let Some(first) = runs.next().filter(|_| alone) else { continue };
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
        let order = boot.get(&file.id()).copied();
        items.push(Item {
            file: file.index,
            extent,
            zone: if order.is_some() { Zone::Boot } else { Zone::Rest },
            least: (reads - chance).max(0.0),
            most: reads + chance,
            order: order.unwrap_or(usize::MAX),
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
    let is_hot = |item: &&mut Item| {
        item.zone == Zone::Rest && !item.changing && item.least > 0.0 && density(item) >= HOT * average
    };
    let mut hot: Vec<&mut Item> = items.iter_mut().filter(|item| is_hot(item)).collect();
    hot.sort_unstable_by(|a, b| density(b).total_cmp(&density(a)).then(a.file.cmp(&b.file)));
    let mut room = used / MOST_HOT;
    for item in hot {
        if item.extent.length.0 <= room {
            room -= item.extent.length.0;
            item.zone = Zone::Hot;
        }
    }
}

/// What exchangeable files take, ascending. Free space is not counted: where it lies at the fast end, a zone in it would have nobody who
/// could make room.
fn taken(items: &[Item]) -> Vec<Extent> {
    let space: ExtentSet = items.iter().map(|item| item.extent).collect();
    space.iter().collect()
}

/// The places that hold so many blocks of `space` from the fast end on.
fn zones(space: &[Extent], fast: FastEnd, boot: u64, hot: u64) -> (Extent, Extent) {
    let (none, boot, hot) = (reach(space, fast, 0), reach(space, fast, boot), reach(space, fast, boot + hot));
    let between = |a: u64, b: u64| Extent::new(a.min(b), a.max(b) - a.min(b));
    (between(none, boot), between(boot, hot))
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
