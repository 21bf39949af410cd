//! Whether a volume is worth optimizing, and in which mode. Pure.

use crate::Mode;
use longrun_layout::{Bytes, Fragmentation};
use serde::Serialize;

/// How much there is to gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Worth {
    /// Nothing.
    No,
    /// Too little to be noticeable.
    Little,
    /// Enough to optimize.
    Yes,
}

/// How much there is to gain where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worths {
    /// By defragmenting files.
    pub files: Worth,
    /// By consolidating free space.
    pub space: Worth,
    /// The mode that gets what counts for the fewest bytes; `None` when it is not worth it.
    pub mode: Option<Mode>,
}

/// With one excess fragment in so many bytes, the movements of a disk's arm (8 ms, or 1 MB at 125 MB/s) are 1.5 % of the time that it takes to
/// read everything.
const FAR_APART: Bytes = Bytes(64 << 20);

/// Whether a plan that turns `before` into `after` leaves most of what it could have removed.
#[must_use]
pub fn leaves_most(before: &Fragmentation, after: &Fragmentation) -> bool {
    2 * after.movable_excess() > before.movable_excess()
}

/// Whether a plan that turns `before` into `after` saves an excess fragment for every 64 MiB that it `moves` at least.
#[must_use]
pub fn pays(before: &Fragmentation, after: &Fragmentation, moves: Bytes) -> bool {
    moves.0 <= before.movable_excess().saturating_sub(after.movable_excess()).saturating_mul(FAR_APART.0)
}

/// Judges the figures; `whole` says that the free space was examined too.
#[must_use]
pub fn worth(figures: &Fragmentation, whole: bool) -> Worths {
    let excess = figures.movable_excess();
    let files = match excess {
        0 => Worth::No,
        n if n >= 1000 => Worth::Yes,
        n if figures.used_bytes.0 / n > FAR_APART.0 => Worth::Little,
        // One excess fragment in a hundred files is what an ordinary, well-kept volume has.
        n if n * 100 > figures.files => Worth::Yes,
        _ => Worth::Little,
    };
    let free = figures.free_space;
    let scattered = free.largest_bytes.0.saturating_mul(2) < free.bytes.0;
    let space = match (free.pieces, free.floor_pieces) {
        _ if !whole => Worth::No,
        (pieces, floor) if pieces <= floor * 2 + 2 => Worth::No,
        (pieces, floor) if scattered && pieces > floor * 10 && pieces > 20 => Worth::Yes,
        _ => Worth::Little,
    };
    let mode = match (files, space) {
        (_, Worth::Yes) => Some(Mode::Full),
        // Below that, efficient mode takes a volume for good enough.
        (Worth::Yes, _) if excess * 100 > (figures.files + figures.directories) * 3 => Some(Mode::Efficient),
        (Worth::Yes, _) => Some(Mode::Files),
        _ => None,
    };
    Worths { files, space, mode }
}

/// The mode that is worth its cost on a volume that was read as a whole, if one is.
#[must_use]
pub fn worthwhile_mode(figures: &Fragmentation) -> Option<Mode> {
    worth(figures, true).mode
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::FreeSpace;

    fn figures(excess_fragments: u64) -> Fragmentation {
        let free_space = FreeSpace { bytes: Bytes(0), pieces: 0, largest_bytes: Bytes(0), floor_pieces: 0 };
        Fragmentation { excess_fragments, pinned_excess_fragments: 10, free_space, ..Fragmentation::default() }
    }

    #[test]
    fn a_plan_pays_that_saves_a_fragment_for_every_64_mib() {
        let moves = Bytes(30 * FAR_APART.0);
        assert!(pays(&figures(40), &figures(10), moves));
        assert!(!pays(&figures(40), &figures(11), moves));
        assert!(pays(&figures(40), &figures(40), Bytes(0)));
    }

    #[test]
    fn what_cannot_move_does_not_count_as_left() {
        assert!(!leaves_most(&figures(40), &figures(25)), "half of what could move");
        assert!(leaves_most(&figures(40), &figures(26)));
        assert!(!leaves_most(&figures(10), &figures(10)), "there is nothing to remove");
    }
}
