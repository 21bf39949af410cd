//! The state of the service, in the types of its API.

use super::{Entry, Hub};
use crate::activity::reason_word;
use crate::config::Moment;
use crate::gauges::own_use;
use crate::threads::lock;
use longrun_api::model::{self, HealthLevel, Prevented, Status};
use longrun_prevention::{Snapshot, VolumeSnapshot};
use std::path::Path;

impl Hub {
    /// How the service stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let snapshot = self.prevention().map(|prevention| prevention.snapshot());
        let history = self.activity.status();
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            history: model::History {
                recording: history.recording,
                note: history.note,
                dropped: history.dropped,
                bytes: history.bytes,
            },
            own: own_use(),
            mending: self.menders.snapshot(),
            jobs: self.jobs.active(),
            ..Status::default()
        };
        {
            let volumes = lock(&self.volumes);
            let figures = |entry: &Entry| {
                let volumes = snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.volumes);
                volumes.iter().find(|volume| volume.point == entry.found.watched.point).map(prevented)
            };
            status.volumes = volumes.values().map(|entry| self.volume(entry, figures(entry))).collect();
        }
        let (places, now) = (self.places(), Moment::now());
        for volume in &mut status.volumes {
            if let Some(place) = places.iter().find(|place| place.id == volume.id) {
                volume.pass = self.pass(place, now);
                volume.optimized = self.jobs.totals(&place.id);
            }
        }
        status.mending.rests = status.volumes.iter().any(|volume| volume.mending_rests.is_some());
        status.volumes.sort_by(|a, b| a.mount.cmp(&b.mount));
        if let Some(snapshot) = &snapshot {
            tell_prevention(&mut status, snapshot);
        }
        status.troubles = self.troubles(&status, snapshot.as_ref());
        status.healthy = status.troubles.is_empty();
        status
    }

    fn volume(&self, entry: &Entry, prevented: Option<Prevented>) -> model::Volume {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let point = &entry.found.watched.point;
        let mending = entry.settings.enabled && entry.settings.mending;
        let rest = mending.then(|| self.menders.rest(point, &entry.settings)).flatten();
        let mut governor = self.menders.governor(entry.found.watched.device, &entry.settings);
        governor.waits_for = rest.map(|rest| rest.word().to_owned()).or(governor.waits_for);
        model::Volume {
            id: entry.id.clone(),
            mount: text(point),
            mounts: entry.found.mounts.iter().map(|mount| text(mount)).collect(),
            device: text(&entry.found.source),
            filesystem: entry.found.watched.filesystem.name().to_owned(),
            label: entry.superblock.label.clone(),
            enabled: entry.settings.enabled,
            prevention: entry.watched && entry.settings.prevention,
            mending,
            mending_rests: rest.map(|rest| rest.to_string()),
            trouble: entry
                .trouble
                .clone()
                .or_else(|| entry.unopened.clone())
                .or_else(|| self.menders.trouble(&entry.found.watched)),
            prevented: prevented.unwrap_or_default(),
            mended: self.activity.mending_of(point),
            governor,
            space: entry.space.clone(),
            scan: entry.scan.as_ref().map(|(at, gauge)| model::Scan {
                at: at.to_string(),
                files: gauge.files.unwrap_or(0),
                fragmented_files: gauge.fragmented_files.unwrap_or(0),
                excess_fragments: gauge.excess_fragments.unwrap_or(0),
            }),
            scan_trouble: entry.scan_trouble.clone(),
            health: entry.health.clone(),
            pass: model::Pass::default(),
            optimized: model::Optimized::default(),
            saved: self.activity.saved(&entry.account()),
        }
    }

    /// Everything that is not as it should be, each with what to do about it.
    fn troubles(&self, status: &Status, snapshot: Option<&Snapshot>) -> Vec<String> {
        let mut troubles = self.threads.troubles();
        troubles.extend(lock(&self.config_trouble).clone());
        troubles.extend(lock(&self.prevention_trouble).clone().map(|why| format!("prevention does not run: {why}")));
        if let Some(snapshot) = snapshot {
            troubles.extend(snapshot.journal_trouble.clone());
            troubles.extend(
                snapshot.sensor.broken.clone().map(|why| format!("the sensor is broken: {why}; restart the service")),
            );
        }
        if !status.history.recording
            && let Some(note) = &status.history.note
        {
            troubles.push(format!("the history is not being written: {note}"));
        }
        troubles.extend(self.silent_volumes());
        for volume in &status.volumes {
            troubles.extend(volume.trouble.clone());
            if volume.health.level == HealthLevel::Alert {
                troubles.push(format!(
                    "{}: writes may fail although space is free: {}",
                    volume.mount, volume.health.sentence
                ));
            }
        }
        troubles
    }

    /// Whether everything that must run does: what the watchdog is told.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let broken = self.prevention().is_some_and(|prevention| prevention.snapshot().sensor.broken.is_some());
        self.threads.troubles().is_empty() && !broken
    }
}

fn tell_prevention(status: &mut Status, snapshot: &Snapshot) {
    status.sensor = Some(model::Sensor {
        kind: snapshot.sensor.kind.to_string(),
        reason: snapshot.sensor.reason.clone(),
        signals: snapshot.sensor.signals,
        lost: snapshot.sensor.lost,
        broken: snapshot.sensor.broken.clone(),
    });
    let reaction = snapshot.reaction;
    status.reaction = model::Reaction {
        count: reaction.count,
        total_us: reaction.total_us,
        p50_us: reaction.p50_us,
        p99_us: reaction.p99_us,
        max_us: reaction.max_us,
    };
    status.queue = snapshot.queue;
    status.journal_files = snapshot.journal_files;
}

fn prevented(volume: &VolumeSnapshot) -> Prevented {
    Prevented {
        fragments: volume.prevented,
        slipped: volume.excess,
        runways: volume.runways,
        held_bytes: volume.held.0,
        to_look_at: volume.to_look_at,
        grants: volume.grants,
        granted_bytes: volume.granted.0,
        given_back_bytes: volume.trimmed.0,
        yielded_bytes: volume.yielded.0,
        settled: volume.settled,
        left: volume.left.iter().map(|(reason, count)| (reason_word(*reason), *count)).collect(),
        short_of_space: volume.short_of_space,
    }
}
