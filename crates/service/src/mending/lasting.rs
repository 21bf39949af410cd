//! Which failures and refusals of mending last, and which pass. Pure: owns only this distinction.

use longrun_engine::{Rescued, SkipReason, VolumeError};
use longrun_volume::mend::NotMended;

/// Whether no later attempt can go better, as long as the volume is mounted. What the kernel could not do once (no
/// memory, one bad block, a device that was away) it may do the next time.
pub(super) fn is_for_good(error: &VolumeError) -> bool {
    match error {
        VolumeError::NotAVolume { .. } | VolumeError::Unsupported { .. } | VolumeError::Damaged { .. } => true,
        // A file whose data could not be put back is one too many.
        VolumeError::Unwritten { rescued, .. } => !matches!(**rescued, Rescued::PutBack),
        VolumeError::NotWritable { .. }
        | VolumeError::Image(_)
        | VolumeError::Unfinished { .. }
        | VolumeError::Journal { .. }
        | VolumeError::NoDiscards { .. }
        | VolumeError::InUse { .. }
        | VolumeError::NotPermitted { .. }
        | VolumeError::TooFull { .. }
        | VolumeError::MemoryLimit { .. }
        | VolumeError::Io { .. }
        | VolumeError::Barrier { .. }
        | VolumeError::WriteFailed { .. }
        | VolumeError::NotClosed(_)
        | VolumeError::Interrupted => false,
    }
}

/// Whether a later attempt may go better.
pub(super) fn is_passing(reason: NotMended) -> bool {
    use SkipReason::{Blocked, Busy, Changed, Executing, SpaceNeeded, TargetTaken};
    match reason {
        NotMended::NoGain | NotMended::LowSpace | NotMended::Cancelled | NotMended::OtherOptimizer => true,
        NotMended::Skipped(reason) => {
            matches!(reason, Busy | Changed | Executing | SpaceNeeded | TargetTaken | Blocked)
        }
        NotMended::Shared | NotMended::Compressed | NotMended::WholeEnough | NotMended::Dear | NotMended::Budget => {
            false
        }
    }
}
