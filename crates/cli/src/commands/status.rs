//! `status`: what the running service does, in text or JSON.

use crate::args::service::StatusArgs;
use crate::exit::Failure;
use crate::report::{print, print_json};
use crate::text::{count, duration, percent, printable, size};
use longrun_api::Client;
use longrun_api::jobs::{Job, JobOrigin, JobState};
use longrun_api::model::{Governor, HealthLevel, Pass, Status, Volume, Waiting};
use longrun_layout::Bytes;
use std::fmt::Write as _;
use std::time::Duration;

/// Asks and prints.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let status: Status = Client::new(&args.socket).get("/v1/status")?;
    if args.json { print_json(&status) } else { print(&text(&status)) }
}

fn text(status: &Status) -> String {
    let mut text = String::new();
    let up = duration(Duration::from_secs(status.uptime_seconds));
    let health = if status.healthy { "everything works" } else { "something is wrong" };
    _ = writeln!(text, "Longrun {} has been running for {up}; {health}.", printable(&status.version));
    for trouble in &status.troubles {
        _ = writeln!(text, "  ! {}", printable(trouble));
    }
    match &status.sensor {
        Some(sensor) => {
            let reason = sensor.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            let (signals, lost) = (count(sensor.signals), count(sensor.lost));
            let line = format!("{}{reason}; {signals} signals, {lost} lost", sensor.kind);
            _ = writeln!(text, "Sensor:    {}", printable(&line));
        }
        None => text.push_str("Sensor:    none; prevention does not run\n"),
    }
    if status.reaction.count > 0 {
        let ms = |us: u64| us as f64 / 1000.0;
        let reaction = &status.reaction;
        let (half, most, longest) = (ms(reaction.p50_us), ms(reaction.p99_us), ms(reaction.max_us));
        _ = writeln!(text, "Reaction:  {half:.1} ms (median), {most:.1} ms (99 %), {longest:.1} ms (longest)");
    }
    let mending = &status.mending;
    let state = match (mending.at_work, mending.rests) {
        (true, _) => "; one file is being mended",
        (false, true) => "; mending is paused",
        _ => "",
    };
    _ = writeln!(
        text,
        "Waiting:   {} for a worker, {} to be examined, {} to be mended{state}",
        count(status.queue),
        count(status.volumes.iter().map(|volume| volume.prevented.to_look_at).sum()),
        count(mending.queued)
    );
    if let Some(held) = held(&mending.waiting) {
        _ = writeln!(text, "           {held}");
    }
    let own = &status.own;
    let (memory, io) = (size(Bytes(own.resident_bytes)), size(Bytes(own.io_bytes)));
    _ = writeln!(text, "Own use:   {:.1} s of processor time, {memory} of memory, {io} of I/O", own.cpu_seconds);
    let history = match (&status.history.note, status.history.recording) {
        (Some(note), _) => note.clone(),
        (None, true) => size(Bytes(status.history.bytes)),
        (None, false) => "not started yet".to_owned(),
    };
    _ = writeln!(text, "History:   {}", printable(&history));
    if status.volumes.is_empty() {
        text.push_str(
            "\nNo volume is watched: no ext4, XFS or btrfs volume on a block device is mounted read-write.\n",
        );
    }
    for volume in &status.volumes {
        tell_volume(&mut text, volume);
        status.jobs.iter().filter(|job| job.volume == volume.id).for_each(|job| tell_job(&mut text, job));
    }
    text
}

fn tell_volume(text: &mut String, volume: &Volume) {
    let label = volume.label.as_ref().map_or_else(String::new, |label| format!(" \"{label}\""));
    let what = format!("{} ({}{label} on {})", volume.mount, volume.filesystem, volume.device);
    _ = writeln!(text, "\n{}", printable(&what));
    if !volume.enabled {
        text.push_str("  disabled by the configuration\n");
        return;
    }
    if let Some(trouble) = &volume.trouble {
        _ = writeln!(text, "  ! {}", printable(trouble));
    }
    let space = &volume.space;
    let pieces = match (space.free_pieces, space.largest_free_bytes) {
        (Some(pieces), Some(largest)) => format!(" in {} pieces, the largest {}", count(pieces), size(Bytes(largest))),
        _ => String::new(),
    };
    let share = percent(space.free_bytes, space.total_bytes);
    _ = writeln!(text, "  Free:      {} ({share}){pieces}", size(Bytes(space.free_bytes)));
    if volume.health.level != HealthLevel::Good {
        let level = if volume.health.level == HealthLevel::Alert { "ALERT" } else { "unknown" };
        _ = writeln!(text, "  Health:    {level}: {}", printable(&volume.health.sentence));
    }
    if volume.prevention {
        let prevented = &volume.prevented;
        let (fragments, slipped) = (count(prevented.fragments), count(prevented.slipped));
        _ = writeln!(text, "  Prevented: {fragments} excess fragments; {slipped} not prevented");
        let short =
            if prevented.short_of_space { "; none is granted now, because too little space is free" } else { "" };
        let held = size(Bytes(prevented.held_bytes));
        let (now, granted) = (count(prevented.runways), count(prevented.grants));
        _ = writeln!(text, "  Runways:   {now} now, holding {held}; {granted} granted so far{short}");
    } else {
        text.push_str("  Prevented: prevention is off\n");
    }
    if volume.mending {
        let mended = &volume.mended;
        let (fragments, moved) = (count(mended.fragments), size(Bytes(mended.moved_bytes)));
        let rests = volume.mending_rests.as_ref().map_or_else(String::new, |why| format!("; {}", printable(why)));
        let files = count(mended.files);
        _ = writeln!(text, "  Mended:    {files} files, {fragments} excess fragments, {moved} moved{rests}");
    }
    tell_governor(text, &volume.governor);
    tell_pass(text, &volume.pass);
    if let Some(trouble) = &volume.scan_trouble {
        _ = writeln!(text, "  ! {}", printable(trouble));
    }
    if let Some(scan) = &volume.scan {
        let (excess, files) = (count(scan.excess_fragments), count(scan.files));
        _ = writeln!(text, "  Scan:      {excess} excess fragments in {files} files, at {}", printable(&scan.at));
    }
}

/// A job that has not ended.
fn tell_job(text: &mut String, job: &Job) {
    let what = match job.by {
        JobOrigin::Schedule => "scheduled pass",
        JobOrigin::Operator => job.task.name(),
    };
    let reason = job.reason.as_ref().map_or_else(String::new, |why| format!(": {}", printable(why)));
    let progress = &job.progress;
    let far = if job.state == JobState::Running {
        let left = progress.eta_seconds.map(|eta| format!(", {} left", duration(Duration::from_secs(eta))));
        format!(", {} {:.0} %{}", printable(&progress.phase), progress.fraction * 100.0, left.unwrap_or_default())
    } else {
        String::new()
    };
    let state = job.state.name();
    _ = writeln!(text, "  Job {}:     {what}, {state}{reason}{far}; {} moved", job.id, size(Bytes(job.moved_bytes)));
}

/// The schedule of passes.
fn tell_pass(text: &mut String, pass: &Pass) {
    if pass.mode.is_empty() || pass.mode == "off" {
        return;
    }
    let when = match (&pass.next_window, pass.window_open) {
        (_, true) => "a window is in effect".to_owned(),
        (Some(at), false) => format!("next window at {}", printable(at)),
        (None, false) => "no window".to_owned(),
    };
    let last =
        pass.last_ended.as_ref().map_or_else(String::new, |at| format!("; the last one ended at {}", printable(at)));
    let waits = pass.waits.as_ref().filter(|_| pass.window_open && pass.job.is_none());
    let waits = waits.map_or_else(String::new, |why| format!("; {}", printable(why)));
    _ = writeln!(
        text,
        "  Passes:    {} ({}); {when}{waits}{last}",
        printable(&pass.mode),
        printable(&pass.windows.join(", "))
    );
}

/// The disk, its load while there was work, and how the work gave way to other I/O.
fn tell_governor(text: &mut String, governor: &Governor) {
    if let Some(disk) = &governor.disk {
        _ = writeln!(text, "  Disk:      {}", printable(disk));
    }
    if governor.devices.is_empty() {
        return;
    }
    let (own, foreign) = (size(Bytes(governor.own_bytes)), size(Bytes(governor.foreign_bytes)));
    let outside = governor.probes.map_or_else(String::new, |probes| {
        let ms = |us: u64| us as f64 / 1000.0;
        format!("; a small read takes {:.2} ms (usually {:.2} ms)", ms(probes.recent_us), ms(probes.usual_us))
    });
    _ = writeln!(text, "  Load:      {own} by Longrun, {foreign} by other processes{outside}");
    if let Some(account) = governor.account.filter(|account| account.usual_seconds > 0.0) {
        let slower = 100.0 * account.charged_seconds.max(0.0) / account.usual_seconds;
        let (all, met) = (count(account.requests), count(account.met));
        _ = writeln!(text, "  Others:    {all} requests, {met} beside the work; {slower:.1} % slower on average");
    }
    let now = governor.pausing.as_ref().map_or_else(String::new, |why| {
        let program = governor.other_program.as_ref().filter(|_| governor.waits_for.as_deref() == Some("foreign"));
        let last = program.map_or_else(String::new, |program| format!(" (last: {})", printable(program)));
        format!("; paused now: {}{last}", printable(why))
    });
    let (times, time) = (count(governor.pauses), duration(Duration::from_secs_f64(governor.paused_seconds)));
    let pace = printable(&governor.pace);
    _ = writeln!(text, "  Pace:      {pace}; paused {times} times, {time} in all{now}");
}

/// Why files are not mended although they are quiet.
fn held(waiting: &Waiting) -> Option<String> {
    let reasons = [
        (waiting.short_lived, "are of a kind that is soon deleted or written again"),
        (waiting.again, "fragmented again soon after they were mended"),
        (waiting.dear, "wait for files that cost less to mend"),
        (waiting.tried, "wait for another attempt"),
    ];
    let told: Vec<String> =
        reasons.iter().filter(|(files, _)| *files > 0).map(|(files, why)| format!("{} {why}", count(*files))).collect();
    (!told.is_empty()).then(|| format!("of these, {}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_api::model::{Account, Health, Mending, OwnUse, Prevented, Probes, Reaction, Scan, Sensor, Space};

    #[test]
    fn the_text_is_stable_and_cannot_drive_the_terminal() {
        let volume = Volume {
            id: "u".into(),
            mount: "/srv/\x1b[31m".into(),
            device: "/dev/sdb".into(),
            filesystem: "xfs".into(),
            label: Some("data".into()),
            enabled: true,
            prevention: true,
            mending: true,
            trouble: Some("out of\norder".into()),
            prevented: Prevented {
                fragments: 12_345,
                slipped: 6,
                runways: 2,
                held_bytes: 32 << 20,
                grants: 99,
                ..Prevented::default()
            },
            space: Space {
                total_bytes: 100 << 30,
                free_bytes: 25 << 30,
                free_pieces: Some(1234),
                largest_free_bytes: Some(1 << 30),
                ..Space::default()
            },
            health: Health { level: HealthLevel::Alert, sentence: "3 more files can be made".into() },
            mending_rests: Some("the daily budget (mending_budget) is used up".into()),
            governor: Governor {
                pace: "invisible".into(),
                devices: vec!["vda".into()],
                disk: Some("virtual disk (vda)".into()),
                own_bytes: 12 << 20,
                foreign_bytes: 3 << 20,
                probes: Some(Probes { usual_us: 400, recent_us: 950 }),
                pauses: 7,
                paused_seconds: 12.5,
                pausing: Some("other I/O is using\tthe device".into()),
                waits_for: Some("foreign".into()),
                account: Some(Account {
                    requests: 1500,
                    met: 90,
                    usual_seconds: 2.0,
                    charged_seconds: 0.03,
                    ..Account::default()
                }),
                other_program: Some("post\tgres".into()),
            },
            scan: Some(Scan {
                at: "2026-01-01T00:00:00Z".into(),
                files: 1000,
                fragmented_files: 3,
                excess_fragments: 5,
            }),
            ..Volume::default()
        };
        let status = Status {
            version: "0.1.0".into(),
            troubles: vec!["history is not being written: no space".into()],
            uptime_seconds: 3725,
            sensor: Some(Sensor { kind: "bpf".into(), signals: 4321, ..Sensor::default() }),
            reaction: Reaction { count: 1, total_us: 900, p50_us: 900, p99_us: 2100, max_us: 13_500 },
            mending: Mending {
                queued: 3,
                waiting: Waiting { quiet: 1, short_lived: 2, ..Waiting::default() },
                rests: true,
                ..Mending::default()
            },
            own: OwnUse { cpu_seconds: 1.5, resident_bytes: 20 << 20, io_bytes: 4096, ..OwnUse::default() },
            volumes: vec![volume],
            ..Status::default()
        };
        insta::assert_snapshot!("status", text(&status));
        insta::assert_snapshot!("status_of_nothing", text(&Status::default()));
    }
}
