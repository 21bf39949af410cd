//! Watches volumes that are mounted and stops watching those that are unmounted.

use super::jobs::disks;
use super::{Entry, Hub};
use crate::config::{Config, VolumeNames, VolumeSettings};
use crate::gauges::is_scanned_daily;
use crate::threads::lock;
use crate::volumes::{Change, Found, changes, find, sight};
use jiff::Timestamp;
use longrun_api::model;
use longrun_ledger::{Account, Severity, VolumeIdentity};
use longrun_prevention::{PreventionError, Watched};
use longrun_sys::{DeviceNumber, MOUNT_TABLE, Superblock, format_uuid, read_mounts};
use longrun_volume::Identity;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long after it has come, a volume is scanned for the first time: the machine is often busy right after a mount.
const FIRST_SCAN: Duration = Duration::from_secs(60);

impl Hub {
    /// Compares the mount table with what is watched, and does what is to be done.
    pub fn refresh(self: &Arc<Self>) {
        let _one = lock(&self.refreshing);
        let mounts = match read_mounts() {
            Ok(mounts) => mounts,
            Err(error) => return tracing::error!("{MOUNT_TABLE}: reading it failed: {error}; it is tried again"),
        };
        let now = find(&mounts, sight);
        let before: BTreeMap<DeviceNumber, Found> =
            lock(&self.volumes).iter().map(|(device, entry)| (*device, entry.found.clone())).collect();
        for change in changes(&before, &now) {
            match change {
                // What is put off is seen again the next time.
                Change::Gone(device) => _ = self.act(device, "ending the watch", move |hub| hub.gone(device)),
                Change::Came(found) => self.come(*found),
                Change::Renamed(found) => {
                    if let Some(entry) = lock(&self.volumes).get_mut(&found.watched.device) {
                        entry.found = *found;
                    }
                }
            }
        }
        self.try_again();
    }

    fn come(self: &Arc<Self>, found: Found) {
        _ = self.act(found.watched.device, "starting to watch it", move |hub| hub.came(found));
    }

    fn came(&self, found: Found) {
        let watched = found.watched.clone();
        let (id, superblock) = self.identify(&found);
        let settings = settings(&self.config(), &found, &superblock);
        let scan_wanted = settings.enabled && is_scanned_daily(watched.filesystem) && !settings.scan_interval.is_zero();
        let entry = Entry {
            next_scan: scan_wanted.then(|| Instant::now() + FIRST_SCAN.min(settings.scan_interval)),
            id,
            superblock,
            settings: settings.clone(),
            watched: false,
            trouble: None,
            unopened: None,
            space: model::Space::default(),
            health: model::Health::default(),
            scan: None,
            scan_trouble: None,
            next_look: Instant::now(),
            scanned_at: None,
            looked_at: None,
            disks: disks(&found.source),
            pays: None,
            found,
        };
        let account = entry.account();
        if settings.enabled {
            self.activity.saw(VolumeIdentity {
                uuid: entry.id.clone(),
                label: entry.superblock.label.clone(),
                point: watched.point.clone(),
                device: entry.found.source.clone(),
                filesystem: watched.filesystem.name().to_owned(),
            });
        }
        tracing::info!(
            "{}: {} volume {} was found{}",
            watched.point.display(),
            watched.filesystem,
            entry.id,
            if settings.enabled { "" } else { "; the configuration disables it" }
        );
        lock(&self.volumes).insert(watched.device, entry);
        self.set_heat();
        self.set_fleet();
        if settings.enabled {
            self.menders.set(&watched, &settings);
            self.watch(&watched, &settings);
            self.look_at(watched.device, false);
            let text = format!("{}: the volume is watched", watched.point.display());
            self.activity.tell(&account, Severity::Info, "volume-came", text, None);
        }
    }

    fn gone(&self, device: DeviceNumber) {
        self.menders.end(device);
        if let Some(prevention) = self.prevention() {
            let back = prevention.unwatch(device);
            if back.left_files > 0 {
                tracing::info!(
                    "{device}: the runways of {} files stay in the journal until the volume is mounted again",
                    back.left_files
                );
            }
        }
        let Some(entry) = lock(&self.volumes).remove(&device) else { return };
        self.set_heat();
        let point = entry.found.watched.point.clone();
        let text = format!("{}: the volume was unmounted, or is now read-only", point.display());
        tracing::info!("{text}");
        self.activity.tell(&entry.account(), Severity::Info, "volume-gone", text, None);
        self.activity.forget(&point);
    }

    /// The id of a volume, and its superblock.
    fn identify(&self, found: &Found) -> (String, Superblock) {
        let watched = &found.watched;
        let by_number = |superblock| (watched.device.to_string(), superblock);
        let Identity { superblock, device, others } = match watched.identity() {
            Ok(identity) => identity,
            Err(error) => {
                tracing::debug!("{}: reading the superblock failed: {error}", found.source.display());
                return by_number(Superblock::default());
            }
        };
        let Some(uuid) = superblock.uuid.as_ref().map(format_uuid) else { return by_number(superblock) };
        let id = self.names.name(&uuid, &device, &others).unwrap_or_else(|(id, error)| {
            tracing::warn!("{}: recording its id {id} failed: {error}", watched.point.display());
            id
        });
        (id, superblock)
    }

    /// Has prevention watch a volume, or notes why it does not.
    fn watch(&self, watched: &Watched, settings: &VolumeSettings) {
        let Some(prevention) = self.prevention() else { return };
        let result = prevention.watch(watched, settings.policy());
        let mut volumes = lock(&self.volumes);
        let Some(entry) = volumes.get_mut(&watched.device) else { return };
        entry.watched = matches!(result, Ok(_) | Err(PreventionError::Known { .. }));
        let before = entry.trouble.take();
        entry.trouble = match result {
            Ok(swept) => {
                if swept.files > 0 {
                    let (files, bytes, open) = (swept.settled, swept.bytes, swept.open);
                    let point = watched.point.display();
                    tracing::info!(
                        "{point}: {bytes} bytes of runways of an earlier run were given back from {files} files; \
                         {open} files are still open"
                    );
                }
                None
            }
            Err(PreventionError::Known { .. }) => None,
            Err(error) => {
                let trouble = error.to_string();
                // It is tried again and again, and reported once.
                if before.as_ref() != Some(&trouble) {
                    tracing::warn!("{trouble}");
                }
                Some(trouble)
            }
        };
    }

    /// What did not work may work now.
    fn try_again(self: &Arc<Self>) {
        let idle: Vec<(Watched, VolumeSettings)> = lock(&self.volumes)
            .values()
            .filter(|entry| entry.settings.enabled && !entry.watched)
            .map(|entry| (entry.found.watched.clone(), entry.settings.clone()))
            .collect();
        for (watched, settings) in idle {
            _ = self.act(watched.device, "starting to watch it", move |hub| hub.watch(&watched, &settings));
        }
    }

    /// Tells the menders what holds now: settings, and the windows in which they rest.
    pub(super) fn set_menders(&self) {
        self.set_fleet();
        let all: Vec<(Watched, VolumeSettings)> =
            lock(&self.volumes).values().map(|entry| (entry.found.watched.clone(), entry.settings.clone())).collect();
        for (watched, settings) in all {
            self.menders.set(&watched, &settings);
        }
    }

    /// Pauses mending, jobs and scheduled scans until a time ([`Timestamp::MAX`]: until they are resumed), or resumes them. What is under
    /// way goes on to its end: a file is not left half mended.
    pub fn set_pause(&self, until: Option<Timestamp>) {
        self.menders.set_pause(until);
        self.set_menders();
        let text = match until {
            None => "mending, passes and scheduled scans go on: an operator has resumed them".to_owned(),
            Some(until) if until == Timestamp::MAX => {
                "an operator has paused mending, passes and scheduled scans".to_owned()
            }
            Some(until) => format!("an operator has paused mending, passes and scheduled scans until {until}"),
        };
        self.activity.tell(&Account::service(), Severity::Info, "pause", text, None);
    }

    /// Applies a new configuration to the volumes that are there.
    pub(super) fn apply_settings(self: &Arc<Self>) {
        let config = self.config();
        let mut ended = Vec::new();
        let mut adjusted = Vec::new();
        let mut begun = Vec::new();
        for (device, entry) in lock(&self.volumes).iter_mut() {
            let new = settings(&config, &entry.found, &entry.superblock);
            let old = std::mem::replace(&mut entry.settings, new.clone());
            if old.scan_interval != new.scan_interval || old.enabled != new.enabled {
                let wanted =
                    new.enabled && is_scanned_daily(entry.found.watched.filesystem) && !new.scan_interval.is_zero();
                entry.next_scan = wanted.then(|| Instant::now() + new.scan_interval);
            }
            match (entry.watched, new.enabled) {
                (true, false) => ended.push(*device),
                (true, true) if old != new => adjusted.push((*device, new)),
                (false, true) => begun.push((*device, entry.found.clone())),
                _ => {}
            }
        }
        self.set_menders();
        self.set_heat();
        if let Some(prevention) = self.prevention() {
            for device in ended {
                let prevention = Arc::clone(&prevention);
                // What is put off is done at the next reload.
                _ = self.act(device, "ending the watch", move |hub| {
                    let back = prevention.unwatch(device);
                    if let Some(entry) = lock(&hub.volumes).get_mut(&device) {
                        entry.watched = false;
                    }
                    hub.tidy_maps();
                    tracing::info!("{device}: the volume is no longer watched; {} bytes were given back", back.bytes);
                });
            }
            for (device, new) in adjusted {
                let prevention = Arc::clone(&prevention);
                let begun = self.act(device, "changing its settings", move |_| {
                    if let Err(error) = prevention.adjust(device, new.policy()) {
                        tracing::warn!("{error}");
                    }
                });
                if !begun {
                    tracing::warn!(
                        "{device}: the earlier settings stay in force; reload again when the volume responds"
                    );
                }
            }
        }
        for (device, found) in begun {
            // As if it had just been mounted: recorded, and scanned.
            lock(&self.volumes).remove(&device);
            self.come(found);
        }
    }
}

fn settings(config: &Config, found: &Found, superblock: &Superblock) -> VolumeSettings {
    let devices: [PathBuf; 2] =
        [found.source.clone(), std::fs::canonicalize(&found.source).unwrap_or_else(|_| found.source.clone())];
    let uuid = superblock.uuid.as_ref().map(format_uuid);
    config.settings_for(&VolumeNames {
        mounts: &found.mounts,
        uuid: uuid.as_deref(),
        label: superblock.label.as_deref(),
        devices: &devices,
    })
}
