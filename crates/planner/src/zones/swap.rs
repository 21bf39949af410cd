//! The exchanges: a file goes to its zone, and what lay there goes to its place.
//!
//! What is exchanged for a file is a group of files that lie side by side and are, with the holes between them, exactly as long; or but
//! for one of them, which stays beside the file. They step aside into the largest free piece, the file takes their place, and they take
//! its own. Afterwards every file is in one piece, and the free space is in no more pieces than before: holes between them have
//! vanished, and what they leave of the file's place is one.

use super::field::{Field, Item};
use crate::plan::{Batch, PlannedMove, Step, Why};
use crate::regions::Regions;
use longrun_layout::{Blocks, Extent, ExtentSet, FileMove, PhysicalBlock, VolumeLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Who makes room for a file is read so many times less often, counted against chance.
const LESS: f64 = 2.0;
/// Groups are searched for so many files; single partners for all.
const SEARCHES: usize = 500;
/// Who is read so many times less often still need not be searched further for.
const GOOD: f64 = 8.0;
/// So many files make room for one at most.
const MOST_IN_GROUP: usize = 32;
/// So many neighbours on each side come with a file at most, and all together are so many times as long.
const MOST_NEIGHBOURS: usize = 8;
const MOST_WITH_NEIGHBOURS: u64 = 4;
/// Groups may be so much longer than short files, in blocks.
const MOST_LONGER: u64 = 16;

/// What comes of one look at the volume.
#[derive(Debug, Default)]
pub(super) struct Swaps {
    pub batches: Vec<Batch>,
    pub placed: u64,
    pub moved: Blocks,
    pub without_partner: u64,
    pub over_budget: u64,
}

/// A file, alone or with its neighbours, and who makes room for it.
#[derive(Debug)]
struct Swap {
    own: Vec<usize>,
    to: u64,
    group: Vec<usize>,
    /// Who of them comes back, behind the file.
    stays: Option<usize>,
}

/// Who lies side by side from one item to another, and who of them stays.
#[derive(Clone, Copy, Debug)]
struct Group {
    reads: f64,
    from: usize,
    to: usize,
    stays: Option<usize>,
}

impl Swaps {
    pub(super) fn find(layout: &VolumeLayout, field: &Field, budget: Blocks, epoch: Blocks) -> Self {
        let free: ExtentSet = layout.free().iter().copied().collect();
        let Some(aside) = free.largest() else { return Self::default() };
        let mut swaps = Self::default();
        let mut search = Search::new(layout, field, &free, aside);
        let mut found = Vec::new();
        let mut partners = Partners::of(field, &search, &free, aside);
        for item in wanting(field) {
            if search.busy.contains(&item) {
                continue;
            }
            let Some(swap) = search.swap(field, &mut partners, item) else {
                swaps.without_partner += 1;
                continue;
            };
            let cost = swap.cost(field);
            if swaps.moved.0 + cost > budget.0 {
                swaps.over_budget += 1;
                continue;
            }
            swaps.moved.0 += cost;
            let placed = swap.own.iter().filter(|at| field.items.get(**at).is_some_and(|own| own.hot));
            swaps.placed += placed.count() as u64;
            partners.take(field, &swap);
            search.take(field, &swap);
            found.push(swap);
        }
        swaps.batches = batches(layout, field, aside, epoch.0.max(1), found);
        swaps
    }
}

impl Swap {
    fn group_blocks(&self, field: &Field) -> u64 {
        blocks_of(field, &self.group)
    }

    /// Where it comes from.
    fn from(&self, field: &Field) -> Extent {
        let start = self.own.first().and_then(|at| field.items.get(*at)).map_or(0, |item| item.extent.start.0);
        Extent::new(start, blocks_of(field, &self.own))
    }

    /// Blocks that are moved: who makes room moves twice.
    fn cost(&self, field: &Field) -> u64 {
        blocks_of(field, &self.own) + 2 * self.group_blocks(field)
    }
}

fn blocks_of(field: &Field, items: &[usize]) -> u64 {
    items.iter().filter_map(|at| field.items.get(*at)).map(|item| item.extent.length.0).sum()
}

/// The hot files that do not lie in their zone, in the order in which they come: by their reads for each block.
fn wanting(field: &Field) -> Vec<usize> {
    let mut wanting: Vec<usize> = (0..field.items.len())
        .filter(|at| field.items.get(*at).is_some_and(|item| item.hot && !field.is_home(item)))
        .collect();
    let density = |at: &usize| field.items.get(*at).map_or(0.0, |item| item.least / item.extent.length.0 as f64);
    wanting.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.cmp(b)));
    wanting
}

/// What of the volume is still to be had.
struct Search {
    /// Items that this plan moves.
    busy: BTreeSet<usize>,
    /// Whether between an item and the next one lies nothing but free space that nobody takes.
    joined: Vec<bool>,
    regions: Regions,
    aside: Extent,
    searches: usize,
}

impl Search {
    fn new(layout: &VolumeLayout, field: &Field, free: &ExtentSet, aside: Extent) -> Self {
        let joined = field.items.windows(2).map(|pair| match pair {
            [one, next] => {
                let gap = Extent::between(one.extent.end(), next.extent.start.max(one.extent.end()));
                gap.length.0 == 0 || (free.covers(gap) && gap != aside)
            }
            _ => false,
        });
        let joined = joined.collect();
        let regions = Regions::new(layout.regions(), free);
        Self { busy: BTreeSet::new(), joined, regions, aside, searches: SEARCHES }
    }

    /// Where an item can go, and who makes room for it.
    fn swap(&mut self, field: &Field, partners: &mut Partners, at: usize) -> Option<Swap> {
        let item = field.items.get(at)?;
        let length = item.extent.length.0;
        let swap = if let Some(hole) = partners.hole(length) {
            Swap { own: vec![at], to: hole, group: Vec::new(), stays: None }
        } else if let Some(partner) = partners.single(length, most_read(item)) {
            let to = field.items.get(partner)?.extent.start.0;
            Swap { own: vec![at], to, group: vec![partner], stays: None }
        } else {
            self.searches = self.searches.checked_sub(1)?;
            self.group(field, partners, item, at).or_else(|| self.with_neighbours(field, partners, item, at))?
        };
        let steps_aside = swap.group_blocks(field) <= self.aside.length.0;
        (steps_aside && self.regions_allow(field, &swap)).then_some(swap)
    }

    /// The file with its neighbours, for one that is as long as they are together.
    fn with_neighbours(&self, field: &Field, partners: &Partners, item: &Item, at: usize) -> Option<Swap> {
        let may_come = |at: usize| {
            let neighbour = field.items.get(at).filter(|_| !self.busy.contains(&at));
            neighbour.is_some_and(|neighbour| {
                !neighbour.changing && neighbour.extent.intersection(&partners.place).is_none()
            })
        };
        let touch = |at: usize| matches!(field.items.get(at..at + 2), Some([a, b]) if a.extent.end() == b.extent.start);
        let mut best: Option<(u64, std::ops::RangeInclusive<usize>, usize)> = None;
        for from in
            (0..=at).rev().take(MOST_NEIGHBOURS).take_while(|from| *from == at || touch(*from) && may_come(*from))
        {
            let mut length =
                (from..at).filter_map(|at| field.items.get(at)).map(|item| item.extent.length.0).sum::<u64>();
            for to in (at..field.items.len()).take(MOST_NEIGHBOURS) {
                if to > at && !(touch(to - 1) && may_come(to)) {
                    break;
                }
                length += field.items.get(to)?.extent.length.0;
                if length > MOST_WITH_NEIGHBOURS * item.extent.length.0
                    || best.as_ref().is_some_and(|best| best.0 <= length)
                {
                    break;
                }
                if let Some(partner) = partners.single(length, most_read(item)) {
                    best = Some((length, from..=to, partner));
                }
            }
        }
        let (_, own, partner) = best?;
        let to = field.items.get(partner)?.extent.start.0;
        Some(Swap { own: own.collect(), to, group: vec![partner], stays: None })
    }

    /// A group that is exactly as long, and seldom read.
    fn group(&self, field: &Field, partners: &Partners, item: &Item, at: usize) -> Option<Swap> {
        let most = most_read(item);
        let mut best: Option<Group> = None;
        for to in partners.row.clone() {
            let Some(group) = self.group_to(field, partners, item.extent.length.0, to) else { continue };
            if group.reads <= most && best.is_none_or(|best| group.reads < best.reads) {
                best = Some(group);
            }
            if best.is_some_and(|best| best.reads <= most / GOOD) {
                break;
            }
        }
        let Group { from, to, stays, .. } = best?;
        let start = field.items.get(from)?.extent.start.0;
        Some(Swap { own: vec![at], to: start, group: (from..=to).collect(), stays })
    }

    /// Those that lie side by side up to the item `to`, and are `length` long, or but for one.
    fn group_to(&self, field: &Field, partners: &Partners, length: u64, to: usize) -> Option<Group> {
        let end = field.items.get(to)?.extent.end().0;
        let mut reads = 0.0;
        for from in (partners.row.start..=to).rev().take(MOST_IN_GROUP) {
            let first = field.items.get(from)?;
            let follows = from == to || self.joined.get(from).copied().unwrap_or(false);
            let span = end - first.extent.start.0;
            if !follows || !self.may_leave(first, from, partners) || span > 2 * length.max(MOST_LONGER) {
                return None;
            }
            reads += first.most;
            let Some(longer) = span.checked_sub(length) else { continue };
            if longer == 0 {
                return Some(Group { reads, from, to, stays: None });
            }
            let of_length = |at: &usize| field.items.get(*at).filter(|item| item.extent.length.0 == longer);
            if let Some(stays) = (from..=to).find(|at| of_length(at).is_some()) {
                let stays_reads = of_length(&stays).map_or(0.0, |item| item.most);
                return Some(Group { reads: reads - stays_reads, from, to, stays: Some(stays) });
            }
        }
        None
    }

    fn may_leave(&self, item: &Item, at: usize, partners: &Partners) -> bool {
        !item.hot && partners.place.contains(&item.extent) && !self.busy.contains(&at)
    }

    /// Whether each region of the volume keeps what it must, step by step.
    fn regions_allow(&self, field: &Field, swap: &Swap) -> bool {
        if self.regions.is_empty() {
            return true;
        }
        let from = swap.from(field);
        let mut regions = self.regions.clone();
        let mut step = |from: u64, to: u64, length: u64| {
            let allowed = regions.allow(from, to, length);
            regions.moved(from, to, length);
            allowed
        };
        let blocks = swap.group_blocks(field);
        (blocks == 0 || step(swap.to, self.aside.start.0, blocks))
            && step(from.start.0, swap.to, from.length.0)
            && (blocks == 0 || step(self.aside.start.0, from.start.0, blocks.min(from.length.0)))
    }

    fn take(&mut self, field: &Field, swap: &Swap) {
        let from = swap.from(field);
        self.regions.moved(from.start.0, swap.to, from.length.0);
        self.regions.moved(swap.to, from.start.0, swap.group_blocks(field));
        // A hole that was taken is none between two items any more.
        if swap.group.is_empty() {
            let behind = field.items.partition_point(|other| other.extent.start.0 < swap.to);
            if let Some(joined) = behind.checked_sub(1).and_then(|before| self.joined.get_mut(before)) {
                *joined = false;
            }
        }
        self.busy.extend(&swap.own);
        self.busy.extend(&swap.group);
    }
}

/// The reads that those who make room for a file may have together.
fn most_read(item: &Item) -> f64 {
    item.least / LESS
}

/// Who could make room in a zone.
struct Partners {
    place: Extent,
    /// The items that lie in it, at least in part.
    row: std::ops::Range<usize>,
    /// By length: the thousandths of their reads, and which.
    singles: BTreeMap<u64, BTreeSet<(u64, usize)>>,
    /// Free pieces by length.
    holes: BTreeMap<u64, BTreeSet<u64>>,
}

impl Partners {
    fn of(field: &Field, search: &Search, free: &ExtentSet, aside: Extent) -> Self {
        let place = field.hot;
        let from = field.items.partition_point(|item| item.extent.end() <= place.start);
        let to = field.items.partition_point(|item| item.extent.start < place.end());
        let mut partners = Self { place, row: from..to.max(from), singles: BTreeMap::new(), holes: BTreeMap::new() };
        for at in partners.row.clone() {
            if let Some(item) = field.items.get(at).filter(|item| search.may_leave(item, at, &partners)) {
                partners.singles.entry(item.extent.length.0).or_default().insert(key(item, at));
            }
        }
        for hole in free.iter().filter(|hole| *hole != aside && place.contains(hole)) {
            partners.holes.entry(hole.length.0).or_default().insert(hole.start.0);
        }
        partners
    }

    fn hole(&self, length: u64) -> Option<u64> {
        self.holes.get(&length)?.first().copied()
    }

    fn single(&self, length: u64, most_read: f64) -> Option<usize> {
        let (reads, at) = self.singles.get(&length)?.first()?;
        (*reads as f64 / 1000.0 <= most_read).then_some(*at)
    }

    fn take(&mut self, field: &Field, swap: &Swap) {
        if swap.group.is_empty() {
            self.holes.values_mut().for_each(|starts| _ = starts.remove(&swap.to));
            self.holes.retain(|_, starts| !starts.is_empty());
        }
        for at in &swap.group {
            let Some(item) = field.items.get(*at) else { continue };
            if let Some(of_length) = self.singles.get_mut(&item.extent.length.0) {
                of_length.remove(&key(item, *at));
                if of_length.is_empty() {
                    self.singles.remove(&item.extent.length.0);
                }
            }
        }
        // Holes inside of a group are taken with it.
        let end = swap.group.last().and_then(|at| field.items.get(*at)).map_or(swap.to, |item| item.extent.end().0);
        self.holes.values_mut().for_each(|starts| starts.retain(|start| !(swap.to..end).contains(start)));
        self.holes.retain(|_, starts| !starts.is_empty());
    }
}

fn key(item: &Item, at: usize) -> (u64, usize) {
    ((item.most * 1000.0) as u64, at)
}

/// The moves of the exchanges, in batches that each use the room aside once.
fn batches(layout: &VolumeLayout, field: &Field, aside: Extent, epoch: u64, swaps: Vec<Swap>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut swaps = swaps.into_iter().peekable();
    while swaps.peek().is_some() {
        let (mut out, mut into, mut back) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at, mut moved) = (aside.start.0, 0);
        while let Some(swap) = swaps.next_if(|swap| {
            let fits = at + swap.group_blocks(field) <= aside.end().0;
            fits && (moved == 0 || moved + swap.cost(field) <= epoch)
        }) {
            moved += swap.cost(field);
            let from = swap.from(field);
            let mut home = from.start.0;
            for (index, other) in swap.group.iter().filter_map(|index| Some((*index, field.items.get(*index)?))) {
                go(layout, other, other.extent.start.0, at, Why::StepAside, &mut out);
                if swap.stays == Some(index) {
                    go(layout, other, at, swap.to + from.length.0, Why::MakeRoom, &mut into);
                } else {
                    go(layout, other, at, home, Why::MakeRoom, &mut back);
                    home += other.extent.length.0;
                }
                at += other.extent.length.0;
            }
            for own in swap.own.iter().filter_map(|own| field.items.get(*own)) {
                let (start, offset) = (own.extent.start.0, own.extent.start.0 - from.start.0);
                go(layout, own, start, swap.to + offset, Why::Place, &mut into);
            }
        }
        if into.is_empty() {
            // No swap is longer than the room aside; this one would never come to its turn.
            _ = swaps.next();
            continue;
        }
        let mut steps = Vec::new();
        for part in [out, into, back].into_iter().filter(|part| !part.is_empty()) {
            steps.extend(part);
            steps.push(Step::Barrier);
        }
        batches.push(Batch { steps, saves: 0 });
    }
    batches
}

/// The moves of a whole file from one place to another.
fn go(layout: &VolumeLayout, item: &Item, from: u64, to: u64, why: Why, steps: &mut Vec<Step>) {
    let Some(file) = layout.file(item.file) else { return };
    for run in file.runs() {
        let offset = run.physical.0.saturating_sub(item.extent.start.0);
        let step = FileMove {
            file: item.file,
            logical: run.logical,
            source: PhysicalBlock(from + offset),
            target: PhysicalBlock(to + offset),
            length: run.length,
        };
        steps.push(Step::Move(PlannedMove { step, why }));
    }
}
