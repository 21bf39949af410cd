//! Makes fragmented files on any file system, as input for mending and prevention.

use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::FileSystemKind;

/// Writes `content` to a new file that lies in many pieces of at most `piece` bytes: in a shuffled order that `seed`
/// decides, each piece durable before the next, while another file (removed in the end) grows between them. On ext4,
/// whose allocator copes with that, an exchange of blocks does the rest.
///
/// # Errors
/// When something cannot be written, or the file came out in fewer than half as many pieces.
pub fn write_in_pieces(kind: FileSystemKind, path: &Path, content: &[u8], piece: Bytes, seed: u64) -> Result<()> {
    let size = usize::try_from(piece.0)?.max(1);
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let pieces = content.len().div_ceil(size);
    if kind == FileSystemKind::Ext4 {
        file.write_all_at(content, 0)?;
        file.sync_all()?;
        longrun_ageing::fragment_file(path, pieces as u64)?;
    } else {
        let between = path.with_extension("between");
        let wedge = File::create(&between)?;
        file.set_len(content.len() as u64)?;
        let mut order: Vec<usize> = (0..pieces).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        for (turn, at) in order.into_iter().enumerate() {
            let part = content.get(at * size..).and_then(|rest| rest.get(..size.min(rest.len()))).context("a piece")?;
            file.write_all_at(part, (at * size) as u64)?;
            file.sync_data()?;
            wedge.write_all_at(&[1; 4096], turn as u64 * 4096)?;
            wedge.sync_data()?;
        }
        file.sync_all()?;
        drop(wedge);
        std::fs::remove_file(&between)?;
    }
    let excess = crate::oracle::excess_of(path)?;
    ensure!(excess * 2 + 2 >= pieces as u64, "{} lies in {} pieces only", path.display(), excess + 1);
    Ok(())
}
