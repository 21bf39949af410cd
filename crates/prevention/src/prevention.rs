//! The facade: one value that watches any number of volumes.
//!
//! Owns the threads, and the order in which they start and stop. Never decides about a runway and never touches a file:
//! [`crate::policy`] and [`crate::runway`] do.

use crate::policy::Settings;
use crate::runway::HintsUndone;
use crate::sensor::Sensor;
use crate::state::{GivenBack, Options, PreventionError, Snapshot, Swept, Totals};
use crate::{FileKey, Sink, Watched};
use longrun_sys::DeviceNumber;
use std::path::Path;
use std::sync::Arc;

/// Watches volumes until it is stopped or dropped.
pub struct Prevention {
    core: Arc<crate::runway::Core>,
}

impl Prevention {
    /// Begins, with no volume yet.
    ///
    /// # Errors
    /// [`PreventionError`]: another process has the state directory, or no sensor works.
    pub fn start(options: Options, sink: Arc<dyn Sink>) -> Result<Self, PreventionError> {
        Ok(Self { core: crate::runway::Core::start(options, sink)? })
    }

    /// As [`Self::start`], with a source of signals of one's own.
    ///
    /// # Errors
    /// [`PreventionError`]: another process has the state directory.
    pub fn start_with(
        options: &Options,
        sensor: Arc<dyn Sensor>,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, PreventionError> {
        Ok(Self { core: crate::runway::Core::start_with(options, sensor, sink)? })
    }

    /// Begins to watch a volume; what an earlier run left on it is given back first.
    ///
    /// # Errors
    /// [`PreventionError`]; the volume is then not watched.
    pub fn watch(&self, volume: &Watched, settings: Settings) -> Result<Swept, PreventionError> {
        self.core.watch(volume, settings)
    }

    /// Gives a volume other settings. What has been granted stays.
    ///
    /// # Errors
    /// [`PreventionError::Unknown`].
    pub fn adjust(&self, device: DeviceNumber, settings: Settings) -> Result<(), PreventionError> {
        self.core.adjust(device, settings)
    }

    /// Stops watching a volume: what no one has open is given back, the rest stays in the journal, and so does all of a
    /// volume that does not answer for some seconds. Of an unknown volume nothing is given back.
    pub fn unwatch(&self, device: DeviceNumber) -> GivenBack {
        self.core.unwatch(device)
    }

    /// Takes back the extent-size hints that were set on directories of a volume; files keep what they have inherited.
    ///
    /// # Errors
    /// [`PreventionError`]; what was not taken back stays recorded.
    pub fn undo_hints(&self, device: DeviceNumber) -> Result<HintsUndone, PreventionError> {
        self.core.undo_hints(device)
    }

    /// As [`Self::undo_hints`], while no prevention runs from this state directory.
    ///
    /// # Errors
    /// [`PreventionError::InUse`] while one does, among others.
    pub fn undo_hints_of(state_directory: &Path, volume: &Watched) -> Result<HintsUndone, PreventionError> {
        crate::runway::undo_hints_of(state_directory, volume)
    }

    /// How things stand.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Whether a file has no runway and has not been heard of for a while: mending may begin.
    #[must_use]
    pub fn quiet(&self, file: &FileKey) -> bool {
        self.core.quiet(file)
    }

    /// Gives everything back that no one has open, and ends. A volume that does not answer, because it is frozen or its device
    /// hangs, is waited for some seconds: what it holds stays in the journal. A second time there is nothing to do.
    pub fn stop(&self) -> Totals {
        self.core.stop()
    }
}

impl Drop for Prevention {
    fn drop(&mut self) {
        // A second stop finds nothing to do.
        drop(self.core.stop());
    }
}
