//! Why files were left where they are: a stable word for JSON, a phrase for people.

use longrun_layout::Pin;
use longrun_planner::Why;
use longrun_volume::SkipReason;

/// The phrase for a pin.
pub const fn pin(pin: Pin) -> &'static str {
    match pin {
        Pin::Indirect => "has indirect blocks instead of extents",
        Pin::Encrypted => "encrypted",
        Pin::Immutable => "immutable or append-only",
        Pin::Verity => "protected by fs-verity",
        Pin::JournalData => "its data is journalled",
        Pin::Swap => "an active swap file",
        Pin::Symlink => "a symbolic link",
        Pin::System => "belongs to the file system itself",
        Pin::DamagedMap => "its map contradicts itself",
        Pin::Changed => "changed while the volume was read",
        Pin::NoGeneration => "has no generation that would tell it from a successor",
        Pin::TooLarge => "its addresses are beyond what is supported",
        Pin::Realtime => "lies on a realtime device",
        Pin::Shared => "shares blocks with other files",
        Pin::Preallocated => "has preallocated blocks inside that were never written",
        Pin::Unwanted => "marked as not to be defragmented",
    }
}

/// The phrase for a reason.
pub const fn skip(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Pinned(why) => pin(why),
        SkipReason::Vanished => "deleted or replaced meanwhile",
        SkipReason::Changed => "changed meanwhile",
        SkipReason::Busy => "being written to",
        SkipReason::Executing => "being executed",
        SkipReason::TargetTaken => "the place for it could not be had",
        SkipReason::Blocked => "waited for a place that another file did not leave",
        SkipReason::SpaceNeeded => "others needed the free space",
        SkipReason::NotExchangeable => "the kernel cannot exchange its blocks",
        SkipReason::Unreadable => "its data could not be read",
        SkipReason::Compressed => "stored compressed",
    }
}

/// The word for a reason, as JSON has it. Part of the contract.
pub const fn word(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Pinned(why) => match why {
            Pin::Indirect => "indirect",
            Pin::Encrypted => "encrypted",
            Pin::Immutable => "immutable",
            Pin::Verity => "verity",
            Pin::JournalData => "journal-data",
            Pin::Swap => "swap",
            Pin::Symlink => "symlink",
            Pin::System => "system",
            Pin::DamagedMap => "damaged-map",
            Pin::Changed => "changed",
            Pin::NoGeneration => "no-generation",
            Pin::TooLarge => "too-large",
            Pin::Realtime => "realtime",
            Pin::Shared => "shared",
            Pin::Preallocated => "preallocated",
            Pin::Unwanted => "unwanted",
        },
        SkipReason::Vanished => "vanished",
        SkipReason::Changed => "changed",
        SkipReason::Busy => "busy",
        SkipReason::Executing => "executing",
        SkipReason::TargetTaken => "target-taken",
        SkipReason::Blocked => "blocked",
        SkipReason::SpaceNeeded => "space-needed",
        SkipReason::NotExchangeable => "not-exchangeable",
        SkipReason::Unreadable => "unreadable",
        SkipReason::Compressed => "compressed",
    }
}

/// The phrase for the reason of a move.
pub const fn why(reason: Why) -> &'static str {
    match reason {
        Why::Defragment => "put fragmented files together",
        Why::FillGap => "fill gaps, so that the free space gathers elsewhere",
        Why::MakeRoom => "make room for larger files",
        Why::StepAside => "step aside, and move once more later",
    }
}
