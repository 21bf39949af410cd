//! The primitives of a file system that compares blocks and then shares them, as FIDEDUPERANGE does on XFS and btrfs.

use super::NotMended;
use super::unit::UnitPlan;
use crate::{FileMap, VolumeError};
use longrun_layout::{Blocks, Bytes, LogicalBlock, Run};

/// Why files are not written again.
#[derive(Debug)]
pub enum Ended {
    /// They are as they were, or partly done.
    Left(NotMended),
    /// The volume failed.
    Failed(VolumeError),
}

impl From<NotMended> for Ended {
    fn from(reason: NotMended) -> Self {
        Self::Left(reason)
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// So many bytes, from the start of the range, were the same, and the file has the copy's blocks there now.
    Same(Bytes),
    /// The first bytes differ: nothing was changed.
    Differs,
}

/// Where the next attempt of an allocation searches. File systems with only one method treat every attempt as the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Beside the first file, one allocation for each range that is taken.
    Beside,
    /// Anywhere, one allocation for each range that is taken.
    Anywhere,
    /// Anywhere, one allocation for all, for which the allocator looks for one place.
    InOne,
}

/// A range of blocks of one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRange {
    /// Which of the files.
    pub member: usize,
    /// From where on.
    pub logical: LogicalBlock,
    /// How much.
    pub length: Blocks,
}

/// The files that are written again together, and the operations on them. Each operation is independent of the others:
/// order, retries and limits belong to the sequence.
pub trait Sharing {
    /// A file of ours without a name. What no file has taken of it is free again when it is dropped.
    type Copy;

    /// Whether so much more may be taken of the free space, with enough left for others to begin with.
    ///
    /// # Errors
    /// The reason, when not.
    fn permits(&self, more: Bytes) -> Result<(), NotMended>;

    /// Whether what is taken may be kept: others may be filling the volume.
    ///
    /// # Errors
    /// The reason, when not.
    fn leaves_enough(&self) -> Result<(), NotMended>;

    /// Allocates one of the copies of `plan`, `bytes` long, without content.
    ///
    /// # Errors
    /// The reason why there is none.
    fn allocate(
        &mut self,
        plan: &UnitPlan,
        copy: usize,
        bytes: Bytes,
        attempt: Attempt,
    ) -> Result<Self::Copy, NotMended>;

    /// Where the blocks of a copy are, as the file system tells.
    fn map<'c>(&self, copy: &'c Self::Copy) -> &'c FileMap;

    /// Whether nothing shows that the file was written to since it was looked at. What is written through a memory mapping shows
    /// late: this ends futile work early, and safety rests on the comparison.
    fn is_unchanged(&self, member: usize) -> bool;

    /// Asks for pieces of a file to be read into memory, and does not wait.
    fn ask_for(&self, member: usize, pieces: &[Run]);

    /// Returns when these pieces are in memory.
    fn await_read(&self, member: usize, pieces: &[Run]);

    /// Copies a range of a file to block `to` of a copy.
    ///
    /// # Errors
    /// [`Ended`].
    fn copy(&mut self, from: MemberRange, copy: &Self::Copy, to: LogicalBlock) -> Result<(), Ended>;

    /// Returns when the content and the map of a copy are durable.
    ///
    /// # Errors
    /// [`Ended::Failed`].
    fn sync(&mut self, copy: &Self::Copy) -> Result<(), Ended>;

    /// Has the writing of a copy begin, and does not wait.
    fn start_writing(&mut self, copy: &Self::Copy);

    /// Compares a range of a file, without its first `done` bytes, with the copy from block `at` on, and has the file take the
    /// copy's blocks as far as the bytes are the same. The kernel does both under the locks of both files.
    ///
    /// # Errors
    /// [`Ended`]; nothing was changed.
    fn share_if_same(
        &mut self,
        copy: &Self::Copy,
        at: LogicalBlock,
        range: MemberRange,
        done: Bytes,
    ) -> Result<Compared, Ended>;

    /// Gives up a range of a copy that a file has taken: as long as both have it, a process that writes to the file
    /// would get new blocks for that. When it fails, dropping the copy does it later.
    fn part_with(&mut self, copy: &Self::Copy, start: LogicalBlock, length: Blocks);

    /// Whether most of a range is in memory.
    fn is_cached(&self, range: MemberRange) -> bool;

    /// Has a range be read into memory again. Advice only.
    fn read_ahead(&self, range: MemberRange);
}
