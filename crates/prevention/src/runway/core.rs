//! What the facade does. To come.

use crate::policy::Settings;
use crate::prevention::{GivenBack, Options, PreventionError, Reaction, SensorSnapshot, Snapshot, Swept, Totals};
use crate::{FileKey, SensorKind, Sink, Watched};
use longrun_sys::DeviceNumber;
use std::sync::Arc;

pub(crate) struct Core {
    sink: Arc<dyn Sink>,
}

impl Core {
    pub(crate) fn start(_options: Options, sink: Arc<dyn Sink>) -> Result<Arc<Self>, PreventionError> {
        Ok(Arc::new(Self { sink }))
    }

    pub(crate) fn watch(&self, _volume: &Watched, _settings: Settings) -> Result<Swept, PreventionError> {
        Ok(Swept::default())
    }

    pub(crate) fn adjust(&self, device: DeviceNumber, _settings: Settings) -> Result<(), PreventionError> {
        Err(PreventionError::Unknown { device })
    }

    pub(crate) fn unwatch(&self, _device: DeviceNumber) -> GivenBack {
        GivenBack::default()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            volumes: Vec::new(),
            sensor: SensorSnapshot { kind: SensorKind::Bpf, reason: None, signals: 0, lost: 0, broken: None },
            queue: 0,
            reaction: Reaction::default(),
            journal_files: 0,
            journal_trouble: None,
        }
    }

    pub(crate) fn quiet(&self, _file: &FileKey) -> bool {
        true
    }

    pub(crate) fn stop(&self) -> Totals {
        _ = &self.sink;
        Totals { last: self.snapshot(), given_back: GivenBack::default() }
    }
}
