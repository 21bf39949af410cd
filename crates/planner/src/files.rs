//! Files mode: moves fragmented files into free places that are large enough, and nothing else.

use crate::board::Board;
use crate::plan::Why;
use crate::regions::Regions;
use crate::schedule::{Limits, Scheduled, Scheduler};
use crate::target::Target;
use crate::unit::UnitIndex;
use crate::window::Window;

/// Plans a window of whole files: each of `chosen` (all when `None`) that is fragmented moves into the smallest free
/// piece that holds it, most gain per byte first. `None` when no file finds a place.
pub(crate) fn plan(window: &Window, chosen: Option<UnitIndex>, regions: &Regions, limits: Limits) -> Option<Scheduled> {
    let mut movers: Vec<UnitIndex> = window
        .units
        .iter()
        .enumerate()
        .filter(|(index, u)| u.fragments() > 1 && chosen.is_none_or(|c| c == *index))
        .map(|(index, _)| index)
        .collect();
    let gain_per_block = |index: &UnitIndex| {
        window.units.get(*index).map(|u| std::cmp::Reverse((((u.fragments() - 1) * u.owners) << 24) / u.size.max(1)))
    };
    movers.sort_by_key(gain_per_block);
    let mut board = Board::new(window.free.iter());
    let mut target = Target::default();
    for index in movers {
        let Some(unit) = window.units.get(index) else { continue };
        if let Some(hole) = board.best_fit(unit.size) {
            board.occupy(hole.start.0, unit.size, index);
            target.starts.insert(index, hole.start.0);
        }
    }
    if target.starts.is_empty() {
        return None;
    }
    Some(Scheduler::new(&window.units, &target, &window.free, regions, limits, |_| Why::Defragment).run())
}
