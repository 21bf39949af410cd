//! Efficient mode's units: which fragments of a file are worth moving.
//!
//! Long fragments stay, the short ones between them become one unit each: most of the excess sits in the short ones,
//! most of the bytes in the long ones.

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

/// For each file that is in pieces the length, in blocks, from which its fragments stay: the lowest common one that
/// leaves at most `goal` excess fragments, and one step lower for the files that cost most as long as the goal allows.
fn thresholds(files: &[Unit], goal: u64) -> Vec<Option<u64>> {
    let lengths_of = |f: &Unit| stretches(&f.pieces).into_iter().map(|(_, length)| length).collect();
    let in_pieces = files.iter().map(|f| (!f.fixed && f.fragments() > 1).then(|| lengths_of(f)));
    let in_pieces: Vec<Option<Vec<u64>>> = in_pieces.collect();
    let mut steps: Vec<u64> = in_pieces.iter().flatten().flatten().map(|l| l + 1).collect();
    steps.push(0);
    steps.sort_unstable();
    steps.dedup();
    let left = |threshold: u64| -> u64 { in_pieces.iter().flatten().map(|l| remaining(l, threshold)).sum() };
    let at = steps.partition_point(|t| left(*t) > goal).min(steps.len() - 1);
    let step = |at: usize| steps.get(at).copied().unwrap_or(0);
    let (threshold, lower) = (step(at), step(at.saturating_sub(1)));
    let mut slack = goal.saturating_sub(left(threshold));
    let moved = |l: &[u64], threshold: u64| -> u64 { l.iter().filter(|l| **l < threshold).sum() };
    // Blocks saved per excess fragment kept, most first.
    let mut relaxed: Vec<(u64, u64, usize)> = Vec::new();
    for (index, lengths) in in_pieces.iter().enumerate() {
        let Some(lengths) = lengths else { continue };
        let kept = remaining(lengths, lower) - remaining(lengths, threshold);
        let saved = moved(lengths, threshold) - moved(lengths, lower);
        if saved > 0 {
            relaxed.push((saved / kept.max(1), kept, index));
        }
    }
    relaxed.sort_unstable_by_key(|(worth, kept, index)| (std::cmp::Reverse(*worth), *kept, *index));
    let mut thresholds: Vec<Option<u64>> = in_pieces.iter().map(|l| l.as_ref().map(|_| threshold)).collect();
    for (_, kept, index) in relaxed {
        if kept <= slack
            && let Some(file) = thresholds.get_mut(index)
        {
            *file = Some(lower);
            slack -= kept;
        }
    }
    thresholds
}

fn cut_file(file: &Unit, threshold: u64, units: &mut Vec<Unit>) {
    let mut group: Vec<Piece> = Vec::new();
    for (pieces, length) in stretches(&file.pieces) {
        if length < threshold {
            group.extend_from_slice(pieces);
            continue;
        }
        if !group.is_empty() {
            units.push(Unit::new(file.file, file.directory, std::mem::take(&mut group)));
        }
        let mut long = Unit::new(file.file, file.directory, pieces.to_vec());
        long.fixed = true;
        units.push(long);
    }
    if !group.is_empty() {
        units.push(Unit::new(file.file, file.directory, group));
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
    fn the_threshold_is_the_lowest_that_reaches_the_goal() {
        let files = [file(&[(100, 50), (10, 1), (20, 1), (30, 1), (300, 80)])];
        // Moving the fragments of one block leaves long, group, long: two.
        assert_eq!(thresholds(&files, 2), [Some(2)]);
        // Less needs the fragment of 50 blocks too.
        assert_eq!(thresholds(&files, 1), [Some(51)]);
    }

    #[test]
    fn files_that_cost_most_are_left_when_the_goal_allows() {
        let files = [file(&[(0, 4), (10, 4)]), file(&[(20, 4), (30, 4), (40, 4)]), file(&[(50, 9)])];
        assert_eq!(thresholds(&files, 0), [Some(5), Some(5), None]);
        assert_eq!(thresholds(&files, 1), [Some(0), Some(5), None], "eight blocks saved for one fragment kept");
        assert_eq!(thresholds(&files, 9), [Some(0), Some(0), None]);
    }
}
