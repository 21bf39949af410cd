//! Volumes that are not mounted: what their engines share.
//!
//! Owns the redo journal, where it lies, the completion of an interrupted run, which free blocks are held, and how free space is given
//! back. Knows no on-disk format.

mod give_back;
mod held;
mod journal;
mod place;

pub use give_back::GivenBack;
pub(crate) use give_back::{Ranges, give_back};
pub(crate) use held::Held;
pub(crate) use journal::{Copied, Journal, Phase, SECTOR, Write, apply};
pub(crate) use place::{Kind, is_interrupted, journal_of, opened, recover};

use longrun_image::Disk;
use longrun_layout::{Bytes, Extent};

/// What failed while data was copied.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// Nothing was written.
    Read,
    /// The target may hold a part of it.
    Write(std::io::Error),
}

/// Copies blocks of `unit` bytes. The target must be free.
pub(crate) fn copy(
    disk: &dyn Disk,
    unit: u64,
    source: Extent,
    target: Extent,
    buffer: &mut Vec<u8>,
) -> Result<Copied, CopyError> {
    let at = |extent: Extent| Bytes(extent.start.0 * unit);
    buffer.resize((source.length.0 * unit) as usize, 0);
    disk.read(at(source), buffer).map_err(|_| CopyError::Read)?;
    disk.write(at(target), buffer).map_err(CopyError::Write)?;
    Ok(Copied::new(at(target), buffer))
}
