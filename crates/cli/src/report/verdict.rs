//! Whether a volume is worth optimizing, in one sentence.

use crate::text::{count, counted};
use longrun_layout::Fragmentation;
use longrun_planner::{Mode, Worths, worth};
use serde::Serialize;

pub use longrun_planner::Worth;

/// The judgement and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The judgement.
    pub worth: Worth,
    /// The mode that gets what counts for the fewest bytes; `None` when it is not worth it.
    pub mode: Option<Mode>,
    /// For people.
    pub sentence: String,
}

/// Judges the figures; `whole` says that the free space was examined too.
pub fn judge(figures: &Fragmentation, whole: bool) -> Verdict {
    let excess = figures.movable_excess();
    let Worths { files, space, mode } = worth(figures, whole);
    let free = figures.free_space;
    let worth = files.max(space);
    let opening = match worth {
        Worth::Yes => "Worth optimizing",
        Worth::Little => "Little to gain",
        Worth::No => "Not worth optimizing",
    };
    let mut reasons = vec![match excess {
        0 => "no movable file is fragmented".to_owned(),
        n => format!("the files have {}", counted(n, "excess fragment", "excess fragments")),
    }];
    if !whole {
        reasons.push("the fragmentation of the free space was not examined".to_owned());
    } else if space == Worth::No {
        reasons.push("the free space is about as compact as the immovable areas allow".to_owned());
    } else {
        let pieces = counted(free.pieces, "piece", "pieces");
        reasons.push(format!("the free space is in {pieces} instead of {}", count(free.floor_pieces)));
    }
    Verdict { worth, mode, sentence: format!("{opening}: {}.", reasons.join(", and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{Bytes, FreeSpace};

    #[test]
    fn the_verdict_follows_from_the_figures() {
        let judged = |files, excess, pinned, pieces, floor, largest_of_100| {
            let free_space =
                FreeSpace { bytes: Bytes(100), pieces, largest_bytes: Bytes(largest_of_100), floor_pieces: floor };
            let figures = Fragmentation {
                files,
                excess_fragments: excess,
                pinned_excess_fragments: pinned,
                free_space,
                ..Fragmentation::default()
            };
            let verdict = judge(&figures, true);
            (verdict.worth, verdict.mode)
        };
        assert_eq!(judged(25_000, 590, 0, 1358, 1, 4), (Worth::Yes, Some(Mode::Full)));
        assert_eq!(judged(25_000, 0, 0, 1, 1, 100), (Worth::No, None));
        assert_eq!(judged(25_000, 7, 7, 22, 10, 40), (Worth::No, None), "what must stay cannot gain");
        assert_eq!(judged(25_000, 100, 0, 4, 2, 40), (Worth::Little, None));
        assert_eq!(judged(25_000, 0, 0, 5000, 4, 20), (Worth::Yes, Some(Mode::Full)));
        assert_eq!(judged(25_000, 0, 0, 5000, 4, 80), (Worth::Little, None), "nearly all of it is in one piece");
        assert_eq!(judged(1_000_000, 5000, 0, 1, 1, 100), (Worth::Yes, Some(Mode::Files)));
        assert_eq!(judged(1_000_000, 50_000, 0, 100, 1, 90), (Worth::Yes, Some(Mode::Efficient)));
    }

    #[test]
    fn few_fragments_in_large_files_are_little_to_gain() {
        let figures = |files, excess, gigabytes: u64| Fragmentation {
            files,
            excess_fragments: excess,
            used_bytes: Bytes(gigabytes << 30),
            ..Fragmentation::default()
        };
        assert_eq!(judge(&figures(10, 12, 1), true).worth, Worth::Little);
        assert_eq!(judge(&figures(10, 20, 1), true).worth, Worth::Yes);
        assert_eq!(judge(&figures(10_000, 2000, 1000), true).worth, Worth::Yes, "too many, wherever they are");
    }

    #[test]
    fn an_unprivileged_verdict_says_what_it_could_not_see() {
        let figures = Fragmentation { files: 10, ..Fragmentation::default() };
        let verdict = judge(&figures, false);
        assert_eq!(verdict.worth, Worth::No);
        insta::assert_snapshot!(verdict.sentence);
    }
}
