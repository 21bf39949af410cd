//! Decides how much runway a growing file gets: pure, replayable.
