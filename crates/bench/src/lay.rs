//! Makes files that are contiguous, or in pieces, as a benchmark needs them.

use crate::BenchError;
use longrun_ageing::{AgeError, Order, fill_block, fragment_file_in};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 4096;

/// Makes a new file of `bytes`, in as few pieces as the file system makes of it, each block of it different.
pub(crate) fn whole(path: &Path, bytes: Bytes, seed: u64) -> Result<(), BenchError> {
    let write = || -> io::Result<()> {
        let file = File::create_new(path)?;
        longrun_sys::allocate(&file, ByteRange { start: Bytes(0), length: bytes })?;
        let mut output = io::BufWriter::with_capacity(1 << 20, file);
        for number in 0..bytes.0.div_ceil(BLOCK) {
            let mut block = [0; BLOCK as usize];
            fill_block(&mut block, seed, 0, number);
            let length = (bytes.0 - number * BLOCK).min(BLOCK) as usize;
            output.write_all(block.get(..length).unwrap_or_default())?;
        }
        output.flush()?;
        output.get_ref().sync_all()
    };
    write().map_err(|e| BenchError::io("writing it", path, e))
}

/// Divides a file made by [`whole`] into pieces of a size, in the order of the file or in random order. Returns
/// whether that could be done. On file systems other than ext4 places cannot be chosen, and the allocator joins
/// pieces that are in order.
pub(crate) fn in_pieces(
    path: &Path,
    bytes: Bytes,
    piece: Bytes,
    shuffled: bool,
    seed: u64,
) -> Result<bool, BenchError> {
    let order = if shuffled { Order::Shuffled(seed) } else { Order::AsInTheFile };
    match fragment_file_in(path, bytes.0.div_ceil(piece.0), order) {
        Ok(_) => Ok(true),
        Err(AgeError::Unsuitable { .. }) if !shuffled => Ok(false),
        Err(AgeError::Unsuitable { .. }) => {
            let written = write_in_pieces(path, bytes, piece, seed);
            written.map(|()| true).map_err(|e| BenchError::io("writing it", path, e))
        }
        Err(error) => Err(BenchError::Unsuitable { path: path.to_owned(), problem: error.to_string() }),
    }
}

/// Rewrites the file piece by piece in random order. Each piece is durable before the next, and another file grows
/// between them.
fn write_in_pieces(path: &Path, bytes: Bytes, piece: Bytes, seed: u64) -> io::Result<()> {
    let wedge_path = path.with_extension("between");
    let (file, wedge) = (File::create(path)?, File::create_new(&wedge_path)?);
    let mut order: Vec<u64> = (0..bytes.0.div_ceil(piece.0)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    file.set_len(bytes.0)?;
    for (turn, number) in order.into_iter().enumerate() {
        let at = number * piece.0;
        let mut data = vec![0; piece.0.min(bytes.0 - at) as usize];
        for (block, part) in data.chunks_mut(BLOCK as usize).enumerate() {
            fill_block(part, seed, 0, at / BLOCK + block as u64);
        }
        file.write_all_at(&data, at)?;
        file.sync_data()?;
        wedge.write_all_at(&[1; BLOCK as usize], turn as u64 * BLOCK)?;
        wedge.sync_data()?;
    }
    file.sync_all()?;
    fs::remove_file(&wedge_path)
}
