//! The primitives of a volume that hands out its space in chunks.

use super::Task;
use crate::engine::{Halt, Permission, Stop, Turn};
use crate::{Progress, SkipReason, VolumeError, VolumeInfo};
use longrun_layout::{Blocks, Bytes, Extent, FileIndex, VolumeLayout};
use std::time::Duration;

/// The name of a chunk: the same in each scan while it exists, and never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey(
    /// Whatever the file system calls it by.
    pub u64,
);

/// A chunk that holds data of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChunk {
    /// Its name.
    pub key: ChunkKey,
    /// Its blocks in the layout.
    pub extent: Extent,
    /// The free ones. Ascending, disjoint.
    pub free: Vec<Extent>,
}

/// Files that share blocks. Most often a single file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOfFiles {
    /// Them, with their lengths.
    pub members: Vec<(FileIndex, Bytes)>,
    /// A part of it can be written anew so that all of what it left becomes free.
    pub divisible: bool,
}

/// A volume as it is at one moment.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Files, free space, obstacles.
    pub layout: VolumeLayout,
    /// The chunks that hold data.
    pub chunks: Vec<DataChunk>,
    /// Space of which chunks could be made.
    pub unallocated: Blocks,
    /// How long such a chunk would be.
    pub chunk_length: Blocks,
    /// What may be written anew.
    pub units: Vec<UnitOfFiles>,
    /// Files in pieces that must stay as they are, with the reason.
    pub staying: Vec<(FileIndex, SkipReason)>,
}

/// Asked before each part of an act, and told what was written.
pub trait Pace {
    /// Whether `next` bytes may be written now: for acts that have to look at something while they wait.
    fn permission(&mut self, next: Bytes) -> Permission;

    /// How much may be done on one permission.
    fn turn(&self) -> Turn;

    /// Lets time pass.
    fn wait(&mut self, time: Duration);

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

/// How the emptying of a chunk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evacuated {
    /// It is empty, and its space belongs to no chunk any more.
    Emptied,
    /// What it holds has no place elsewhere: it is as it was, or a little emptier.
    NoSpace,
    /// There is no such chunk any more.
    Gone,
}

/// A volume that hands out its space in chunks, while it is in use.
pub trait ChunkedVolume {
    /// What it is.
    fn info(&self) -> VolumeInfo;

    /// Reads where everything is.
    ///
    /// # Errors
    /// Anything but a consistent picture: [`VolumeError::Damaged`], `Io`, `Interrupted`.
    fn scan(&mut self, progress: &dyn Progress) -> Result<Picture, VolumeError>;

    /// Blocks that any process could allocate at this moment.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn unclaimed(&mut self) -> Result<Bytes, VolumeError>;

    /// Writes what `task` names into one new place, and has every file that shares it take that instead, the kernel
    /// comparing the bytes. `Some` when it was left, as it was or with a part done: never in more pieces than before.
    /// Its former blocks are free after a commit.
    ///
    /// # Errors
    /// [`Halt`].
    fn gather(&mut self, task: &Task, pace: &mut dyn Pace) -> Result<Option<SkipReason>, Halt>;

    /// Moves everything out of a chunk of the last scan, wherever the volume likes.
    ///
    /// # Errors
    /// [`Halt`]; nothing of it goes on then.
    fn evacuate(&mut self, chunk: ChunkKey, pace: &mut dyn Pace) -> Result<Evacuated, Halt>;

    /// Returns when everything before it is durable, and what was left is free.
    ///
    /// # Errors
    /// [`VolumeError::Barrier`]: the run must end.
    fn commit(&mut self) -> Result<(), VolumeError>;
}
