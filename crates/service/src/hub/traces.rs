//! Traces of the devices of volumes that the service knows.

use super::Hub;
use super::jobs::members;
use crate::traces::Traced;
use longrun_api::trace::VolumeTrace;

/// Why a trace is not begun.
#[derive(Debug, PartialEq, Eq)]
pub enum NoTrace {
    /// There is no such volume.
    Unknown,
    /// Another one goes on, or there is no thread for it: in a sentence.
    Busy(String),
}

impl Hub {
    /// The trace of a volume that goes on, or the last one; `None` for a volume that is not known.
    #[must_use]
    pub fn trace(&self, id: &str) -> Option<VolumeTrace> {
        self.found(id).ok().map(|_| self.traces.of(id))
    }

    /// Begins a trace.
    ///
    /// # Errors
    /// [`NoTrace`].
    pub fn begin_trace(&self, id: &str, seconds: u64) -> Result<VolumeTrace, NoTrace> {
        let found = self.found(id).map_err(|_| NoTrace::Unknown)?;
        let target = found.watched.point.to_string_lossy().into_owned();
        let traced = Traced { id: id.to_owned(), target, members: members(&found.source) };
        self.traces.begin(&self.threads, traced, seconds).map_err(NoTrace::Busy)
    }

    /// Ends the trace of a volume; `None` for a volume that is not known.
    pub fn end_trace(&self, id: &str) -> Option<VolumeTrace> {
        self.found(id).ok().map(|_| self.traces.end(id))
    }
}
