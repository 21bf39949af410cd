//! Full mode: makes every file contiguous, and leaves the free space in as few pieces as the obstacles allow.

use crate::agenda::Job;
use crate::keep::keep;
use crate::plan::Why;
use crate::schedule::{Limits, Scheduled, Scheduler};
use crate::target::{Packer, Packing, Target, outside, place_at_edge};
use crate::unit::{Unit, UnitIndex};
use crate::window::Window;
use crate::zone;
use longrun_layout::{Extent, ExtentSet};

/// Windows with more units than this are packed in the first way that is good enough.
const MANY_UNITS: usize = 50_000;

/// What an excess fragment or a free piece less is worth: 16 MiB of 4 KiB blocks.
const BLOCKS_PER_GAIN: u64 = 4096;

/// Attempts to find a place for everything. A unit that found none is cut for the next one, or stays where it is.
const ATTEMPTS: u32 = 6;

/// A target layout and what it is worth.
struct Attempt {
    target: Target,
    /// Units that found no place.
    nowhere: Vec<UnitIndex>,
    pieces: u64,
    /// Blocks of the largest free piece.
    largest: u64,
    cost: u64,
}

/// What a plan for a whole volume may cost in free space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Nothing: there are no more pieces, and the largest is no smaller.
    Strict,
    /// A piece for many excess fragments. Blocks of extent trees vanish when files become whole, and the next round joins the pieces.
    Pieces,
}

/// Plans the `window` of a job, some of whose units may be cut or fixed, so that its zone becomes free; `None` when there is nothing to
/// gain.
pub(crate) fn plan(job: &Job, window: &Window, limits: Limits, terms: Terms) -> Option<Scheduled> {
    let (zone, regions) = (job.zone.as_slice(), &job.regions);
    // The free space of one window says little about the volume's: its part of the zone can be in more pieces than its holes were, and
    // joins the parts of others. But the largest piece of the volume must not shrink, but for a little of what was borrowed of it.
    let improves = |scheduled: &Scheduled| {
        if job.alone {
            return scheduled.improves(window) || (terms == Terms::Pieces && scheduled.pays_in_pieces(window));
        }
        let returned = job.must_return().is_none_or(|room| scheduled.free.covers(room));
        returned && job.leaves_the_largest(&scheduled.free) && scheduled.gains(window)
    };
    let used = window.used();
    let kept_free: Vec<Extent> = zone.iter().copied().chain(job.workroom).collect();
    let space = outside(&window.segments, &kept_free);
    let mut best = best(job, window, &space)?;
    // Others would wait for ever for the places of units that have nowhere to go. Parts as large as the largest room come first (on ext4 there
    // are 2 GiB between groups with metadata), then those for which there is none are halved.
    let mut divided = None;
    let mut most = space.largest().map_or(0, |room| room.length.0);
    for _ in 1..ATTEMPTS {
        if best.nowhere.is_empty() {
            break;
        }
        let next = divided.as_ref().unwrap_or(window).dividing(&best.nowhere, most);
        best = self::best(job, &next, &space)?;
        divided = Some(next);
        most /= 2;
    }
    let window = divided.as_ref().unwrap_or(window);
    let worth = worth(window, &best);
    if best.target.starts.is_empty() || best.cost > worth {
        return None;
    }
    let why = |unit: UnitIndex| why(window.units.get(unit), zone);
    let scheduler = |limits| {
        Scheduler::new(&window.units, &best.target, &window.free, regions, limits, why).with_pocket_in(&kept_free)
    };
    let plain = scheduler(limits).run();
    let is_good = improves(&plain);
    if plain.complete || (is_good && best.cost > limits.budget) {
        return is_good.then_some(plain);
    }
    // Stuck.
    let aside = (worth - best.cost).min(used / 2);
    let roomy = scheduler(Limits { aside, ..limits }).with_room_in(&kept_free).run();
    // What it gains beyond the plain schedule must be worth what it moves beyond that.
    let more = roomy.gain(window).saturating_sub(plain.gain(window));
    let pays = roomy.complete && roomy.moved <= plain.moved + more * BLOCKS_PER_GAIN;
    Some(if pays || !is_good { roomy } else { plain }).filter(improves)
}

fn why(unit: Option<&Unit>, zone: &[Extent]) -> Why {
    let Some(unit) = unit else { return Why::FillGap };
    if unit.fragments() > 1 {
        return Why::Defragment;
    }
    let first = unit.first_block();
    let at = zone.partition_point(|z| z.end() <= first);
    let in_zone = zone.get(at).is_some_and(|z| z.start <= first);
    if in_zone { Why::FillGap } else { Why::MakeRoom }
}

/// The ways to pack that are tried, the plainest first.
fn packings(used: u64) -> Vec<Packing> {
    let mut list = Vec::new();
    for (large, unkeep) in [(256, 25), (256, 4), (2048, 8), (2048, 3), (1 << 16, 4), (1 << 16, 2)] {
        list.push(Packing { large, unkeep: used / unkeep, merge_limit: 1 << 16 });
    }
    list
}

/// The best of several ways to pack a window.
fn best(job: &Job, window: &Window, space: &ExtentSet) -> Option<Attempt> {
    let kept = keep(&window.units, space);
    let goal = zone::few(job.zone.len()) as u64;
    let mut best: Option<Attempt> = None;
    for packing in packings(window.used()) {
        let attempt = attempt(job, window, space, &kept, packing);
        // Good enough is within a few pieces of the floor; among those the cheapest, else the fewest pieces.
        let key = |a: &Attempt| (a.pieces.max(goal), a.cost);
        if best.as_ref().is_none_or(|b| key(&attempt) < key(b)) {
            best = Some(attempt);
        }
        // With very many units one way to pack is as good as another.
        if window.units.len() > MANY_UNITS && best.as_ref().is_some_and(|b| b.pieces <= goal) {
            break;
        }
    }
    best
}

fn attempt(job: &Job, window: &Window, space: &ExtentSet, kept: &[(UnitIndex, u64)], packing: Packing) -> Attempt {
    let zone = job.zone.as_slice();
    let mut packer = Packer::around(&window.units, space, kept, packing);
    let homeless = packer.place_large();
    packer.fill_exactly();
    let (mut target, left, holes) = packer.finish(homeless);
    let nowhere = place_at_edge(&window.units, left, zone, job.may_keep(), &window.segments, &mut target);
    let cost = target.cost(&window.units);
    let pieces = (holes + zone.len() + nowhere.len()) as u64;
    let largest = zone.iter().map(|z| z.length.0).max().unwrap_or(0);
    Attempt { target, nowhere, pieces, largest, cost }
}

/// The blocks that a plan may move, steps aside included. Hysteresis: every fragment and free piece that it saves is worth 16 MiB of 4
/// KiB blocks, or a few times the average fragmented file, and every block by which the largest piece grows one
/// block. Without this a second pass moved 65 % of a volume for nothing.
fn worth(window: &Window, attempt: &Attempt) -> u64 {
    let fragmented: Vec<u64> = window.units.iter().filter(|u| u.fragments() > 1).map(|u| u.size).collect();
    let average = fragmented.iter().sum::<u64>() / (fragmented.len() as u64).max(1);
    let saved_pieces = (window.free.pieces() as u64).saturating_sub(attempt.pieces);
    let grown = attempt.largest.saturating_sub(window.free.largest().map_or(0, |e| e.length.0));
    window.excess() * BLOCKS_PER_GAIN.max(4 * average) + saved_pieces * BLOCKS_PER_GAIN + grown
}
