//! Efficient mode: about 95 % of the excess for the fewest bytes; free space never gets worse.

use crate::board::Board;
use crate::cut::cut;
use crate::keep::keep;
use crate::plan::Why;
use crate::schedule::{Limits, Scheduled, Scheduler};
use crate::target::{Packer, Packing, Target, outside};
use crate::unit::{Unit, UnitIndex};
use crate::window::Window;
use longrun_layout::Extent;
use std::collections::BTreeSet;

/// Attempts to find a place for everything; what found none is left where it is in the next one.
const ATTEMPTS: usize = 6;

/// Plans a window of whole files; `None` when nothing pays.
pub(crate) fn plan(window: &Window, limits: Limits) -> Option<Scheduled> {
    if good_enough(window) {
        return None;
    }
    let mut cut =
        Window { segments: window.segments.clone(), units: cut(window.units.clone()), free: window.free.clone() };
    let target = place(&mut cut)?;
    let why = |unit: UnitIndex| match cut.units.get(unit) {
        Some(u) if u.fragments() > 1 => Why::Defragment,
        _ => Why::MakeRoom,
    };
    let scheduled = Scheduler::new(&cut.units, &target, &cut.free, limits, why).run();
    scheduled.improves(window).then_some(scheduled)
}

/// Finds a place for every unit; those that find none stay where they are.
fn place(window: &mut Window) -> Option<Target> {
    let protected: Vec<Extent> = window.free.largest().into_iter().collect();
    for _ in 0..ATTEMPTS {
        let (target, homeless) = attempt(window, &protected);
        if homeless.is_empty() {
            return (!target.starts.is_empty()).then_some(target);
        }
        leave(&mut window.units, &homeless);
    }
    None
}

/// Hysteresis: what one pass leaves behind is no reason for another. Fewer than three excess fragments per hundred files,
/// and no file in many pieces.
fn good_enough(window: &Window) -> bool {
    const MANY: u64 = 32;
    window.excess() * 100 <= 3 * window.units.len() as u64 && window.units.iter().all(|u| u.fragments() < MANY)
}

/// Fixes units where they are, each fragment for itself.
fn leave(units: &mut Vec<Unit>, homeless: &[UnitIndex]) {
    let homeless: BTreeSet<UnitIndex> = homeless.iter().copied().collect();
    let mut all = Vec::with_capacity(units.len() + homeless.len());
    for (index, unit) in units.drain(..).enumerate() {
        if !homeless.contains(&index) {
            all.push(unit);
            continue;
        }
        for pieces in unit.pieces.chunk_by(|a, b| a.end() == b.at) {
            let mut fixed = Unit::new(unit.file, unit.directory, pieces.to_vec());
            fixed.fixed = true;
            all.push(fixed);
        }
    }
    *units = all;
}

fn attempt(window: &Window, protected: &[Extent]) -> (Target, Vec<UnitIndex>) {
    let space = outside(&window.segments, protected);
    let mut board = Board::new(space.iter());
    let mut placed = BTreeSet::new();
    for (unit, start) in keep(&window.units, &space) {
        let size = window.units.get(unit).map_or(0, |u| u.size);
        if board.occupy(start, size, unit) {
            placed.insert(unit);
        }
    }
    let movers: Vec<UnitIndex> = (0..window.units.len()).filter(|u| !placed.contains(u)).collect();
    let packing = Packing { large: 1, unkeep: 0, merge_limit: 0 };
    let mut packer = Packer::new(&window.units, board, &movers, packing);
    let homeless = packer.place_large();
    // Where fragments leave, holes appear: not more pieces of free space than before, with a margin for units that do
    // not reach their place in the end.
    let pieces = window.free.pieces();
    packer.gather_holes(pieces - pieces.min(1 + pieces / 50));
    let (target, left, _) = packer.finish(homeless);
    (target, left)
}
