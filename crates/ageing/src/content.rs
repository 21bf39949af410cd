//! File content that reveals misplaced data: every block of every file is different.

/// The unit in which content differs; at most the file-system block size.
pub(crate) const CONTENT_BLOCK: usize = 4096;

/// Fills `block` with the content of block number `block_number` of the file numbered `file` under `seed`:
/// incompressible, and different for every such triple.
pub fn fill_block(block: &mut [u8], seed: u64, file: u64, block_number: u64) {
    // Two rounds of a multiplicative mix: neighbours in (seed, file, block) must not give related streams.
    let mut state = seed ^ file.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ block_number.wrapping_mul(0xD1B5_4A32_D192_ED03);
    state = (state ^ (state >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut rng = fastrand::Rng::with_seed(state);
    for word in block.chunks_mut(8) {
        let bytes = rng.u64(..).to_le_bytes();
        word.copy_from_slice(bytes.get(..word.len()).unwrap_or(&bytes));
    }
}

/// Fills a buffer that starts at byte `offset` of the file; the offset must lie on a content block.
pub(crate) fn fill(buffer: &mut [u8], seed: u64, file: u64, offset: u64) {
    let first = offset / CONTENT_BLOCK as u64;
    for (number, block) in (first..).zip(buffer.chunks_mut(CONTENT_BLOCK)) {
        fill_block(block, seed, file, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_differs_and_is_reproducible() {
        let mut seen = std::collections::BTreeSet::new();
        for (seed, file, number) in (0..3).flat_map(|s| (0..9).flat_map(move |f| (0..9).map(move |b| (s, f, b)))) {
            let (mut one, mut two) = ([0; 64], [0; 64]);
            fill_block(&mut one, seed, file, number);
            fill_block(&mut two, seed, file, number);
            assert_eq!(one, two);
            assert!(seen.insert(one));
        }
    }
}
