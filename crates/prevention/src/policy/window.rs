//! Decides what is given back of the windows of a sparse file when the file is closed.

use longrun_layout::Bytes;
use longrun_sys::ByteRange;

/// Shorter stretches are not worth the change of the file's map.
const LEAST: u64 = 1 << 20;
/// A stretch between data that is at least this long goes back although the file gets a fragment more by it: pieces that
/// large are none that anybody calls fragmented.
const LONG: u64 = 4 << 20;

/// A part of a window at the moment of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where in the file.
    pub range: ByteRange,
    /// What is there.
    pub state: StretchState,
}

/// The content of a part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchState {
    /// Data.
    Written,
    /// Nothing yet, and it was a hole before the window was granted: ours.
    Ours,
    /// Allocated but unwritten before the window was granted: another process's own preallocation, which is never taken.
    Theirs,
    /// A hole.
    Hole,
}

/// Which parts of a file's windows go back, in ascending order: only what is ours and still unwritten.
///
/// What lies before the first and behind the last data of a window run goes back for nothing. A stretch between data
/// holds the data before and behind it together physically: giving it back costs a fragment. It goes back when it is long,
/// and otherwise, longest first, until what stays unwritten is no more than what is written: the file was sparse on
/// purpose. `stretches` are ascending and do not overlap; others give an empty answer, for then nothing is known.
#[must_use]
pub fn give_back(stretches: &[Stretch]) -> Vec<ByteRange> {
    let end = |stretch: &Stretch| stretch.range.start.0.checked_add(stretch.range.length.0);
    let ordered = stretches.windows(2).all(|pair| match pair {
        [a, b] => end(a).is_some_and(|end| end <= b.range.start.0),
        _ => false,
    });
    if !ordered || stretches.last().is_some_and(|last| end(last).is_none()) {
        return Vec::new();
    }
    let mut back = Vec::new();
    let mut between = Vec::new();
    let (mut written, mut kept) = (0_u64, 0_u64);
    for (at, stretch) in stretches.iter().enumerate() {
        let length = stretch.range.length.0;
        match stretch.state {
            StretchState::Written => written = written.saturating_add(length),
            StretchState::Ours if length < LEAST => kept = kept.saturating_add(length),
            StretchState::Ours if length >= LONG || !lies_between(stretches, at) => back.push(stretch.range),
            StretchState::Ours => {
                kept = kept.saturating_add(length);
                between.push(stretch.range);
            }
            StretchState::Theirs | StretchState::Hole => {}
        }
    }
    between.sort_by_key(|range| (std::cmp::Reverse(range.length), range.start));
    for range in between {
        if kept <= written {
            break;
        }
        kept -= range.length.0;
        back.push(range);
    }
    back.sort_by_key(|range: &ByteRange| range.start);
    back
}

/// Whether the stretch has data (or another process's preallocation) right before and right behind it.
fn lies_between(stretches: &[Stretch], at: usize) -> bool {
    let holds = |neighbour: Option<&Stretch>, adjoins: &dyn Fn(&Stretch) -> bool| {
        neighbour.is_some_and(|n| matches!(n.state, StretchState::Written | StretchState::Theirs) && adjoins(n))
    };
    let Some(stretch) = stretches.get(at) else { return false };
    let end_of = |range: ByteRange| Bytes(range.start.0.saturating_add(range.length.0));
    let before = at.checked_sub(1).and_then(|before| stretches.get(before));
    holds(before, &|n| end_of(n.range) == stretch.range.start)
        && holds(stretches.get(at + 1), &|n| n.range.start == end_of(stretch.range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use StretchState::{Hole, Ours, Theirs, Written};

    const MIB: u64 = 1 << 20;

    /// What goes back of these, by their places; lengths in MiB.
    fn back(stretches: &[(u64, StretchState)]) -> Vec<usize> {
        let mut at = 0;
        let mut starts = Vec::new();
        let stretches: Vec<Stretch> = stretches
            .iter()
            .map(|(length, state)| {
                starts.push(Bytes(at));
                let range = ByteRange { start: Bytes(at), length: Bytes(length * MIB) };
                at += length * MIB;
                Stretch { range, state: *state }
            })
            .collect();
        give_back(&stretches).iter().filter_map(|range| starts.iter().position(|start| *start == range.start)).collect()
    }

    #[test]
    fn edges_go_back_for_nothing_and_short_stretches_between_data_stay() {
        assert_eq!(back(&[(3, Ours), (4, Written), (2, Ours), (4, Written), (3, Ours)]), [0, 4]);
        assert_eq!(back(&[(16, Ours)]), [0]);
        assert_eq!(back(&[(3, Ours), (4, Hole), (3, Ours)]), [0, 2]);
    }

    #[test]
    fn long_stretches_go_back_and_so_does_what_a_sparse_file_would_keep_too_much_of() {
        assert_eq!(back(&[(8, Written), (5, Ours), (8, Written)]), [1]);
        assert_eq!(back(&[(1, Written), (2, Ours), (1, Written), (3, Ours), (1, Written)]), [3]);
    }

    #[test]
    fn what_others_have_preallocated_never_goes_back() {
        assert_eq!(back(&[(16, Theirs), (1, Written), (16, Theirs)]), Vec::<usize>::new());
        assert_eq!(back(&[(8, Written), (2, Ours), (8, Theirs)]), Vec::<usize>::new());
    }

    #[test]
    fn stretches_that_make_no_sense_give_nothing_back() {
        let at =
            |start, length| Stretch { range: ByteRange { start: Bytes(start), length: Bytes(length) }, state: Ours };
        assert_eq!(give_back(&[at(8 * MIB, 8 * MIB), at(0, 4 * MIB)]), []);
        assert_eq!(give_back(&[at(0, 8 * MIB), at(4 * MIB, 8 * MIB)]), []);
        assert_eq!(give_back(&[at(u64::MAX, u64::MAX)]), []);
    }
}
