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

/// Judges the figures; `whole` says that the free space was examined too.
#[must_use]
pub fn worth(figures: &Fragmentation, whole: bool) -> Worths {
    let excess = figures.excess_fragments.saturating_sub(figures.pinned_excess_fragments);
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
