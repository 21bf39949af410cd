//! Decides how much runway a growing file gets: pure, replayable.

/// What may be done on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {}
