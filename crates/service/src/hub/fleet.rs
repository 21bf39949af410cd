//! This machine's part in a fleet: which storage it shares, what waits there for permission, and the policy that holds.
//!
//! Owns the policy in the state directory. What is permitted says `fleet.rs`.

use super::jobs::Place;
use super::{Hub, Request};
use crate::config::{self, FleetMode, Moment, in_force, load_in_force, policy_path};
use crate::fleet::{Groups, groups, shift};
use crate::jobs::Ending;
use crate::menders::NOT_PERMITTED;
use crate::threads::lock;
use longrun_api::fleet::{Fleet, Permission, Policy, StorageGroup};
use longrun_api::model::Status;
use longrun_governor::{DiskKind, Disks};
use longrun_ledger::{Account, Severity};
use longrun_sys::replace_file;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The identity of this machine: the hosts of an array have different ones.
const MACHINE_ID: &str = "/etc/machine-id";
/// The longest time that a change of the policy waits to be in effect.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that the agent waits for a job to stop: the lease is renewed by the agent meanwhile, or ends by itself.
const STOPPING: Duration = Duration::from_secs(5);

/// Why the policy was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// This machine obeys no fleet.
    #[error(
        "fleet = \"off\" is configured: this machine obeys no policy; set fleet = \"rest\" or \"go-on\" in [service]"
    )]
    Off,
    /// The policy is not valid, or does not go with the configuration file.
    #[error("{0}; nothing was changed")]
    Wrong(String),
    /// It cannot be kept.
    #[error("{path}: keeping the policy failed: {source}; check the state directory", path = path.display())]
    Place {
        /// Where it is kept.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Hub {
    /// Tells what the fleet permits about the volumes that are there.
    pub(super) fn set_fleet(&self) {
        let mode = self.config().service.fleet;
        let of = |place: Place| (place.watched.point.clone(), groups_of(&place));
        // Nothing is looked for on machines that obey no fleet.
        let volumes =
            if mode == FleetMode::Off { BTreeMap::new() } else { self.places().into_iter().map(of).collect() };
        self.fleet.set(mode, volumes);
    }

    /// Begins and ends what the fleet permits, and no longer permits.
    pub(super) fn follow_permissions(&self) {
        if self.config().service.fleet != FleetMode::Off && self.fleet.has_changed() {
            self.set_menders();
        }
    }

    /// What the agent permits. Returns when no job works any more where work is not permitted: then the agent gives the lease back, and
    /// another host may begin. A file that is being mended waits with the next chunk. False when a job goes on for so long that this was
    /// not waited for; it is told to pause, and does.
    pub fn permit(&self, permission: Permission) -> bool {
        self.fleet.permit(permission);
        let until = Instant::now() + STOPPING;
        let places = self.places();
        while let Some(job) = self.jobs.running().and_then(|id| self.jobs.get(id)) {
            let place = places.iter().find(|place| place.id == job.volume);
            if place.is_none_or(|place| self.fleet.permits(&place.watched.point)) {
                return true;
            }
            self.jobs.halt(job.id, Ending::Pause(NOT_PERMITTED.to_owned()));
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// This machine's part in a fleet.
    #[must_use]
    pub fn part_in_fleet(&self) -> Fleet {
        self.part_with(&self.status())
    }

    /// The status, and this machine's part in a fleet unless it obeys none.
    #[must_use]
    pub fn status_and_part(&self) -> (Status, Option<Fleet>) {
        let status = self.status();
        let part = (self.config().service.fleet != FleetMode::Off).then(|| self.part_with(&status));
        (status, part)
    }

    fn part_with(&self, status: &Status) -> Fleet {
        let mut found: BTreeMap<String, StorageGroup> = BTreeMap::new();
        for place in self.places().iter().filter(|place| place.settings.enabled) {
            let volume = status.volumes.iter().find(|volume| volume.id == place.id);
            for (name, source) in groups_of(place) {
                let group = found.entry(name.clone()).or_insert_with(|| StorageGroup {
                    permitted: self.fleet.permits_group(&name),
                    name,
                    source: source.to_owned(),
                    ..StorageGroup::default()
                });
                group.volumes.push(place.watched.point.to_string_lossy().into_owned());
                group.wants |= self.wants(place);
                group.rotational |= place
                    .disks
                    .iter()
                    .filter_map(|disk| Disks::below(*disk))
                    .any(|disks| disks.policy == longrun_governor::DiskPolicy::of(DiskKind::Rotational));
                if let Some(volume) = volume {
                    group.moved_bytes +=
                        volume.mended.moved_bytes + volume.optimized.moved_bytes + self.jobs.moving(&place.id);
                    let recent = volume.governor.probes.as_ref().map(|probes| probes.recent_us as f64);
                    group.latency_us = group.latency_us.into_iter().chain(recent).reduce(f64::max);
                }
            }
        }
        Fleet {
            mode: self.config().service.fleet.to_string(),
            in_touch: self.fleet.is_in_touch(),
            groups: found.into_values().collect(),
            policy: lock(&self.policy).clone(),
        }
    }

    /// Whether there is work on a volume that only the fleet's permission is missing for.
    fn wants(&self, place: &Place) -> bool {
        let places = std::slice::from_ref(place);
        let is_free = |job: &longrun_api::jobs::Job| {
            job.volume == place.id && self.obstacle_at_home(job, places, Moment::now()).is_none()
        };
        let scan = || {
            let volumes = lock(&self.volumes);
            let entry = volumes.get(&place.watched.device);
            entry.is_some_and(|entry| entry.is_due(Instant::now(), Moment::now()))
        };
        self.menders.has_work(&place.watched, &place.settings) || self.jobs.active().iter().any(is_free) || scan()
    }

    /// Puts a policy into effect; with none, the policy there is no longer holds. Waits for disks and volumes.
    ///
    /// # Errors
    /// [`PolicyError`]; nothing is changed then.
    pub fn set_policy(&self, policy: Option<&Policy>) -> Result<(), PolicyError> {
        let _one = lock(&self.changing);
        let settings = &self.config().service;
        if settings.fleet == FleetMode::Off {
            return Err(PolicyError::Off);
        }
        let path = policy_path(&settings.state_directory);
        let failed = |source| PolicyError::Place { path: path.clone(), source };
        let text = match policy {
            Some(policy) => {
                let file =
                    config::Stored::read(&self.config_file()).map_err(|error| PolicyError::Wrong(error.to_string()))?;
                config::combined(file.text.as_deref().unwrap_or_default(), policy).map_err(PolicyError::Wrong)?;
                let bytes = serde_json::to_vec(policy).map_err(|error| failed(error.into()))?;
                replace_file(&path, &bytes).map_err(failed)?;
                format!("version {} of the fleet's policy holds", policy.version)
            }
            None => {
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    other => other.map_err(failed)?,
                }
                "the fleet's policy does not hold any more".to_owned()
            }
        };
        let (done, waiting) = mpsc::sync_channel(1);
        self.request(Request::Reload(Some(done)));
        // A volume that does not respond may delay it: it takes effect when it responds.
        _ = waiting.recv_timeout(PATIENCE);
        self.activity.tell(&Account::service(), Severity::Info, "policy", text, None);
        Ok(())
    }

    /// Reads the configuration, with the policy in it.
    pub(super) fn read_config(&self) -> Result<config::InForce, config::ConfigError> {
        let state = self.config().service.state_directory.clone();
        load_in_force(self.config_path.as_deref(), Some(&state))
    }

    /// The configuration that holds, with the policy that lies in the state directory now.
    pub(super) fn read_policy(&self) -> Result<config::InForce, config::ConfigError> {
        let state = self.config().service.state_directory.clone();
        let file = lock(&self.file).clone();
        in_force(file, self.config_path.as_deref(), Some(&state))
    }
}

fn groups_of(place: &Place) -> Groups {
    groups(&place.settings.storage_group, place.disks.iter().copied())
}

impl Place {
    /// `now`, as far as the windows of passes are concerned: they begin and end later on this machine.
    pub(super) fn shifted(&self, now: Moment) -> Moment {
        now.earlier(self.shift())
    }

    fn shift(&self) -> u16 {
        let spread = self.settings.window_spread;
        if spread.is_zero() {
            return 0;
        }
        let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        shift(&machine, &groups_of(self), spread)
    }
}
