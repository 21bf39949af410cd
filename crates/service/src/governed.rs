//! Mending gives way to others: the governor of a volume, made when there is work for the first time.
//!
//! Owns nothing but that governor. Never decides: that is the law's.

use crate::books::lock;
use crate::mending::Governor;
use crate::model;
use longrun_governor::{Loads, Pace, Verdict};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use longrun_volume::Target;
use longrun_volume::engine::Permission;
use std::path::PathBuf;
use std::sync::Mutex;

/// The governor of mending on one volume.
#[derive(Debug)]
pub struct Governed {
    point: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    governor: Option<longrun_governor::Governor>,
}

impl Governed {
    /// Of the volume mounted at `point`.
    pub fn new(point: PathBuf, pace: Pace) -> Self {
        Self { point, state: Mutex::new(State { pace, governor: None }) }
    }

    /// Another pace from now on.
    pub fn set_pace(&self, pace: Pace) {
        let mut state = lock(&self.state);
        if state.pace != pace {
            *state = State { pace, governor: None };
        }
    }

    /// What it saw and did so far.
    pub fn loads(&self) -> model::Governor {
        let state = lock(&self.state);
        let loads = state.governor.as_ref().map(longrun_governor::Governor::loads);
        loads.map_or_else(|| model::Governor { pace: state.pace.to_string(), ..model::Governor::default() }, told)
    }
}

impl Governor for Governed {
    fn permission(&self, _device: DeviceNumber, next: Bytes) -> Permission {
        let mut state = lock(&self.state);
        let pace = state.pace;
        // Files of btrfs name another device than the one that they lie on.
        let device = || Target::resolve(&self.point).ok().and_then(|target| target.device_number);
        match state.governor.get_or_insert_with(|| longrun_governor::Governor::new(device(), pace)).permission(next) {
            Verdict::Go => Permission::Go,
            Verdict::Wait(time) => Permission::Wait(time),
        }
    }
}

fn told(loads: Loads) -> model::Governor {
    model::Governor {
        pace: loads.pace.to_string(),
        devices: loads.devices,
        own_bytes: loads.own_bytes.0,
        foreign_bytes: loads.foreign_bytes.0,
        pauses: loads.pauses,
        paused_seconds: loads.paused_seconds,
        pausing: loads.pausing.map(|why| why.to_string()),
    }
}
