//! What came of something that a run does when its passes are done.

use super::analysis::Analysis;
use super::optimization::Optimization;
use longrun_engine::Stop;
use longrun_layout::Bytes;

/// Of placing by heat, or of bringing together what is read at boot.
pub struct Came<T> {
    /// What the report says about it, if anything.
    pub told: Option<T>,
    /// The volume after it and what was moved, if anything was.
    pub then: Option<(Analysis, Bytes)>,
    /// Why it was stopped, if it was.
    pub stop: Option<Stop>,
}

impl Optimization {
    /// The same with what followed its passes.
    pub(super) fn followed_by(mut self, then: Option<(Analysis, Bytes)>, stop: Option<Stop>) -> Self {
        if let Some((after, moved)) = then {
            self.after = after;
            self.bytes_moved += moved.0;
        }
        self.stopped = self.stopped.or(stop);
        self
    }
}

impl<T> Came<T> {
    /// Nothing was done.
    pub const fn nothing(told: Option<T>) -> Self {
        Self { told, then: None, stop: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::optimization::tests::optimization;
    use super::*;

    #[test]
    fn a_run_of_which_the_placing_was_stopped_was_stopped() {
        let came = Came { stop: Some(Stop::Cancelled), ..Came::nothing(None) };
        assert_eq!(optimization(None).with_placement(came).stop(), Some(Stop::Cancelled));
    }
}
