//! The units of efficient mode: which fragments of a file are worth moving.
//!
//! Long fragments stay, and the short ones between them become one unit each, because most of the excess is in the
//! short fragments and most of the bytes are in the long ones.

use crate::unit::{Piece, Unit};

/// Cuts fragmented files into fixed long fragments and movable groups of short ones, so that about `goal` excess
/// fragments are left once each group is whole; whole files are returned as they are.
pub(crate) fn cut(files: Vec<Unit>, goal: u64) -> Vec<Unit> {
    let thresholds = thresholds(&files, goal);
    let mut units = Vec::with_capacity(files.len() + files.len() / 8);
    for (file, threshold) in files.into_iter().zip(thresholds) {
        match threshold {
            Some(threshold) => cut_file(&file, threshold, &mut units),
            None => units.push(file),
        }
    }
    units
}

/// The fragments of a unit: stretches of pieces that continue each other on the volume, with their lengths.
fn stretches(pieces: &[Piece]) -> Vec<(&[Piece], u64)> {
    let chunks = pieces.chunk_by(|a, b| a.end() == b.at);
    chunks.map(|chunk| (chunk, chunk.iter().map(|p| p.length).sum())).collect()
}

/// What remains of a file's excess when fragments from `threshold` blocks stay and the others become one per group.
fn remaining(lengths: &[u64], threshold: u64) -> u64 {
    let mut count: u64 = 0;
    let mut in_group = false;
    for length in lengths {
        let long = *length >= threshold;
        count += u64::from(long || !in_group);
        in_group = !long;
    }
    count.saturating_sub(1)
}

/// What becomes of a file at one threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    threshold: u64,
    /// Excess fragments that it keeps, of all files that lie in its blocks.
    kept: u64,
    /// Blocks to move.
    moved: u64,
}

/// A step from one choice of a file to the next one that keeps more.
struct Relaxation {
    file: usize,
    /// The step's number in its file: they can only be taken one after the other.
    step: usize,
    kept: u64,
    saved: u64,
}

/// The choices for a file, from the one that keeps least excess on, each saving less for a fragment kept than the one
/// before. Thresholds a power of two apart are enough to choose from.
fn choices(file: &Unit) -> Vec<Choice> {
    let lengths: Vec<u64> = stretches(&file.pieces).into_iter().map(|(_, length)| length).collect();
    let longest_below = |limit: u64| lengths.iter().copied().filter(|length| *length < limit).max();
    let powers =
        (0..124_u64).map(|half| (2 + half % 2) << (half / 2)).take_while(|limit| lengths.iter().any(|l| l >= limit));
    let keep_longest = lengths.iter().copied().max().unwrap_or(0);
    let limits = powers.chain([keep_longest, u64::MAX]);
    let mut thresholds: Vec<u64> = limits.map(|limit| longest_below(limit).map_or(0, |longest| longest + 1)).collect();
    thresholds.sort_unstable_by_key(|threshold| std::cmp::Reverse(*threshold));
    thresholds.dedup();
    let mut hull: Vec<Choice> = Vec::new();
    for threshold in thresholds.into_iter().chain([0]) {
        let kept = file.owners * remaining(&lengths, threshold);
        let next = Choice { threshold, kept, moved: lengths.iter().filter(|length| **length < threshold).sum() };
        while let Some(last) = hull.last().copied() {
            let dominated = next.moved <= last.moved && next.kept <= last.kept;
            let before = hull.len().checked_sub(2).and_then(|at| hull.get(at)).copied();
            // The last one lies above the line from the one before it to the next.
            let above = before.is_some_and(|before| {
                let gain = |from: Choice, to: Choice| {
                    (u128::from(from.moved.saturating_sub(to.moved)), u128::from(to.kept.saturating_sub(from.kept)))
                };
                let ((saved, kept), (saved_all, kept_all)) = (gain(before, last), gain(before, next));
                saved * kept_all <= saved_all * kept
            });
            if !dominated && !above {
                break;
            }
            hull.pop();
        }
        if hull.last().is_none_or(|last| next.kept > last.kept && next.moved < last.moved) {
            hull.push(next);
        }
    }
    hull
}

/// For each file that is in pieces the length, in blocks, from which its fragments stay: so that at most `goal` excess
/// fragments are left for the fewest blocks. Where a fragment that is kept saves most blocks, it is kept first.
fn thresholds(files: &[Unit], goal: u64) -> Vec<Option<u64>> {
    let choices = files.iter().map(|file| if !file.fixed && file.fragments() > 1 { choices(file) } else { Vec::new() });
    let choices: Vec<Vec<Choice>> = choices.collect();
    let mut relaxations: Vec<Relaxation> = Vec::new();
    for (file, hull) in choices.iter().enumerate() {
        let steps = hull.iter().zip(hull.iter().skip(1)).enumerate();
        relaxations.extend(steps.map(|(step, (now, next))| Relaxation {
            file,
            step,
            kept: next.kept - now.kept,
            saved: now.moved - next.moved,
        }));
    }
    let worth = |r: &Relaxation| (u128::from(r.saved) << 32) / u128::from(r.kept.max(1));
    relaxations.sort_by_cached_key(|r| (std::cmp::Reverse(worth(r)), r.file, r.step));
    let least: u64 = choices.iter().filter_map(|hull| hull.first()).map(|choice| choice.kept).sum();
    let mut slack = goal.saturating_sub(least);
    let mut taken: Vec<usize> = vec![0; files.len()];
    for relaxation in relaxations {
        if let Some(steps) = taken.get_mut(relaxation.file)
            && *steps == relaxation.step
            && relaxation.kept <= slack
        {
            *steps += 1;
            slack -= relaxation.kept;
        }
    }
    choices.iter().zip(taken).map(|(hull, steps)| hull.get(steps).map(|choice| choice.threshold)).collect()
}

fn cut_file(file: &Unit, threshold: u64, units: &mut Vec<Unit>) {
    let mut group: Vec<Piece> = Vec::new();
    for (pieces, length) in stretches(&file.pieces) {
        if length < threshold {
            group.extend_from_slice(pieces);
            continue;
        }
        if !group.is_empty() {
            units.push(file.part(std::mem::take(&mut group), false));
        }
        units.push(file.part(pieces.to_vec(), true));
    }
    if !group.is_empty() {
        units.push(file.part(group, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::FileIndex;

    fn file(fragments: &[(u64, u64)]) -> Unit {
        let mut logical = 0;
        let pieces = fragments
            .iter()
            .map(|(at, length)| {
                let piece = Piece { logical, at: *at, length: *length };
                logical += length;
                piece
            })
            .collect();
        Unit::new(FileIndex(0), 0, pieces)
    }

    #[test]
    fn short_fragments_between_long_ones_become_one_unit() {
        let mut units = Vec::new();
        cut_file(&file(&[(100, 50), (10, 1), (20, 1), (30, 1), (300, 80), (40, 2)]), 50, &mut units);
        let shape: Vec<(u64, bool)> = units.iter().map(|u| (u.size, u.fixed)).collect();
        assert_eq!(shape, [(50, true), (3, false), (80, true), (2, false)]);
    }

    #[test]
    fn a_file_moves_as_few_blocks_as_the_goal_allows() {
        let files = [file(&[(100, 50), (10, 1), (20, 1), (30, 1), (300, 80)])];
        // Moving the fragments of one block leaves long, group, long: two.
        assert_eq!(thresholds(&files, 2), [Some(2)]);
        // Less needs the fragment of 50 blocks too.
        assert_eq!(thresholds(&files, 1), [Some(51)]);
        assert_eq!(thresholds(&files, 0), [Some(81)]);
        // Without need for less nothing moves.
        assert_eq!(thresholds(&files, 4), [Some(0)]);
    }

    #[test]
    fn a_choice_that_saves_little_for_much_excess_is_none() {
        let choices = choices(&file(&[(100, 50), (10, 1), (20, 1), (30, 1), (300, 80)]));
        let shape: Vec<(u64, u64)> = choices.iter().map(|c| (c.kept, c.moved)).collect();
        assert_eq!(shape, [(0, 133), (1, 53), (2, 3), (4, 0)]);
        let choices = super::choices(&file(&[(100, 1), (10, 90), (300, 1), (500, 90), (700, 2)]));
        let shape: Vec<(u64, u64)> = choices.iter().map(|c| (c.kept, c.moved)).collect();
        assert_eq!(shape, [(0, 184), (4, 0)], "moving the short ones alone joins nothing");
    }

    #[test]
    fn files_that_share_their_blocks_count_as_often() {
        let shared = Unit { owners: 3, ..file(&[(0, 4), (10, 4)]) };
        let files = [file(&[(20, 4), (30, 4)]), shared];
        assert_eq!(thresholds(&files, 1), [Some(0), Some(5)], "the one that counts for three goes first");
    }

    #[test]
    fn files_that_cost_most_are_left_when_the_goal_allows() {
        let files = [file(&[(0, 4), (10, 4)]), file(&[(20, 4), (30, 4), (40, 4)]), file(&[(50, 9)])];
        assert_eq!(thresholds(&files, 0), [Some(5), Some(5), None]);
        assert_eq!(thresholds(&files, 1), [Some(0), Some(5), None], "eight blocks saved for one fragment kept");
        assert_eq!(thresholds(&files, 9), [Some(0), Some(0), None]);
    }
}
