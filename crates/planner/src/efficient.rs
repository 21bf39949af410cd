//! Efficient mode: removes 90 to 95 % of the excess for the fewest bytes, and never fragments the free space further.

use crate::cut::cut;
use crate::keep::keep;
use crate::plan::Why;
use crate::policy::movable_excess;
use crate::regions::Regions;
use crate::schedule::{Limits, Scheduled, Scheduler};
use crate::target::{Packer, Packing, Target, outside};
use crate::unit::UnitIndex;
use crate::window::{Window, divided};
use crate::{Goal, zone};
use longrun_layout::{Extent, VolumeLayout};

/// Attempts to find a place for everything; what found none is left where it is in the next one.
const ATTEMPTS: usize = 6;

/// The last of the excess may cost this part of the used bytes, in percent.
const FAIR_PERCENT: u64 = 45;

/// What a plan sets out for, relative to what the volume has now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// Excess that shall remain at most, as (part, whole).
    excess: (u64, u64),
    /// Excess that may remain where less would cost much.
    tolerable: (u64, u64),
    /// Free pieces that there may be, as (part, whole).
    pieces: (u64, u64),
    /// The largest free piece, at least: more than now when an earlier plan of the pass ended with it in use.
    largest: u64,
}

impl Aim {
    /// A little under 5 % of the excess, or under 10 %, since not every unit finds its place; free space not worse
    /// than now.
    pub(crate) const FIRST: Self = Self { excess: (1, 22), tolerable: (2, 21), pieces: (1, 1), largest: 0 };

    /// What to set out for on a volume; `None` when it is good enough.
    ///
    /// Without a goal there is hysteresis: what one pass leaves behind is no reason for another. Fewer than three excess
    /// fragments per hundred files, and no file in many pieces, are good enough.
    pub(crate) fn of(layout: &VolumeLayout, goal: Option<Goal>) -> Option<Self> {
        const MANY: u64 = 32;
        let now = Goal::efficient(layout, 0);
        let (excess, worst) = movable_excess(layout).fold((0, 0), |(sum, most), e| (sum + e, e.max(most)));
        let Some(goal) = goal else {
            let good = excess * 100 <= 3 * layout.file_count() as u64 && worst < MANY;
            return (!good).then_some(Self::FIRST);
        };
        let reached = excess <= goal.excess_fragments
            && now.free_pieces <= goal.free_pieces
            && now.largest_free >= goal.largest_free;
        let left = (goal.excess_fragments.min(excess), excess.max(1));
        (!reached).then_some(Self {
            excess: left,
            tolerable: left,
            pieces: (goal.free_pieces.min(now.free_pieces), now.free_pieces.max(1)),
            largest: goal.largest_free.0,
        })
    }

    /// The free pieces that a window may have in the end.
    fn free_pieces(self, window: &Window) -> usize {
        let pieces = window.free.pieces() as u64 * self.pieces.0 / self.pieces.1;
        usize::try_from(pieces).unwrap_or(usize::MAX)
    }
}

/// What came of trying to leave a given excess.
enum Attempt {
    OverBudget,
    /// There is no room for it, or not without more free pieces.
    NoRoom,
    /// Nothing to move.
    Nothing,
    Plan(Scheduled),
}

/// Plans a window of whole files; `None` when nothing pays.
///
/// Where the last of the excess costs so much that half of what the fragmented files hold would have to move, and 45 % of all used
/// bytes, less is aimed at, down to what is tolerable. Where the budget does not cover what is aimed at, less is aimed at too:
/// by bisection, the least excess that can be reached with it. A plan that is cut off by its budget instead would pay for preparations
/// that come to nothing. The same where there is no room for what is tolerable, as long as half of the excess goes: repeated plans that
/// gain less would never come to rest, and full mode helps there.
pub(crate) fn plan(window: &Window, aim: Aim, regions: &Regions, limits: Limits) -> Option<Scheduled> {
    let excess = window.excess();
    let share = |(part, whole): (u64, u64)| excess * part / whole;
    let to_leave = |remaining, limits| attempt_to_leave(window, remaining, aim, regions, limits);
    let (aimed, tolerable) = (share(aim.excess), share(aim.tolerable));
    if aimed < tolerable {
        let fair = (window.in_pieces() / 2).max(window.used() / 100 * FAIR_PERCENT);
        let fair = Limits { budget: limits.budget.min(fair), ..limits };
        match to_leave(aimed, fair) {
            Attempt::Plan(scheduled) => return Some(scheduled),
            Attempt::Nothing => return None,
            Attempt::OverBudget | Attempt::NoRoom => {}
        }
        if let Attempt::Plan(scheduled) = to_leave(tolerable, fair) {
            return bisect(aimed, tolerable, 3, |remaining| to_leave(remaining, fair)).or(Some(scheduled));
        }
    }
    match to_leave(tolerable, limits) {
        Attempt::Plan(scheduled) => Some(scheduled),
        Attempt::Nothing => None,
        Attempt::OverBudget => bisect(tolerable, excess, 8, |remaining| to_leave(remaining, limits)),
        Attempt::NoRoom => bisect(tolerable, excess / 2, 8, |remaining| to_leave(remaining, limits)),
    }
}

/// The plan that leaves least, between what is too costly and what is known to be affordable.
fn bisect(
    mut too_costly: u64,
    mut affordable: u64,
    steps: u32,
    to_leave: impl Fn(u64) -> Attempt,
) -> Option<Scheduled> {
    let mut best = None;
    for _ in 0..steps {
        let middle = too_costly.midpoint(affordable);
        if middle == too_costly {
            break;
        }
        match to_leave(middle) {
            Attempt::OverBudget | Attempt::NoRoom => too_costly = middle,
            Attempt::Nothing => affordable = middle,
            Attempt::Plan(scheduled) => {
                best = Some(scheduled);
                affordable = middle;
            }
        }
    }
    best
}

fn attempt_to_leave(window: &Window, remaining: u64, aim: Aim, regions: &Regions, limits: Limits) -> Attempt {
    let units = cut(window.units.clone(), remaining);
    let mut cut = Window { segments: window.segments.clone(), units, free: window.free.clone() };
    let Some(target) = place(&mut cut, aim) else { return Attempt::NoRoom };
    if target.starts.is_empty() {
        return Attempt::Nothing;
    }
    if target.cost(&cut.units) > limits.budget {
        return Attempt::OverBudget;
    }
    let why = |unit: UnitIndex| match cut.units.get(unit) {
        Some(u) if u.fragments() > 1 => Why::Defragment,
        _ => Why::MakeRoom,
    };
    // Steps aside come on top of the target's cost: without a limit it shows whether the budget covers them.
    let unlimited = Limits { budget: u64::MAX, ..limits };
    let scheduled = Scheduler::new(&cut.units, &target, &cut.free, regions, unlimited, why);
    let scheduled = scheduled.anywhere_but(protected(window, aim).unwrap_or_default(), aim.free_pieces(window)).run();
    if scheduled.moved > limits.budget {
        Attempt::OverBudget
    } else if scheduled.improves(window) {
        Attempt::Plan(scheduled)
    } else {
        Attempt::NoRoom
    }
}

/// The free space that no unit is sent to: the largest piece, or what shall be it.
fn protected(window: &Window, aim: Aim) -> Option<Vec<Extent>> {
    let largest = window.free.largest()?;
    if largest.length.0 >= aim.largest {
        return Some(vec![largest]);
    }
    Some(zone::choose(&window.segments, &window.free, aim.largest.min(window.free.total().0)))
}

/// Finds a place for every unit; those that find none stay where they are.
fn place(window: &mut Window, aim: Aim) -> Option<Target> {
    let protected = protected(window, aim)?;
    let pieces = aim.free_pieces(window);
    for _ in 0..ATTEMPTS {
        let (target, homeless) = attempt(window, &protected, pieces);
        if homeless.is_empty() {
            return Some(target);
        }
        window.units = divided(std::mem::take(&mut window.units), &homeless, u64::MAX);
    }
    None
}

fn attempt(window: &Window, protected: &[Extent], pieces: usize) -> (Target, Vec<UnitIndex>) {
    let space = outside(&window.segments, protected);
    let packing = Packing { large: 1, unkeep: 0, merge_limit: 0 };
    let mut packer = Packer::around(&window.units, &space, &keep(&window.units, &space), packing);
    let homeless = packer.place_large();
    // Where fragments leave, holes appear: not more pieces of free space than before, with a margin for units that do
    // not reach their place in the end.
    packer.consolidate_holes(pieces - pieces.min(1 + pieces / 50));
    let (target, left, _) = packer.finish(homeless);
    (target, left)
}
