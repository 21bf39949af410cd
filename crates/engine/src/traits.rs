//! The primitives that every file system provides. Order, PENDING and AVAILABLE blocks, retries, deferral and
//! verification belong to the engine, so that the simulated volume tests them, too.

use crate::{CompactedDirectories, MoveError, VolumeError};
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileId, InodeNumber, LogicalBlock, LogicalRange, PhysicalBlock, Run, VolumeLayout,
};
use std::path::PathBuf;

/// The description of a volume, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The mount point, or what the user named.
    pub target: PathBuf,
    /// The block device.
    pub device: PathBuf,
    /// "ext4", "sim", …
    pub filesystem: String,
}

/// A part of a file that is exchanged by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of which file.
    pub file: FileId,
    /// From where on.
    pub logical: LogicalBlock,
    /// How much of it.
    pub length: Blocks,
}

/// The result of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// How many blocks of the file lie at the target now.
    pub blocks: Blocks,
    /// The blocks that the file left and that we own now, asked of the file system after the exchange (ext4: the map of
    /// the donor's range). Never what the caller expected them to be: a file may be rewritten between being mapped and
    /// being exchanged, and a block that is taken for AVAILABLE while it is PENDING costs data at a crash.
    pub vacated: Vec<Extent>,
}

/// What was marked as in use on a volume and no file had, as opening the volume found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaked {
    /// Space that the first commit frees.
    pub freed: Bytes,
    /// File records that it frees.
    pub records: u64,
    /// Space that stays marked as in use, because it is not certain that no file has it.
    pub kept: Bytes,
    /// Why that is not certain.
    pub why_kept: Option<&'static str>,
}

/// What a file without a name is called.
#[must_use]
pub fn unnamed(inode: InodeNumber) -> PathBuf {
    PathBuf::from(format!("<inode {inode}>"))
}

/// Receives the progress of long operations, and decides whether they continue.
pub trait Progress {
    /// `done` of `total` units of the present phase are finished.
    fn at(&self, done: u64, total: u64);
    /// True as soon as the work should stop.
    fn cancelled(&self) -> bool;
    /// Called often, before more is read: lets other I/O go first, for a while. The default does nothing.
    fn give_way(&self) {}
    /// As [`crate::Observer::compute`].
    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// A progress that shows nothing and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn at(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// A mounted volume, or a simulated one, that a pass works on.
pub trait Volume {
    /// What reading it gives.
    type Scan;

    /// What it is.
    fn info(&self) -> VolumeInfo;

    /// Whether opening it had to complete what an interrupted run had begun.
    fn was_interrupted(&self) -> bool {
        false
    }

    /// What opening it has found to be in use by nothing.
    fn leaked(&self) -> Leaked {
        Leaked::default()
    }

    /// Rewrites those directories of the last scan that have lost most of their entries, in fewer blocks, durably. Where they cannot be
    /// rewritten, does nothing. When `progress` is cancelled, it answers with what was done by then.
    ///
    /// # Errors
    /// [`VolumeError`]: the run must end.
    fn compact_directories(
        &mut self,
        scan: &Self::Scan,
        progress: &dyn Progress,
    ) -> Result<CompactedDirectories, VolumeError> {
        let _ = (scan, progress);
        Ok(CompactedDirectories::default())
    }

    /// Reads how the volume is now. Blocks that we own show as obstacles, not as free.
    ///
    /// # Errors
    /// Anything but a consistent picture: [`VolumeError::Damaged`], `Io`, `Interrupted`.
    fn scan(&mut self, progress: &dyn Progress) -> Result<Self::Scan, VolumeError>;

    /// The paths of `files` of the last scan, whose layout is `layout`, in that order: below the mount point where
    /// they lie there. A file without a name is called by its number ([`unnamed`]).
    ///
    /// # Errors
    /// [`VolumeError`]: the directories cannot be read.
    fn names(
        &mut self,
        layout: &VolumeLayout,
        files: &[FileId],
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        let _ = (layout, progress);
        Ok(files.iter().map(|file| unnamed(file.inode)).collect())
    }

    /// Blocks that any process could still allocate at this moment (without those that we own).
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn unclaimed(&mut self) -> Result<Blocks, VolumeError>;

    /// Returns when everything before it is durable, data and mapping, and what files have left is free. Only then
    /// may vacated blocks be targets.
    ///
    /// # Errors
    /// [`VolumeError::Barrier`], [`VolumeError::WriteFailed`]: the run must end, and nothing is committed after that.
    fn commit(&mut self) -> Result<(), VolumeError>;

    /// Leaves the volume in order: commits, and marks it as in order where it was marked otherwise meanwhile. The last call. Dropping
    /// the volume does the same, but does not say when it fails.
    ///
    /// # Errors
    /// [`VolumeError::WriteFailed`]: the volume stays marked as to be checked, and the next run completes what was begun. Also when
    /// an earlier call has failed so.
    fn close(&mut self) -> Result<(), VolumeError> {
        Ok(())
    }
}

/// A mounted volume whose files can be moved to chosen blocks.
///
/// *Owned* blocks are free space that we hold (a balloon), so that no one else can allocate them. On file systems that
/// allocate at a chosen place, blocks need not be held but only claimed; an exchange may then find one taken
/// ([`crate::SkipReason::TargetTaken`]). Only the engine knows which owned blocks are PENDING and which are AVAILABLE.
pub trait Placed: Volume<Scan = VolumeLayout> {
    /// Free blocks of the last scan that no file can be moved to: plans do without them. Blocks that are not free mean
    /// nothing here.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn unavailable(&mut self) -> Result<ExtentSet, VolumeError> {
        Ok(ExtentSet::new())
    }

    /// Tries to own exactly the free blocks in `wanted`, and returns those it got (a subset). Never fails for lack of
    /// space: it returns less. What it allocated elsewhere meanwhile it has given back.
    ///
    /// # Errors
    /// [`VolumeError::Io`] when the kernel refuses in an unexpected way; nothing is then owned that was not before.
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError>;

    /// How many system calls [`Self::capture`] has made so far; 0 where it makes none.
    fn capture_calls(&self) -> u64 {
        0
    }

    /// Gives owned blocks back to everybody. Safe for blocks that were vacated and not yet committed: the file system
    /// itself does not reuse a freed block before the commit.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError>;

    /// What is owned now, as the file system itself says. Shrinks behind our back when others needed the space.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn owned(&mut self) -> Result<ExtentSet, VolumeError>;

    /// Where the file's blocks are now. Checks that it is still the same file, and that those that the last scan found to
    /// follow it ([`VolumeLayout::followers`]) still lie in the same blocks.
    ///
    /// # Errors
    /// [`MoveError::Skip`] when the file is gone, changed beyond recognition, or must not be touched.
    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError>;

    /// The same as far as it counts for moves within `range`: at least the runs there, and the nearest one on either side. A file in
    /// thousands of fragments is moved in as many steps, and each asks twice.
    ///
    /// # Errors
    /// As [`Self::map`].
    fn map_around(&mut self, file: FileId, range: LogicalRange) -> Result<Vec<Run>, MoveError> {
        let _ = range;
        self.map(file)
    }

    /// Asks for `pieces` of the part that is exchanged next to be read into memory, together, and does not wait for them;
    /// other pieces of it may follow. Where that does not help it does nothing.
    ///
    /// # Errors
    /// [`MoveError::Skip`] when the file is gone or must not be touched.
    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let _ = (part, pieces);
        Ok(())
    }

    /// Returns when `pieces`, which [`Self::bring_in`] has asked for, are in memory; what cannot be read shows when it is
    /// exchanged.
    ///
    /// # Errors
    /// As [`Self::bring_in`].
    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let _ = (part, pieces);
        Ok(())
    }

    /// Exchanges `length` blocks of the file from `logical` with owned blocks at `target`. The kernel does it
    /// atomically and checks; content, times and attributes stay. Afterwards the file's former blocks are owned by
    /// us. The files that follow it move with it: all of them or none, so that they go on sharing. Fewer blocks than
    /// asked (even none) is no error: the caller maps the file again.
    ///
    /// # Errors
    /// [`MoveError::Skip`] with the reason, nothing was exchanged; [`MoveError::Fatal`] when the run must end.
    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError>;

    /// The run is about to pause: what is under way is finished first, so that during the pause nothing that was
    /// vacated is still needed and everything owned can be given back at once. No barrier.
    ///
    /// # Errors
    /// [`VolumeError::Unwritten`]: the run must end.
    fn pause(&mut self) -> Result<(), VolumeError> {
        Ok(())
    }
}
