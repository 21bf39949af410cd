//! The agenda: divides a volume into windows, which are planned one after another, so that memory and time stay
//! bounded.
//!
//! The free space is consolidated in the zone, which consists of the largest segments of the volume. Each window takes the
//! next stretch outside the zone, and as much of the zone as is needed to fill it. The data in this part of the zone
//! moves out, so the zone becomes empty from its start. The unused rest of a slice of the zone belongs to the next
//! window.

use crate::homes::Homes;
use crate::policy::movable_excess;
use crate::regions::{Regions, shares};
use crate::target::outside;
use crate::unit::{Piece, Unit};
use crate::window::Window;
use crate::{Mode, Policy, zone};
use longrun_layout::{Blocks, Extent, ExtentSet, FileIndex, PhysicalBlock, VolumeLayout};
use std::collections::{BTreeMap, BTreeSet};

/// How much of a volume is planned at once: bounds memory and time. A volume of up to two windows is planned as one, and so is one of any
/// size that has no more files than that, in no more than `runs` runs: memory and time grow with both, and not with blocks. Large files
/// that grew beside each other have blocks in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Files, at most: planning time grows a little faster than linearly with them.
    pub files: usize,
    /// Blocks, at most, not counting those of files that reach beyond the window.
    pub blocks: Blocks,
    /// Runs of all files of a volume that is planned as one whatever its size, at most.
    pub runs: usize,
}

impl Default for WindowSize {
    /// 150 000 files and 64 GiB of 4 KiB blocks: about two seconds and 150 MB; or 1.5 million runs and 600 MB.
    fn default() -> Self {
        Self { files: 150_000, blocks: Blocks(1 << 24), runs: 1_500_000 }
    }
}

/// What is left to be planned of a volume.
#[derive(Debug)]
pub(crate) struct Agenda<'a> {
    layout: &'a VolumeLayout,
    homes: Homes<'a>,
    /// Files that have their place, one bit each.
    settled: Vec<u64>,
    /// Files of the rest of a slice that moved within it.
    moved: BTreeMap<u64, Vec<Unit>>,
    free: ExtentSet,
    /// Stretches outside the zone, last one first.
    stretches: Vec<ExtentSet>,
    /// What is left of the zone.
    zone: ExtentSet,
    /// There is one window only.
    alone: bool,
    /// Whether free space is consolidated.
    consolidate: bool,
    size: WindowSize,
}

/// A window with less free space than this, in blocks, borrows as much elsewhere: in a stretch without holes nothing could be moved.
/// Two epochs by default, with blocks of 4 KiB.
const WORKROOM: u64 = 1 << 16;

/// Of what a window borrows, this part may stay in use.
const KEPT: u64 = 64;

/// A window, and the part of it that is to become free.
pub(crate) struct Job {
    pub(crate) window: Window,
    /// What is to become free, ascending.
    pub(crate) zone: Vec<Extent>,
    /// Free space that was borrowed from the rest of the volume: the first part of its largest free piece outside the window.
    pub(crate) workroom: Option<Extent>,
    /// Blocks of that piece, less what was borrowed.
    rest_elsewhere: u64,
    within: ExtentSet,
    /// There is no other window.
    pub(crate) alone: bool,
    /// What regions of the volume can still give.
    pub(crate) regions: Regions,
}

impl Job {
    /// The part of the borrowed room that a few files may keep for which no place is left: the very first part, so that the piece that it is
    /// of stays in one. They lie in the zone then, and a later window has them leave it.
    pub(crate) fn may_keep(&self) -> Option<Extent> {
        self.workroom.map(|room| Extent::new(room.start.0, room.length.0 / KEPT))
    }

    /// The rest of it, which must be free in the end.
    pub(crate) fn must_return(&self) -> Option<Extent> {
        self.workroom.map(|room| Extent::between(room.start + Blocks(room.length.0 / KEPT), room.end()))
    }

    /// Whether the largest free piece of the volume is as large as before when this is free in the window, but for what may be kept.
    pub(crate) fn leaves_the_largest(&self, free: &ExtentSet) -> bool {
        let elsewhere = self.rest_elsewhere + self.must_return().map_or(0, |room| room.length.0);
        let largest = |free: &ExtentSet| free.largest().map_or(0, |piece| piece.length.0).max(elsewhere);
        let kept = self.may_keep().unwrap_or(Extent::new(0, 0));
        let mut without = free.clone();
        without.remove(kept);
        // What was borrowed can lie beside the window's own: before, they are one piece.
        largest(&without) + kept.length.0 >= largest(&self.window.free)
    }
}

impl<'a> Agenda<'a> {
    /// Cuts a volume into windows. In full mode, free space is to be consolidated in a zone.
    pub(crate) fn new(layout: &'a VolumeLayout, policy: &Policy, size: WindowSize) -> Self {
        let consolidate = policy.mode == Mode::Full;
        let free: ExtentSet = layout.free().iter().copied().collect();
        let stays = large_fragments(layout, policy.most_held);
        let segments: Vec<Extent> = layout.segments().into_iter().flat_map(|segment| stays.gaps(segment)).collect();
        let zone: ExtentSet = match consolidate {
            true => {
                let shares = shares(layout.regions(), free.total().0);
                zone::choose_with_shares(&segments, &free, free.total().0, &shares).into_iter().collect()
            }
            false => ExtentSet::new(),
        };
        let homes = Homes::of(layout, zone.clone(), stays);
        let settled = vec![0; layout.file_count().div_ceil(64)];
        let mut agenda = Self {
            layout,
            homes,
            settled,
            moved: BTreeMap::new(),
            free,
            stretches: Vec::new(),
            zone,
            alone: false,
            consolidate,
            size,
        };
        agenda.stretches = agenda.cut(&segments);
        agenda.alone = agenda.stretches.len() < 2;
        agenda
    }

    /// The space outside the zone in stretches of bounded size, last one first. One window, if all fits into one.
    fn cut(&self, segments: &[Extent]) -> Vec<ExtentSet> {
        let zone: Vec<Extent> = self.zone.iter().collect();
        let space = outside(segments, &zone);
        let WindowSize { files: most_files, blocks: Blocks(most_blocks), runs: most_runs } = self.size;
        let are_few = self.homes.len() <= 2 * most_files;
        if are_few && (space.total().0 <= 2 * most_blocks || self.layout.run_count() <= most_runs) {
            return vec![space];
        }
        let mut stretches = Vec::new();
        let mut stretch = ExtentSet::new();
        let mut files = 0;
        for extent in space.iter() {
            let mut at = extent.start.0;
            while at < extent.end().0 {
                // Cut where a file starts: no run reaches across such a border.
                let first = self.homes.before(at);
                let enough = self.homes.at(first + most_files.saturating_sub(files)).unwrap_or(u64::MAX);
                let room = at + most_blocks.saturating_sub(stretch.total().0);
                let beyond = self.homes.before(enough.min(room).max(at + 1));
                let end = self.homes.at(beyond).unwrap_or(u64::MAX).min(extent.end().0);
                stretch.insert(Extent::new(at, end - at));
                files += self.homes.before(end) - first;
                at = end;
                if files >= most_files || stretch.total().0 >= most_blocks {
                    stretches.push(std::mem::take(&mut stretch));
                    files = 0;
                }
            }
        }
        if !stretch.is_empty() {
            stretches.push(stretch);
        }
        stretches.reverse();
        stretches
    }

    fn is_settled(&self, file: FileIndex) -> bool {
        self.settled.get(file.0 as usize / 64).is_some_and(|word| word >> (file.0 % 64) & 1 == 1)
    }

    fn settle(&mut self, file: FileIndex) {
        if let Some(word) = self.settled.get_mut(file.0 as usize / 64) {
            *word |= 1 << (file.0 % 64);
        }
    }

    /// The files at home in an extent, as units.
    fn units_in(&self, extent: Extent, units: &mut Vec<Unit>) {
        let homes = self.homes.within(extent);
        let files = homes.filter(|(_, file)| !self.is_settled(*file)).filter_map(|(_, file)| self.layout.file(file));
        for unit in files.map(|f| Unit::whole(&f, self.layout.owners(f.index))) {
            let stays = |piece: &Piece| self.homes.stays(PhysicalBlock(piece.at));
            if !unit.pieces.iter().any(stays) {
                units.push(unit);
            } else {
                let parts = unit.pieces.split(stays).filter(|part| !part.is_empty());
                units.extend(parts.map(|part| unit.part(part.to_vec(), false)));
            }
        }
        units.extend(self.moved.range(extent.start.0..extent.end().0).flat_map(|(_, units)| units).cloned());
    }

    /// The next window, with the slice of the zone that it needs.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        let stretch = self.stretches.pop()?;
        let mut units = Vec::new();
        for extent in stretch.iter() {
            self.units_in(extent, &mut units);
        }
        let free_in = |extents: &ExtentSet, free: &ExtentSet| -> u64 {
            extents.iter().flat_map(|e| free.overlapping(e)).map(|e| e.length.0).sum()
        };
        let holes = free_in(&stretch, &self.free);
        let last = self.stretches.is_empty();
        let slice = if last { self.zone.clone() } else { self.slice(holes) };
        for extent in slice.iter() {
            self.units_in(extent, &mut units);
        }
        let mut within = stretch;
        within.extend(slice.iter());
        let elsewhere = self.free.iter().flat_map(|piece| within.gaps(piece)).max_by_key(|piece| piece.length);
        let has_room = !self.consolidate || free_in(&within, &self.free) >= WORKROOM;
        let workroom = elsewhere.filter(|_| !has_room).map(|e| Extent::new(e.start.0, e.length.0.min(WORKROOM)));
        let borrowed = workroom.map_or(0, |room| room.length.0);
        let rest_elsewhere = elsewhere.map_or(0, |piece| piece.length.0) - borrowed;
        within.extend(workroom);
        let free: ExtentSet = within.iter().flat_map(|e| self.free.overlapping(e)).collect();
        let window = Window::new(units, free, &within);
        let wanted = window.capacity().saturating_sub(window.used() + borrowed);
        let own: Vec<Extent> = outside(&window.segments, workroom.as_slice()).iter().collect();
        let zone = if last { self.last_zone(&window, &own, wanted) } else { front(&slice, &own, wanted) };
        let regions = Regions::new(self.layout.regions(), &self.free);
        Some(Job { window, zone, workroom, rest_elsewhere, within, alone: self.alone, regions })
    }

    /// The zone of the last window, in its `own` segments. Regions have their share of it, as far as they have none outside the window.
    fn last_zone(&self, window: &Window, own: &[Extent], wanted: u64) -> Vec<Extent> {
        let free: ExtentSet = own.iter().flat_map(|segment| window.free.overlapping(*segment)).collect();
        let outside = |region: &Extent| -> u64 {
            let all: u64 = self.free.overlapping(*region).map(|e| e.length.0).sum();
            all - free.overlapping(*region).map(|e| e.length.0).sum::<u64>().min(all)
        };
        let shares: Vec<(Extent, u64)> = shares(self.layout.regions(), self.free.total().0)
            .into_iter()
            .map(|(region, share)| (region, share.saturating_sub(outside(&region))))
            .collect();
        zone::choose_with_shares(own, &free, wanted, &shares)
    }

    /// The front of the zone with about `wanted` blocks that are in use.
    fn slice(&self, wanted: u64) -> ExtentSet {
        let mut slice = ExtentSet::new();
        let mut used = 0;
        for extent in self.zone.iter() {
            if used >= wanted {
                return slice;
            }
            for (home, file) in self.homes.within(extent) {
                if used >= wanted {
                    slice.insert(Extent::new(extent.start.0, home - extent.start.0));
                    return slice;
                }
                if !self.is_settled(file) {
                    used += self.layout.file(file).map_or(0, |f| f.size().0);
                }
            }
            slice.insert(extent);
        }
        slice
    }

    /// Records the result of a window: whether its zone became free, and the units that changed place, with their files.
    pub(crate) fn finish(
        &mut self,
        job: &Job,
        emptied: bool,
        free: &ExtentSet,
        moved: Vec<(FileIndex, u32, Vec<Piece>)>,
    ) {
        for extent in job.within.iter() {
            self.free.remove(extent);
        }
        self.free.extend(free.iter());
        // The emptied zone is done; what is left of the slice stays in the zone for the next window.
        for extent in job.zone.iter().filter(|_| emptied) {
            self.zone.remove(*extent);
        }
        let elsewhere: BTreeSet<FileIndex> = moved.iter().map(|(file, ..)| *file).collect();
        let zone = &self.zone;
        self.moved.retain(|at, units| {
            units.retain(|unit| !elsewhere.contains(&unit.file));
            !units.is_empty() && zone.extent_at(PhysicalBlock(*at)).is_some()
        });
        for (file, directory, pieces) in moved {
            self.settle(file);
            let at = pieces.first().map_or(0, |p| p.at);
            if self.zone.extent_at(PhysicalBlock(at)).is_some() {
                let owners = self.layout.owners(file);
                self.moved.entry(at).or_default().push(Unit { owners, ..Unit::new(file, directory, pieces) });
            }
        }
    }
}

/// So many excess fragments pay for the splits of one fragment that moves in parts.
const FOR_SPLITS: u64 = 64;

/// Fragments that are longer than what can be held at once move in parts, and are split on their way. Where there is little excess that pays
/// for this they stay where they are, as obstacles do; those that wait for their places would do so in vain: of a plan for one of 29 MiB, 670
/// small files stepped aside, and left 225 free pieces instead of two.
fn large_fragments(layout: &VolumeLayout, most_held: Blocks) -> ExtentSet {
    let large = layout.files().filter(|file| file.is_movable() && file.size() > most_held);
    let fragments: Vec<Extent> =
        large.flat_map(|file| Unit::whole(&file, 1).fragments_longer_than(most_held.0)).collect();
    let are_paid = || fragments.len() as u64 * FOR_SPLITS <= movable_excess(layout).sum();
    // Mostly there are none, and nothing to be counted.
    if fragments.is_empty() || are_paid() { ExtentSet::new() } else { fragments.into_iter().collect() }
}

/// The first `wanted` blocks of a slice that are no obstacles.
fn front(slice: &ExtentSet, segments: &[Extent], wanted: u64) -> Vec<Extent> {
    let mut rest = wanted;
    let mut zone = Vec::new();
    let segments: ExtentSet = segments.iter().copied().collect();
    for extent in slice.iter().flat_map(|e| segments.overlapping(e).collect::<Vec<_>>()) {
        if rest == 0 {
            break;
        }
        let length = extent.length.0.min(rest);
        zone.push(Extent::new(extent.start.0, length));
        rest -= length;
    }
    zone
}
