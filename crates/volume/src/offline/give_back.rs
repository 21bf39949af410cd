//! Gives the free space of a volume back to what lies below: an image, thin storage.
//!
//! Owns how that is asked for. What is free the volume says, whose bitmaps agree with what its files have.

use longrun_engine::{Progress, VolumeError};
use longrun_image::Disk;
use longrun_layout::Bytes;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What one call gives back at most, so that it can be stopped.
const SLICE: Bytes = Bytes(64 << 20);

/// Where zeros are written, it is done in blocks of this size: as large as those of most formats.
const BLOCK: u64 = 64 << 10;

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// The free space of the volume.
    pub free: Bytes,
    /// How much of it was asked to be taken back.
    pub bytes: Bytes,
    /// Whether the storage keeps what it has, so that the free space was written with zeros: a conversion then leaves it out.
    pub zeroed: bool,
    /// Whether it was stopped before everything was done.
    pub stopped: bool,
}

/// Writes zeros where there are none. What was never written reads as zeros, and writing there would have the image grow.
fn zero(disk: &dyn Disk, start: Bytes, length: Bytes) -> io::Result<()> {
    let mut block = vec![0; BLOCK as usize];
    let mut at = 0;
    while at < length.0 {
        let size = BLOCK.min(length.0 - at);
        let block = block.get_mut(..size as usize).unwrap_or_default();
        disk.read(start + Bytes(at), block)?;
        if block.iter().any(|byte| *byte != 0) {
            disk.zero(start + Bytes(at), Bytes(size))?;
        }
        at += size;
    }
    Ok(())
}

/// Ranges of a disk: the first byte and the length of each.
pub(crate) type Ranges = Vec<(Bytes, Bytes)>;

/// Gives those of the free `pieces` back that have at least `least` bytes. What was given back before an error stays so.
pub(crate) fn give_back(
    path: &Path,
    (disk, pieces): (Arc<dyn Disk>, Ranges),
    least: Bytes,
    progress: &dyn Progress,
) -> Result<GivenBack, VolumeError> {
    let failed = |source| VolumeError::Io { path: path.to_owned(), act: "giving free space back", source };
    let mut done = GivenBack { free: pieces.iter().map(|(_, length)| *length).sum(), ..GivenBack::default() };
    let mut looked_at = Bytes(0);
    for (start, length) in pieces {
        let mut at = Bytes(0);
        while at < length && length >= least {
            if progress.cancelled() {
                done.stopped = true;
                break;
            }
            progress.give_way();
            let slice = Bytes((length - at).0.min(SLICE.0));
            match disk.discard(start + at, slice) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    zero(&*disk, start + at, slice).map_err(failed)?;
                    done.zeroed = true;
                }
                given => given.map_err(failed)?,
            }
            at += slice;
            done.bytes += slice;
            progress.at((looked_at + at).0, done.free.0);
        }
        looked_at += length;
    }
    disk.flush().map_err(failed)?;
    Ok(done)
}
