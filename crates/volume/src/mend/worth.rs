//! Chooses the parts of a file that are worth moving. Pure.
//!
//! Owns the criterion: the number of bytes moved for each fragment that the file has less afterwards. Never examines
//! free space: moved data is assumed to end up in one piece, however long.

use longrun_layout::{BlockSize, Bytes, LogicalRange, Run};

/// A fragment of a file.
pub(super) struct Fragment {
    /// In blocks of the file.
    pub(super) logical: LogicalRange,
    pub(super) length: Bytes,
    /// Whether the one before it moves in the cheapest choice in which this one stays, and in that in which it moves.
    before_moves: [bool; 2],
}

/// The fragments of `runs`, in blocks of the file, that shall move so that the file has the fewest that this is worth: moving
/// costs no more than `worth` bytes for each fragment that there is less. So short ones come together, while a long one beside
/// them stays, and what grows on is not moved as a whole each time.
pub(crate) fn worth_moving(runs: &[Run], block_size: BlockSize, worth: Bytes) -> Vec<LogicalRange> {
    let mut fragments = fragments(runs, block_size);
    // The least cost, in bytes, of all up to here when the last one stays, and when it moves. One that stays is a fragment, and
    // so is one that moves unless the one before it moves, too.
    let one = u128::from(worth.0);
    let (mut stays, mut moves) = (0, u128::MAX / 2);
    for fragment in &mut fragments {
        fragment.before_moves = [moves < stays, moves < stays + one];
        (stays, moves) = (stays.min(moves) + one, moves.min(stays + one) + u128::from(fragment.length.0));
    }
    let mut moving = moves < stays;
    let mut chosen: Vec<LogicalRange> = Vec::new();
    for Fragment { logical, before_moves: [if_it_stays, if_it_moves], .. } in fragments.into_iter().rev() {
        if moving {
            chosen.push(logical);
        }
        moving = if moving { if_it_moves } else { if_it_stays };
    }
    chosen.reverse();
    chosen
}

/// Neighbours on the volume are one, as in all counts of fragments.
pub(super) fn fragments(runs: &[Run], block_size: BlockSize) -> Vec<Fragment> {
    let pieces = runs.chunk_by(|a, b| a.extent().end() == b.physical);
    let fragment = |pieces: &[Run]| {
        let (first, last) = pieces.first().zip(pieces.last())?;
        Some(Fragment {
            logical: LogicalRange::between(first.logical, last.logical_end()),
            length: pieces.iter().map(|run| block_size.to_bytes(run.length)).sum(),
            before_moves: [false; 2],
        })
    };
    pieces.filter_map(fragment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{Blocks, LogicalBlock, PhysicalBlock, count_fragments};
    use proptest::prelude::*;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    /// Fragments of these lengths in KiB, apart from each other.
    fn file(lengths: &[u64]) -> Vec<Run> {
        let mut at = 0;
        let place = |(number, length): (u64, &u64)| {
            let run = Run {
                logical: LogicalBlock(at),
                physical: PhysicalBlock(number << 40),
                length: block_size().to_blocks(Bytes(length << 10)),
            };
            at += run.length.0;
            run
        };
        (1..).zip(lengths).map(place).collect()
    }

    /// The lengths, in KiB, of what moves.
    fn moving(lengths: &[u64], worth: u64) -> Vec<u64> {
        let kib = |range: &LogicalRange| block_size().to_bytes(range.length).0 >> 10;
        worth_moving(&file(lengths), block_size(), Bytes(worth << 10)).iter().map(kib).collect()
    }

    #[test]
    fn short_fragments_move_together_and_long_ones_stay() {
        assert_eq!(moving(&[64, 128, 256, 512], 4096), [64, 128, 256, 512]);
        assert_eq!(moving(&[64, 32, 16, 9000], 4096), [64, 32, 16]);
        assert_eq!(moving(&[9000, 64, 32, 16, 9000, 8, 8], 4096), [64, 32, 16, 8, 8]);
        // In the middle it is in the way of two.
        assert_eq!(moving(&[64, 6000, 64], 4096), [64, 6000, 64]);
    }

    #[test]
    fn what_grows_on_is_moved_anew_only_as_long_as_it_is_short() {
        assert_eq!(moving(&[12_000, 300, 16], 4096), [300, 16]);
        assert_eq!(moving(&[12_000, 316], 4096), Vec::<u64>::new(), "one fragment less is not worth 12 MB");
        assert_eq!(moving(&[12_000, 4000, 64, 8], 4096), [4000, 64, 8]);
        assert_eq!(moving(&[12_000, 5000, 64, 8], 4096), [64, 8]);
    }

    #[test]
    fn everything_moves_where_any_price_is_paid_and_a_whole_file_never_does() {
        assert_eq!(moving(&[90_000, 80_000, 4], u64::MAX >> 10), [90_000, 80_000, 4]);
        let all = worth_moving(&file(&[1 << 40, 1 << 40]), block_size(), Bytes(u64::MAX));
        assert_eq!(all.len(), 2);
        assert_eq!(moving(&[64], u64::MAX >> 10), Vec::<u64>::new());
        assert_eq!(moving(&[], 4096), Vec::<u64>::new());
        assert_eq!(moving(&[4, 4, 4], 0), Vec::<u64>::new(), "nothing is worth nothing");
    }

    #[test]
    fn neighbours_on_the_volume_are_one_fragment_with_the_hole_between_them() {
        let run = |logical, physical, length| Run {
            logical: LogicalBlock(logical),
            physical: PhysicalBlock(physical),
            length: Blocks(length),
        };
        let runs = [run(0, 100, 10), run(20, 110, 10), run(30, 500, 5)];
        assert_eq!(
            worth_moving(&runs, block_size(), Bytes(1 << 20)),
            [0..30, 30..35].map(|range: std::ops::Range<u64>| LogicalRange::between(
                LogicalBlock(range.start),
                LogicalBlock(range.end)
            ))
        );
        assert_eq!(worth_moving(&runs[..2], block_size(), Bytes(1 << 20)), []);
    }

    /// What a choice costs: the bytes that move, and `worth` for each fragment afterwards.
    fn cost(lengths: &[u64], moves: impl Fn(usize) -> bool, worth: u64) -> u64 {
        let fragments = (0..lengths.len()).filter(|at| *at == 0 || !(moves(*at) && moves(at - 1))).count() as u64;
        fragments * worth + lengths.iter().enumerate().filter(|(at, _)| moves(*at)).map(|(_, kib)| kib).sum::<u64>()
    }

    proptest! {
        #[test]
        fn no_other_choice_is_a_better_bargain(
            lengths in prop::collection::vec(prop_oneof![1..64_u64, 1..2000_u64, 3000..9000_u64], 0..9),
            worth in prop_oneof![Just(0_u64), 1..8000_u64],
        ) {
            let lengths: Vec<u64> = lengths.iter().map(|kib| kib * 4).collect();
            let runs = file(&lengths);
            let chosen = worth_moving(&runs, block_size(), Bytes(worth << 10));
            let moves = |at: usize| runs.get(at).is_some_and(|run| chosen.iter().any(|part| part.start.0 == run.logical.0));
            let ours = cost(&lengths, moves, worth);
            let best = (0..1_u32 << lengths.len()).map(|set| cost(&lengths, |at| set >> at & 1 == 1, worth)).min();
            prop_assert_eq!(Some(ours), best);
            prop_assert!(chosen.len() != 1, "moving one alone brings nothing");
            prop_assert!(count_fragments(runs.iter().copied()) == lengths.len() as u64);
        }
    }
}
