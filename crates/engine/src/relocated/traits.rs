//! The primitives of a volume that allocates its space in chunks.

use super::Task;
use crate::share::NotMended;
use crate::{Halt, Observer, SkipReason, Stop, Volume};
use longrun_layout::{Blocks, Bytes, Extent, FileIndex, VolumeLayout};

/// The identity of a chunk. It is the same in every scan while the chunk exists, and is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey(
    /// Whatever the file system calls it by.
    pub u64,
);

/// A chunk that holds file data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChunk {
    /// Its name.
    pub key: ChunkKey,
    /// Its blocks in the layout.
    pub extent: Extent,
    /// The free ones. Ascending, disjoint.
    pub free: Vec<Extent>,
}

/// Files that share blocks; usually a single file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOfFiles {
    /// The files, with their lengths.
    pub members: Vec<(FileIndex, Bytes)>,
    /// A part of it can be rewritten, and all blocks that this part leaves become free.
    pub divisible: bool,
}

/// The state of a volume at one moment.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Files, free space, obstacles.
    pub layout: VolumeLayout,
    /// The chunks that hold data.
    pub chunks: Vec<DataChunk>,
    /// Space from which chunks can be allocated.
    pub unallocated: Blocks,
    /// The length of such a chunk.
    pub chunk_length: Blocks,
    /// The units that may be rewritten.
    pub units: Vec<UnitOfFiles>,
    /// Fragmented files that must stay, with the reason.
    pub staying: Vec<(FileIndex, SkipReason)>,
    /// Why nothing can be done for the free space, where that is so.
    pub only_files: Option<&'static str>,
}

/// Is asked before each part of an operation, and receives the number of bytes written.
pub trait Meter: Observer {
    /// Returns when `next` bytes may be written.
    ///
    /// # Errors
    /// [`Stop`] when the act is to end.
    fn before(&mut self, next: Bytes) -> Result<(), Stop>;

    /// Why the act is to end, if it is.
    fn stop(&self) -> Option<Stop>;

    /// So much was written.
    fn wrote(&mut self, bytes: Bytes);
}

/// What it is to a pass that files were not rewritten.
///
/// # Errors
/// [`Halt`], when that was because it is to end.
pub fn left(reason: NotMended, meter: &dyn Meter) -> Result<SkipReason, Halt> {
    Ok(match reason {
        NotMended::Cancelled => return Err(meter.stop().unwrap_or(Stop::Cancelled).into()),
        NotMended::Skipped(reason) => reason,
        // The scan had found no other file that shares it.
        NotMended::Shared => SkipReason::Changed,
        NotMended::Compressed => SkipReason::Compressed,
        NotMended::NoGain | NotMended::WholeEnough | NotMended::Dear => SkipReason::TargetTaken,
        NotMended::LowSpace | NotMended::Budget => SkipReason::SpaceNeeded,
        NotMended::OtherOptimizer => SkipReason::Busy,
    })
}

/// The result of emptying a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evacuated {
    /// It is empty, and its space belongs to no chunk any more.
    Emptied,
    /// What it holds has no place elsewhere: it is as it was, or a little emptier.
    NoSpace,
    /// There is no such chunk any more.
    Gone,
}

/// A mounted volume that allocates its space in chunks and chooses the place of data itself.
pub trait Relocated: Volume<Scan = Picture> {
    /// Writes what `task` names into one new place, and has every file that shares it take that instead, the kernel
    /// comparing the bytes. `Some` when it was left, as it was or with a part done: never in more pieces than before.
    /// Its former blocks are free after a commit.
    ///
    /// # Errors
    /// [`Halt`].
    fn gather(&mut self, task: &Task, meter: &mut dyn Meter) -> Result<Option<SkipReason>, Halt>;

    /// Moves everything out of a chunk of the last scan, wherever the volume likes.
    ///
    /// # Errors
    /// [`Halt`]; nothing of it goes on then.
    fn evacuate(&mut self, chunk: ChunkKey, meter: &mut dyn Meter) -> Result<Evacuated, Halt>;
}
