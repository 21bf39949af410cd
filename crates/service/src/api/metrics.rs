//! Metrics for Prometheus, from the same figures as `status`. Their names are a contract; `docs/metrics.md` explains
//! them.

use super::exposition::{Format, Labels, Page};
use longrun_api::fleet::{Fleet, StorageGroup};
use longrun_api::model::{Account, HealthLevel, Status, Volume};

/// Of others nothing is known.
fn looked_after(status: &Status) -> impl Iterator<Item = &Volume> {
    status.volumes.iter().filter(|volume| volume.enabled)
}

fn labels(volume: &Volume) -> Labels {
    vec![("volume", volume.id.clone()), ("mount", volume.mount.clone()), ("filesystem", volume.filesystem.clone())]
}

/// The metrics as text.
pub fn encode(status: &Status, part: Option<&Fleet>, format: Format) -> String {
    let mut page = Page::new(format);
    volumes(&mut page, status);
    prevention(&mut page, status);
    service(&mut page, status);
    if let Some(part) = part {
        fleet(&mut page, part);
    }
    page.finish()
}

fn volumes(page: &mut Page, status: &Status) {
    let each = |of: fn(&Volume) -> Option<f64>| {
        let values = looked_after(status).filter_map(move |volume| Some((labels(volume), of(volume)?)));
        values.collect::<Vec<_>>()
    };
    page.gauge("volume_bytes", "Size of the volume", each(|v| Some(v.space.total_bytes as f64)));
    page.gauge("free_bytes", "Free space", each(|v| Some(v.space.free_bytes as f64)));
    page.gauge(
        "free_space_pieces",
        "Contiguous free ranges; absent where unknown",
        each(|v| v.space.free_pieces.map(|n| n as f64)),
    );
    page.gauge(
        "largest_free_piece_bytes",
        "The longest contiguous free range; absent where unknown",
        each(|v| v.space.largest_free_bytes.map(|n| n as f64)),
    );
    page.gauge(
        "excess_fragments",
        "Sum over files of (fragments - 1) at the last scan",
        each(|v| v.scan.as_ref().map(|s| s.excess_fragments as f64)),
    );
    page.gauge(
        "fragmented_files",
        "Files with more than one fragment at the last scan",
        each(|v| v.scan.as_ref().map(|s| s.fragmented_files as f64)),
    );
    page.gauge(
        "enospc_by_fragmentation_alert",
        "1 when a write may fail although space is free; absent where unknown",
        each(|v| match v.health.level {
            HealthLevel::Unknown => None,
            HealthLevel::Good => Some(0.0),
            HealthLevel::Alert => Some(1.0),
        }),
    );
    page.gauge("prevention_active", "1 when prevention is active", each(|v| Some(f64::from(u8::from(v.prevention)))));
}

fn prevention(page: &mut Page, status: &Status) {
    let each = |of: fn(&Volume) -> u64| {
        let values = looked_after(status).map(move |volume| (labels(volume), of(volume) as f64));
        values.collect::<Vec<_>>()
    };
    page.counter("fragments_prevented", "Excess fragments prevented", each(|v| v.prevented.fragments));
    page.counter("fragments_slipped", "Excess fragments that were not prevented", each(|v| v.prevented.slipped));
    page.counter("fragments_mended", "Excess fragments removed by mending", each(|v| v.mended.fragments));
    page.counter("files_mended", "Files mended", each(|v| v.mended.files));
    page.counter("mending_failures", "Failed attempts to mend a file", each(|v| v.mended.failed));
    page.counter("mending_bytes", "Bytes written for mending", each(|v| v.mended.moved_bytes));
    page.counter("passes", "Jobs that changed the volume as a whole and finished", each(|v| v.optimized.finished));
    page.counter("pass_failures", "Jobs of this kind that failed", each(|v| v.optimized.failed));
    page.counter("pass_fragments", "Excess fragments removed by them", each(|v| v.optimized.fragments));
    page.counter("pass_bytes", "Bytes moved by them", each(|v| v.optimized.moved_bytes));
    let saved = looked_after(status).map(|volume| (labels(volume), volume.saved.seconds));
    page.counter("saved_seconds", "Device time saved whenever all files with fewer fragments are read once", saved);
    let jobs = status.jobs.iter().filter_map(|job| {
        let volume = looked_after(status).find(|volume| volume.id == job.volume)?;
        let mut labels = labels(volume);
        labels.extend([("task", job.task.name().to_owned()), ("state", job.state.name().to_owned())]);
        Some((labels, job.progress.fraction))
    });
    page.gauge("job_progress", "Part of its present phase that a job has done, 0 to 1; absent without a job", jobs);
    page.counter("device_own_bytes", "I/O of the service, in bytes, while it had work", each(|v| v.governor.own_bytes));
    page.counter(
        "device_foreign_bytes",
        "I/O of other processes on this machine, in bytes, while the service had work",
        each(|v| v.governor.foreign_bytes),
    );
    let account = |of: fn(&Account) -> f64| {
        let values = looked_after(status)
            .filter_map(move |volume| Some((labels(volume), of(volume.governor.account.as_ref()?))));
        values.collect::<Vec<_>>()
    };
    page.counter("others_requests", "Requests of others while the service had work", account(|a| a.requests as f64));
    page.counter(
        "others_usual_seconds",
        "The time that these requests usually take, in all",
        account(|a| a.usual_seconds),
    );
    page.counter(
        "others_charged_seconds",
        "How much longer they took because they met the service's work",
        account(|a| a.charged_seconds.max(0.0)),
    );
    page.counter("mending_pauses", "Number of pauses in favour of other I/O", each(|v| v.governor.pauses));
    let paused = looked_after(status).map(|volume| (labels(volume), volume.governor.paused_seconds));
    page.counter("mending_paused_seconds", "Total time of these pauses", paused);
    let pausing =
        looked_after(status).map(|volume| (labels(volume), f64::from(u8::from(volume.governor.pausing.is_some()))));
    page.gauge("mending_paused", "1 while mending is paused in favour of other I/O", pausing);
    let waits = looked_after(status).filter_map(|volume| {
        let mut labels = labels(volume);
        labels.push(("reason", volume.governor.waits_for.clone()?));
        Some((labels, 1.0))
    });
    page.gauge("mending_waits", "1, with the reason why mending waits; absent when it does not wait", waits);
    let probes = looked_after(status).flat_map(|volume| {
        let of = |kind: &str, us: u64| {
            let mut labels = labels(volume);
            labels.push(("kind", kind.to_owned()));
            (labels, us as f64 / 1e6)
        };
        let probes = volume.governor.probes.iter();
        probes
            .flat_map(move |probes| [of("usual", probes.usual_us), of("recent", probes.recent_us)])
            .collect::<Vec<_>>()
    });
    page.gauge("probe_seconds", "Time of a small read while no process on this machine uses the disk", probes);
    page.gauge("runways", "Files that currently have a runway", each(|v| v.prevented.runways));
    page.gauge(
        "runway_bytes",
        "Bytes that runways hold and that are not yet written",
        each(|v| v.prevented.held_bytes),
    );
    page.counter("runways_granted", "Runways granted", each(|v| v.prevented.grants));
    page.counter("runways_granted_bytes", "Bytes of the runways granted", each(|v| v.prevented.granted_bytes));
    page.counter("runways_given_back_bytes", "Runway bytes given back", each(|v| v.prevented.given_back_bytes));
    page.counter(
        "runways_yielded_bytes",
        "Runway bytes given back early because the space was needed",
        each(|v| v.prevented.yielded_bytes),
    );
    page.gauge(
        "short_of_space",
        "1 while no runways are granted because too little space is free",
        each(|v| u64::from(v.prevented.short_of_space)),
    );
    let left = looked_after(status).flat_map(|volume| {
        volume.prevented.left.iter().map(move |(reason, count)| {
            let mut labels = labels(volume);
            labels.push(("reason", reason.clone()));
            (labels, *count as f64)
        })
    });
    page.counter("left", "Fragmenting files that got no runway, by reason", left);
}

fn service(page: &mut Page, status: &Status) {
    let one = |value: f64| [(Labels::new(), value)];
    let sensor = status.sensor.iter().map(|sensor| (vec![("kind", sensor.kind.clone())], 1.0));
    page.gauge("sensor", "1, with the sensor in use; absent when prevention does not run", sensor);
    page.counter(
        "signals",
        "Events received from the kernel",
        one(status.sensor.as_ref().map_or(0, |s| s.signals) as f64),
    );
    page.counter("signals_lost", "Events lost by the kernel", one(status.sensor.as_ref().map_or(0, |s| s.lost) as f64));
    let seconds = |us: u64| us as f64 / 1e6;
    let reaction = &status.reaction;
    let quantiles = [("0.5", reaction.p50_us), ("0.99", reaction.p99_us), ("1", reaction.max_us)];
    let quantiles = quantiles.map(|(quantile, us)| (quantile, seconds(us)));
    // Of nothing there are no quantiles.
    let quantiles = if reaction.count == 0 { &[] } else { quantiles.as_slice() };
    let help = "Time from an event to the runway, since the start";
    page.summary("reaction_seconds", help, reaction.count, seconds(reaction.total_us), quantiles);
    page.gauge("queue", "Files that are waiting for a worker", one(status.queue as f64));
    page.gauge("journal_files", "Files with runways in the journal", one(status.journal_files as f64));
    page.gauge("mending_queue", "Files that are waiting to be mended", one(status.mending.queued as f64));
    page.gauge(
        "history_recording",
        "1 when the history is being written",
        one(f64::from(u8::from(status.history.recording))),
    );
    page.counter(
        "own_io_bytes",
        "Bytes that the service read from and wrote to devices",
        one(status.own.io_bytes as f64),
    );
    page.counter("own_cpu_seconds", "Processor time of the service", one(status.own.cpu_seconds));
    page.gauge("own_resident_bytes", "Memory of the service", one(status.own.resident_bytes as f64));
    page.gauge("healthy", "1 when no trouble is known", one(f64::from(u8::from(status.healthy))));
    page.gauge("uptime_seconds", "Time since the service started", one(status.uptime_seconds as f64));
}

fn fleet(page: &mut Page, fleet: &Fleet) {
    let bit = |set: bool| f64::from(u8::from(set));
    let each = |of: fn(&StorageGroup) -> bool| {
        let values = fleet.groups.iter().map(move |group| (vec![("group", group.name.clone())], bit(of(group))));
        values.collect::<Vec<_>>()
    };
    page.gauge("fleet_in_touch", "1 while the agent keeps in touch", [(Labels::new(), bit(fleet.in_touch))]);
    page.gauge("fleet_wants", "1 while there is work that needs permission", each(|group| group.wants));
    page.gauge("fleet_permitted", "1 while work on the storage group is permitted", each(|group| group.permitted));
    let version = fleet.policy.iter().map(|policy| (Labels::new(), policy.version as f64));
    page.gauge("fleet_policy_version", "The version of the policy in force; absent without one", version);
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_api::fleet::PolicyInForce;
    use longrun_api::model::{Reaction, Sensor};

    #[test]
    fn hostile_names_stay_inside_their_labels_and_every_metric_is_documented() {
        let mount = "/mnt/a\"b\nlongrun_healthy 7".to_owned();
        let scan = Some(longrun_api::model::Scan::default());
        let mut volume =
            Volume { id: "u".into(), enabled: true, mount, filesystem: "xfs".into(), scan, ..Volume::default() };
        volume.health.level = HealthLevel::Alert;
        volume.space.free_pieces = Some(3);
        volume.space.largest_free_bytes = Some(4096);
        volume.prevented.left.insert("low-space".into(), 2);
        volume.governor.waits_for = Some("external".into());
        volume.governor.probes = Some(longrun_api::model::Probes { usual_us: 400, recent_us: 950 });
        let sensor = Some(Sensor { kind: "bpf".into(), ..Sensor::default() });
        let reaction = Reaction { count: 2, total_us: 3000, p50_us: 1000, p99_us: 2000, max_us: 2000 };
        let status = Status { volumes: vec![volume], sensor, reaction, ..Status::default() };
        assert!(!encode(&status, None, Format::Plain).contains("fleet"));
        let groups = vec![StorageGroup { name: "san-1".into(), wants: true, ..StorageGroup::default() }];
        let policy = Some(PolicyInForce { version: 7, ..PolicyInForce::default() });
        let part = Fleet { mode: "rest".into(), in_touch: true, groups, policy };
        let text = encode(&status, Some(&part), Format::Plain);
        for line in ["_in_touch 1", "_wants{group=\"san-1\"} 1", "_permitted{group=\"san-1\"} 0", "_policy_version 7"] {
            assert!(text.contains(&format!("longrun_fleet{line}\n")), "{line}: {text}");
        }
        assert!(!text.lines().any(|line| line == "longrun_healthy 7"), "{text}");
        assert!(text.lines().any(|line| line == "longrun_healthy 0"), "{text}");
        assert!(text.contains("longrun_left_total{volume=\"u\""), "{text}");
        assert!(text.contains("reason=\"external\"} 1\n"), "{text}");
        assert!(text.contains("kind=\"usual\"} 0.0004") && text.contains("kind=\"recent\"} 0.00095"), "{text}");
        assert!(text.contains(
            "longrun_reaction_seconds{quantile=\"0.99\"} 0.002\nlongrun_reaction_seconds{quantile=\"1\"} 0.002\n"
        ));
        assert!(text.contains("longrun_reaction_seconds_sum 0.003\nlongrun_reaction_seconds_count 2\n"), "{text}");
        let documented = include_str!("../../../../docs/metrics.md");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(documented.contains(&format!("`{name}`")), "{name} is missing in docs/metrics.md");
        }
    }
}
