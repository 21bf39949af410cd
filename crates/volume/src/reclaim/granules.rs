//! How much of the free space a storage can take back that only takes whole blocks.
//!
//! Pure.

use longrun_layout::{BlockSize, Blocks, Bytes, Extent};

/// The blocks in which a storage allocates: a part of one is never given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granules {
    /// Their size.
    pub bytes: Bytes,
    /// How far the start of the volume lies behind the start of such a block.
    pub offset: Bytes,
}

impl Granules {
    /// Of this size, from the start of the volume on.
    #[must_use]
    pub const fn of(bytes: Bytes) -> Self {
        Self { bytes, offset: Bytes(0) }
    }
}

/// The free space of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreePieces {
    /// The unit of the pieces.
    pub block_size: BlockSize,
    /// Ascending, and none touches the next.
    pub pieces: Vec<Extent>,
}

impl FreePieces {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.block_size.to_bytes(self.pieces.iter().map(|piece| piece.length).sum())
    }

    /// What lies in whole granules, and in pieces of at least `least`.
    #[must_use]
    pub fn reclaimable(&self, granules: Granules, least: Bytes) -> Bytes {
        let size = granules.bytes.0.max(1);
        let long_enough = |piece: &&Extent| self.block_size.to_bytes(piece.length) >= least;
        let whole = |piece: &Extent| {
            let [start, end] = [piece.start, piece.end()]
                .map(|block| self.block_size.to_bytes(Blocks(block.0)).0.saturating_add(granules.offset.0));
            (end / size * size).saturating_sub(start.div_ceil(size).saturating_mul(size))
        };
        Bytes(self.pieces.iter().filter(long_enough).map(whole).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn free(pieces: &[(u64, u64)]) -> FreePieces {
        let pieces = pieces.iter().map(|(start, length)| Extent::new(*start, *length)).collect();
        FreePieces { block_size: BlockSize::new(4096).unwrap(), pieces }
    }

    fn reclaimable(pieces: &[(u64, u64)], granule: u64, least: u64) -> u64 {
        free(pieces).reclaimable(Granules::of(Bytes(granule)), Bytes(least)).0
    }

    #[test]
    fn only_whole_granules_count() {
        let pieces = [(0, 16), (20, 30), (60, 15), (240, 32)];
        assert_eq!(free(&pieces).bytes(), Bytes(93 << 12));
        assert_eq!(reclaimable(&pieces, 4096, 0), 93 << 12);
        // 16 blocks are 64 KiB: one, one from 32 to 48, none from 60 to 75, two.
        assert_eq!(reclaimable(&pieces, 64 << 10, 0), 4 * (64 << 10));
        assert_eq!(reclaimable(&pieces, 1 << 20, 0), 0);
        assert_eq!(reclaimable(&pieces, 0, 0), 93 << 12, "a device that does not say");
    }

    #[test]
    fn short_pieces_do_not_count() {
        assert_eq!(reclaimable(&[(0, 16), (20, 30)], 4096, 17 << 12), 30 << 12);
    }

    #[test]
    fn a_volume_that_begins_within_a_granule_has_others() {
        let shifted = Granules { bytes: Bytes(64 << 10), offset: Bytes(4096) };
        // The first granule begins at block 15.
        assert_eq!(free(&[(0, 32)]).reclaimable(shifted, Bytes(0)), Bytes(64 << 10));
        assert_eq!(free(&[(15, 32)]).reclaimable(shifted, Bytes(0)), Bytes(128 << 10));
    }

    proptest! {
        #[test]
        fn it_is_what_counting_granule_by_granule_finds(
            gaps in prop::collection::vec((1u64..40, 1u64..80), 0..8), blocks in 1u64..40, offset in 0u64..40,
        ) {
            let mut at = 0;
            let pieces: Vec<(u64, u64)> = gaps.iter().map(|(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, *length)
            }).collect();
            let is_free = |block: u64| pieces.iter().any(|(start, length)| (*start..start + length).contains(&block));
            let granules = Granules { bytes: Bytes(blocks << 12), offset: Bytes((offset % blocks) << 12) };
            let whole = |number: u64| {
                let first = (number * blocks).checked_sub(offset % blocks);
                first.is_some_and(|first| (first..first + blocks).all(is_free))
            };
            let expected = (0..1000).filter(|number| whole(*number)).count() as u64 * (blocks << 12);
            prop_assert_eq!(free(&pieces).reclaimable(granules, Bytes(0)).0, expected);
        }
    }
}
