//! Writes files again on file systems that compare blocks and then share them (XFS, btrfs). A copy is made in one new
//! place, and the files take its blocks range by range. Blocks that several files share are shared again afterwards.
//!
//! Owns the order: check, allocate, copy, make durable, then let the kernel compare and share. Owns also which copies
//! are made, and which file takes which range of them. Never writes to a user's file: if its bytes differ from the
//! copy, the file is not changed.

mod call;
mod places;
mod sequence;
mod traits;
pub mod unit;

#[cfg(test)]
mod tests;

pub use call::{Call, carry_out};
pub use sequence::{Durable, Request, rewrite};
pub use traits::{Attempt, Compared, Ended, MemberRange, Sharing};

use crate::SkipReason;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// The most that one call moves: the kernel holds the locks of the file meanwhile (about 5 ms), and btrfs takes no more.
pub const MOVED_AT_ONCE: Bytes = Bytes(16 << 20);

/// How much is copied at a time.
pub const COPIED_AT_ONCE: Bytes = Bytes(1 << 20);

/// Why a file was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotMended {
    /// Other files or snapshots share its blocks: they would not any more.
    Shared,
    /// It is stored compressed.
    Compressed,
    /// The free space has no place where it would lie better.
    NoGain,
    /// Its fragments are so long that one less is not worth moving them.
    WholeEnough,
    /// It is worth what it costs, but the caller does not pay as much yet.
    Dear,
    /// Others might need the free space.
    LowSpace,
    /// It is larger than what may be moved.
    Budget,
    /// The caller asked to stop.
    Cancelled,
    /// Another optimizer works on the volume.
    OtherOptimizer,
    /// As for any file that an optimizer leaves alone.
    #[serde(untagged)]
    Skipped(SkipReason),
}

impl NotMended {
    /// The reason in words, for people.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Shared => "other files or snapshots share its blocks",
            Self::Compressed => "stored compressed",
            Self::NoGain => "the free space has no better place for it",
            Self::WholeEnough => "its fragments are so long that moving them gains nothing",
            Self::Dear => "files that cost less come first",
            Self::LowSpace => "too little space is free",
            Self::Budget => "it is larger than the budget allows",
            Self::Cancelled => "stopped",
            Self::OtherOptimizer => "another optimizer works on the volume",
            Self::Skipped(reason) => reason.phrase(),
        }
    }
}
