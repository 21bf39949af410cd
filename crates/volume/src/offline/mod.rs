//! Volumes that are not mounted: what their engines share.
//!
//! Owns the redo journal, where it lies, the completion of an interrupted run, which free blocks are held, and how free space is given
//! back. Knows no on-disk format.

mod error;
mod folder;
mod give_back;
mod held;
mod joined;
mod journal;
mod lasting;
mod place;
mod recovery;

pub use give_back::GivenBack;
pub(crate) use give_back::{Ranges, give_back};
pub(crate) use held::Held;
pub(crate) use joined::joined;
pub(crate) use journal::{Copied, Journal, Phase, SECTOR, Write, apply};
pub use place::JournalPlace;
pub(crate) use place::{Kind, journal_of, opened};
pub(crate) use recovery::{begin, is_interrupted, recover};

use longrun_engine::{MoveError, SkipReason, VolumeError};
use longrun_image::Disk;
use longrun_layout::{Bytes, Extent};
use std::path::Path;

/// What a refusal of a volume that is marked as dirty says at its end: a checker sees the half of a transaction.
pub(crate) const AFTER_A_RUN: &str = "; after an interrupted run of Longrun, put its journal back instead";

/// What failed while data was copied.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// What was to be copied.
    Read,
    /// The target may hold a part of it.
    Write(std::io::Error),
}

impl CopyError {
    /// What it means for the move of a file on the volume at `path`.
    pub(crate) fn on(self, path: &Path) -> MoveError {
        match self {
            Self::Read => MoveError::Skip(SkipReason::Unreadable),
            Self::Write(source) => VolumeError::WriteFailed { path: path.to_owned(), source }.into(),
        }
    }
}

/// Copies blocks of `unit` bytes, each piece from its first extent to its second, which has as many. The targets must be free. What
/// goes side by side is written at once.
pub(crate) fn copy(
    disk: &dyn Disk,
    unit: u64,
    pieces: impl IntoIterator<Item = (Extent, Extent)>,
    buffer: &mut Vec<u8>,
) -> Result<Vec<Copied>, CopyError> {
    let mut copied = Vec::new();
    let mut write = |start: Bytes, data: &[u8]| {
        if !data.is_empty() {
            disk.write(start, data).map_err(CopyError::Write)?;
            copied.push(Copied::new(start, data));
        }
        Ok(())
    };
    // What was read and not written: the first `waiting` bytes of the buffer.
    let (mut start, mut waiting) = (Bytes(0), 0);
    for (source, target) in pieces {
        let (to, length) = (Bytes(target.start.0 * unit), (source.length.0 * unit) as usize);
        if start + Bytes(waiting as u64) != to {
            write(start, buffer.get(..waiting).unwrap_or_default())?;
            (start, waiting) = (to, 0);
        }
        buffer.resize(buffer.len().max(waiting + length), 0);
        let place = buffer.get_mut(waiting..waiting + length).unwrap_or_default();
        disk.read(Bytes(source.start.0 * unit), place).map_err(|_| CopyError::Read)?;
        waiting += length;
    }
    write(start, buffer.get(..waiting).unwrap_or_default())?;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_image::MemoryDisk;

    #[test]
    fn what_goes_side_by_side_is_written_at_once_and_everything_arrives() {
        let content: Vec<u8> = (0..16u8).flat_map(|block| [block; SECTOR]).collect();
        let disk = MemoryDisk::new(content);
        let before = disk.events();
        let piece = |from, to, length| (Extent::new(from, length), Extent::new(to, length));
        let pieces = [piece(5, 8, 1), piece(1, 9, 2), piece(3, 11, 1), piece(0, 14, 1)];
        copy(&disk, SECTOR as u64, pieces, &mut vec![0xee; 3]).unwrap();
        let first: Vec<u8> = disk.content().chunks(SECTOR).map(|block| block[0]).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7, 5, 1, 2, 3, 12, 13, 0, 15]);
        assert_eq!(disk.events() - before, 2, "two places are written to");
        let nothing: [(Extent, Extent); 0] = [];
        assert!(copy(&disk, SECTOR as u64, nothing, &mut Vec::new()).unwrap().is_empty());
    }
}
