//! The governor of mending on a volume. It is created when there is work for the first time.
//!
//! Owns only that governor. Never decides: the policy of the governor does.

use crate::activity::reason_word;
use crate::config::VolumeSettings;
use crate::fleet::Permissions;
use crate::mending::Governor;
use crate::threads::lock;
use longrun_api::model;
use longrun_engine::{Permission, Turn};
use longrun_governor::{Balance, DiskKind, DiskPolicy, Disks, Duty, Latency, Loads, MinProgress, Pace};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use longrun_volume::Target;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long to wait before permission of the fleet is looked for again.
const ASK_FLEET_AGAIN: Duration = Duration::from_millis(500);

/// How much mending gives way, and which share of the time it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// To others.
    pub pace: Pace,
    /// At most.
    pub duty: Duty,
    /// At least, even if others have to wait.
    pub least: MinProgress,
}

impl Manner {
    /// What `settings` say of it.
    #[must_use]
    pub fn of(settings: &VolumeSettings) -> Self {
        Self { pace: settings.pace, duty: settings.max_duty, least: settings.min_progress }
    }
}

/// The governor of mending on one volume.
#[derive(Debug)]
pub struct Governed {
    point: PathBuf,
    fleet: Arc<Permissions>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    manner: Manner,
    /// What the volume lay on when it was looked last.
    disks: Option<Disks>,
    governor: Option<longrun_governor::Governor>,
}

impl Governed {
    /// Of the volume mounted at `point`.
    pub fn new(point: PathBuf, manner: Manner, fleet: Arc<Permissions>) -> Self {
        Self { point, fleet, state: Mutex::new(State { manner, disks: None, governor: None }) }
    }

    /// In another manner from now on.
    pub fn set(&self, manner: Manner) {
        let mut state = lock(&self.state);
        if state.manner != manner {
            (state.manner, state.governor) = (manner, None);
        }
    }

    /// The most bytes to move for each fragment removed. Examines the devices below the volume again, which can
    /// change, and uses the result from now on. Without giving way, files are mended as on the kind of disk that needs it
    /// most.
    pub fn worth(&self) -> Bytes {
        let disks = self.device().and_then(Disks::below);
        let policy = disks.as_ref().map(|disks| disks.policy);
        let mut state = lock(&self.state);
        if state.disks != disks {
            state.disks = disks;
            // It would look by itself, but only while there is work.
            state.governor.iter_mut().for_each(longrun_governor::Governor::look_below);
        }
        let policy = policy.filter(|_| state.manner.pace != Pace::Fast);
        policy.unwrap_or_else(|| DiskPolicy::of(DiskKind::Rotational)).worth()
    }

    /// Files of btrfs name another device than the one that they lie on.
    fn device(&self) -> Option<DeviceNumber> {
        Target::resolve(&self.point).ok().and_then(|target| target.device_number)
    }

    /// What it saw and did so far.
    pub fn loads(&self) -> model::Governor {
        let state = lock(&self.state);
        let loads = state.governor.as_ref().map(longrun_governor::Governor::loads);
        let idle = || model::Governor { pace: state.manner.pace.to_string(), ..model::Governor::default() };
        let disk = state.disks.as_ref().map(Disks::to_string);
        model::Governor { disk, ..loads.map_or_else(idle, told) }
    }
}

impl Governor for Governed {
    fn permission(&self, _device: DeviceNumber, next: Bytes) -> Permission {
        // A file that is being mended stops at once: the next host may begin when the permission of this one ends.
        if !self.fleet.permits(&self.point) {
            return Permission::Wait(ASK_FLEET_AGAIN);
        }
        let mut state = lock(&self.state);
        let Manner { pace, duty, least } = state.manner;
        let new = || longrun_governor::Governor::new(self.device(), pace).at_most(duty).at_least(least);
        state.governor.get_or_insert_with(new).permission(next)
    }

    fn turn(&self, _device: DeviceNumber) -> Turn {
        lock(&self.state).governor.as_ref().map_or(Turn::UNLIMITED, longrun_governor::Governor::turn)
    }
}

fn told(loads: Loads) -> model::Governor {
    model::Governor {
        pace: loads.pace.to_string(),
        devices: loads.devices,
        disk: None,
        own_bytes: loads.own_bytes.0,
        foreign_bytes: loads.foreign_bytes.0,
        pauses: loads.pauses,
        paused_seconds: loads.paused_seconds,
        pausing: loads.pausing.map(|why| why.to_string()),
        waits_for: loads.pausing.map(reason_word),
        account: loads.account.map(|Balance { requests, met, usual_seconds, charged_seconds, credit_seconds }| {
            model::Account { requests, met, usual_seconds, charged_seconds, credit_seconds }
        }),
        other_program: loads.other_program,
        probes: loads.latency.map(|Latency { usual_us, recent_us }| model::Probes { usual_us, recent_us }),
    }
}
