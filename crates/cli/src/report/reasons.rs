//! Why files were moved, as a phrase, and why they were not, as a stable word for JSON.

use longrun_engine::SkipReason;
use longrun_layout::Pin;
use longrun_planner::Why;

/// The word for a reason in JSON. Part of the contract.
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
            Pin::Directory => "directory",
            Pin::UnknownAttribute => "unknown-attribute",
            Pin::Refused => "refused",
            Pin::Gathered => "gathered",
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
        SkipReason::NoRoomInRecord => "no-room-in-record",
    }
}

/// The phrase for the reason of a move.
pub const fn why(reason: Why) -> &'static str {
    match reason {
        Why::Defragment => "defragment files",
        Why::FillGap => "fill gaps, to consolidate the free space",
        Why::MakeRoom => "make room for larger files",
        Why::Gather => "put directories, the file table, or what is read at boot side by side",
        Why::Place => "are read often, and go to where the disk reads faster",
        Why::StepAside => "move out of the way, and move again later",
    }
}
