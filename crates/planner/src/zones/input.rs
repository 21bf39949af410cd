//! What is known of the files, and of the disk.

use longrun_layout::{Blocks, FileId};
use std::collections::{BTreeMap, BTreeSet};

/// Which end of the volume is read faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastEnd {
    /// The first block.
    Beginning,
    /// The last one.
    End,
}

/// How much a file is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FileUse {
    /// Requests that read it from the device, with a half-life of seven days.
    pub reads: f64,
    /// Minutes in which it was written, with the same half-life: three times a week is about four.
    pub changes: f64,
}

/// What is to be placed.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The files that are used. What is not here is not read.
    pub uses: BTreeMap<FileId, FileUse>,
    /// Files that stay where they are, for a reason of their own.
    pub stay: BTreeSet<FileId>,
    /// Where the disk is fast.
    pub fast: FastEnd,
    /// How many blocks may be moved at most: a day's allowance.
    pub budget: Blocks,
}
