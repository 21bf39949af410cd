//! Volumes that come and go, and what is done about them.

use super::{Entry, Hub};
use crate::books::lock;
use crate::config::{Config, VolumeNames, VolumeSettings};
use crate::gauges::can_scan;
use crate::model;
use crate::volumes::{Change, Found, Identity, changes, find, format_uuid, identify, is_visible};
use longrun_ledger::{Severity, VolumeIdentity};
use longrun_prevention::{PreventionError, Watched};
use longrun_sys::DeviceNumber;
use longrun_volume::target::{MOUNT_TABLE, read_mounts};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So long after it has come, a volume is scanned for the first time: whoever mounts one has other things to do first.
const FIRST_SCAN: Duration = Duration::from_secs(60);

impl Hub {
    /// Compares the table of mounts with what is looked after, and does what is to be done.
    pub fn refresh(&self) {
        let _one = lock(&self.refreshing);
        let mounts = match read_mounts() {
            Ok(mounts) => mounts,
            Err(error) => return tracing::error!("{MOUNT_TABLE}: reading it failed: {error}; trying again"),
        };
        let now = find(&mounts, is_visible);
        let before: BTreeMap<DeviceNumber, Found> =
            lock(&self.volumes).iter().map(|(device, entry)| (*device, entry.found.clone())).collect();
        for change in changes(&before, &now) {
            match change {
                Change::Gone(device) => self.gone(device),
                Change::Came(found) => self.came(*found),
                Change::Renamed(found) => {
                    if let Some(entry) = lock(&self.volumes).get_mut(&found.watched.device) {
                        entry.found = *found;
                    }
                }
            }
        }
        self.try_again();
    }

    fn came(&self, found: Found) {
        let watched = found.watched.clone();
        let identity = self.identity_of(&found);
        let settings = settings(&self.config(), &found, &identity);
        let scan_wanted = settings.enabled && can_scan(watched.filesystem) && !settings.scan_interval.is_zero();
        let entry = Entry {
            next_scan: scan_wanted.then(|| Instant::now() + FIRST_SCAN.min(settings.scan_interval)),
            found,
            identity,
            settings: settings.clone(),
            watched: false,
            trouble: None,
            space: model::Space::default(),
            health: model::Health::default(),
            scan: None,
            next_look: Instant::now(),
            scanned_at: None,
            looked_at: None,
        };
        let account = entry.account();
        if settings.enabled {
            self.books.saw(VolumeIdentity {
                uuid: entry.id(),
                label: entry.identity.label.clone(),
                point: watched.point.clone(),
                device: entry.found.source.clone(),
                filesystem: watched.filesystem.name().to_owned(),
            });
        }
        tracing::info!(
            "{}: {} volume {} has come{}",
            watched.point.display(),
            watched.filesystem,
            entry.id(),
            if settings.enabled { "" } else { "; it is disabled by the configuration" }
        );
        lock(&self.volumes).insert(watched.device, entry);
        if settings.enabled {
            self.menders.set(&watched, &settings);
            self.watch(&watched, &settings);
            self.look_at(watched.device, false);
            let text = format!("{} is looked after", watched.point.display());
            self.books.tell(&account, Severity::Info, "volume-came", text, None);
        }
    }

    fn identity_of(&self, found: &Found) -> Identity {
        identify(&found.source, found.watched.filesystem.name()).unwrap_or_else(|error| {
            // A container may keep the device from us; newer kernels tell the UUID all the same.
            tracing::debug!("{}: its superblock cannot be read: {error}", found.source.display());
            let root = found.watched.open_root().ok();
            let uuid = root.and_then(|root| longrun_sys::volume_uuid(&root).ok());
            let uuid = uuid.filter(|bytes| *bytes != [0; 16]).map(|bytes| format_uuid(&bytes));
            Identity { uuid, ..Identity::default() }
        })
    }

    fn gone(&self, device: DeviceNumber) {
        self.menders.end(device);
        if let Some(prevention) = &*self.prevention() {
            let back = prevention.unwatch(device);
            if back.left_files > 0 {
                tracing::info!(
                    "{device}: runways of {} files stay in the journal until it comes back",
                    back.left_files
                );
            }
        }
        let Some(entry) = lock(&self.volumes).remove(&device) else { return };
        let point = entry.found.watched.point.clone();
        let text = format!("{} is gone, or cannot be written to any more", point.display());
        tracing::info!("{text}");
        self.books.tell(&entry.account(), Severity::Info, "volume-gone", text, None);
        self.books.forget(&point);
    }

    /// Has prevention look after a volume, or notes why it does not.
    fn watch(&self, watched: &Watched, settings: &VolumeSettings) {
        let guard = self.prevention();
        let Some(prevention) = &*guard else { return };
        let result = prevention.watch(watched, settings.policy());
        drop(guard);
        let mut volumes = lock(&self.volumes);
        let Some(entry) = volumes.get_mut(&watched.device) else { return };
        entry.watched = matches!(result, Ok(_) | Err(PreventionError::Known { .. }));
        entry.trouble = match result {
            Ok(swept) => {
                if swept.files > 0 {
                    let (files, bytes, open) = (swept.settled, swept.bytes, swept.open);
                    let point = watched.point.display();
                    tracing::info!(
                        "{point}: {bytes} bytes that an earlier run held in {files} files were given back; {open} files are open"
                    );
                }
                None
            }
            Err(PreventionError::Known { .. }) => None,
            Err(error) => {
                tracing::warn!("{error}");
                Some(error.to_string())
            }
        };
    }

    /// What did not work may work now.
    fn try_again(&self) {
        let idle: Vec<(Watched, VolumeSettings)> = lock(&self.volumes)
            .values()
            .filter(|entry| entry.settings.enabled && !entry.watched)
            .map(|entry| (entry.found.watched.clone(), entry.settings.clone()))
            .collect();
        for (watched, settings) in idle {
            self.watch(&watched, &settings);
        }
    }

    /// Tells the menders what holds now: settings, and the windows in which they rest.
    pub(super) fn set_menders(&self) {
        let all: Vec<(Watched, VolumeSettings)> =
            lock(&self.volumes).values().map(|entry| (entry.found.watched.clone(), entry.settings.clone())).collect();
        for (watched, settings) in all {
            self.menders.set(&watched, &settings);
        }
    }

    /// Applies a new configuration to the volumes that are there.
    pub(super) fn apply_settings(&self) {
        let config = self.config();
        let mut ended = Vec::new();
        let mut adjusted = Vec::new();
        let mut begun = Vec::new();
        for (device, entry) in lock(&self.volumes).iter_mut() {
            let new = settings(&config, &entry.found, &entry.identity);
            let old = std::mem::replace(&mut entry.settings, new.clone());
            if old.scan_interval != new.scan_interval || old.enabled != new.enabled {
                let wanted = new.enabled && can_scan(entry.found.watched.filesystem) && !new.scan_interval.is_zero();
                entry.next_scan = wanted.then(|| Instant::now() + new.scan_interval);
            }
            match (entry.watched, new.enabled) {
                (true, false) => {
                    entry.watched = false;
                    ended.push(*device);
                }
                (true, true) if old != new => adjusted.push((*device, new)),
                (false, true) => begun.push((*device, entry.found.clone())),
                _ => {}
            }
        }
        self.set_menders();
        if let Some(prevention) = &*self.prevention() {
            for device in ended {
                let back = prevention.unwatch(device);
                tracing::info!("{device} is looked after no more; {} bytes were given back", back.bytes);
            }
            for (device, new) in adjusted {
                if let Err(error) = prevention.adjust(device, new.policy()) {
                    tracing::warn!("{error}");
                }
            }
        }
        for (device, found) in begun {
            // As if it came just now: it is entered into the books, and looked at.
            lock(&self.volumes).remove(&device);
            self.came(found);
        }
    }
}

fn settings(config: &Config, found: &Found, identity: &Identity) -> VolumeSettings {
    let devices: [PathBuf; 2] =
        [found.source.clone(), std::fs::canonicalize(&found.source).unwrap_or_else(|_| found.source.clone())];
    config.settings_for(&VolumeNames {
        mounts: &found.mounts,
        uuid: identity.uuid.as_deref(),
        label: identity.label.as_deref(),
        devices: &devices,
    })
}
