//! Efficient mode's units: which fragments of a file are worth moving.
//!
//! Long fragments stay, the short ones between them become one unit each: most of the excess sits in the short ones,
//! most of the bytes in the long ones.

use crate::unit::{Piece, Unit};

/// The share of the excess that may remain, as a divisor: one in 22, a little under 5 %, since not every unit finds its place.
const REMAINING: u64 = 22;

/// Cuts fragmented files into fixed long fragments and movable groups of short ones; whole files are returned as they are.
pub(crate) fn cut(files: Vec<Unit>) -> Vec<Unit> {
    let excess: u64 = files.iter().map(|f| f.fragments().saturating_sub(1)).sum();
    let Some(threshold) = threshold(&files, excess / REMAINING) else { return files };
    let mut units = Vec::with_capacity(files.len() + files.len() / 8);
    for file in files {
        if file.fragments() <= 1 || file.fixed {
            units.push(file);
        } else {
            cut_file(&file, threshold, &mut units);
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

/// The lowest threshold, a fragment length in blocks, that leaves at most `goal` excess fragments; `None` when nothing
/// is fragmented.
fn threshold(files: &[Unit], goal: u64) -> Option<u64> {
    let fragmented: Vec<Vec<u64>> = files
        .iter()
        .filter(|f| !f.fixed && f.fragments() > 1)
        .map(|f| stretches(&f.pieces).into_iter().map(|(_, length)| length).collect())
        .collect();
    let mut lengths: Vec<u64> = fragmented.iter().flatten().map(|l| l + 1).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let left = |threshold: u64| -> u64 { fragmented.iter().map(|l| remaining(l, threshold)).sum() };
    let at = lengths.partition_point(|t| left(*t) > goal);
    lengths.get(at).or(lengths.last()).copied()
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
        assert_eq!(threshold(&files, 2), Some(2));
        // Less needs the fragment of 50 blocks too.
        assert_eq!(threshold(&files, 1), Some(51));
    }
}
