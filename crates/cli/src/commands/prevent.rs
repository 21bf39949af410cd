//! `prevent`: prevents the fragmentation of growing files, in the foreground, until a signal ends it.

use crate::args::prevent::PreventArgs;
use crate::exit::{Failure, Status};
use crate::report::{print, print_json};
use crate::signals;
use crate::text::{count, counted, printable_path, size};
use longrun_prevention::policy::Settings;
use longrun_prevention::{
    Happening, NoRunway, Options, Prevention, PreventionError, Sink, Swept, Totals, VolumeSnapshot, Watched,
};
use longrun_sys::FileSystem;
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Watches the volumes until SIGINT or SIGTERM. This is the normal end of the command, not a failure.
pub fn run(args: &PreventArgs) -> Result<(), Failure> {
    if !longrun_sys::is_root() {
        return Err(Failure::new(Status::Refused, "prevention needs root; run it with sudo"));
    }
    let settings = settings(args);
    settings.validate().map_err(|e| Failure::new(Status::Usage, e.to_string()))?;
    let volumes = args.mounts.iter().map(|mount| volume(mount)).collect::<Result<Vec<_>, _>>()?;
    if args.undo_hints {
        return undo_hints(args, &volumes);
    }
    longrun_sys::forgo_resource_privilege().map_err(Failure::privilege)?;
    // Signals are caught before any space is held.
    let (told, ended) = channel();
    signals::on_end(move || _ = told.send(())).map_err(Failure::signals)?;
    signals::refuse_stops(|_| ()).map_err(Failure::signals)?;
    let mut options = Options::new(args.state.clone());
    options.sensor = args.sensor.into();
    let prevention = Prevention::start(options, Arc::new(Nobody))?;
    let mut ready = Ready { ready: true, sensor: prevention.snapshot().sensor.kind.to_string(), volumes: Vec::new() };
    for volume in &volumes {
        let swept = prevention.watch(volume, settings.clone())?;
        ready.volumes.push(Begun { point: volume.point.clone(), filesystem: volume.filesystem, swept });
    }
    if args.json {
        let line = serde_json::to_string(&ready).map_err(|e| Failure::output(e.into()))?;
        print(&(line + "\n"))?;
    } else {
        print(&ready.text(prevention.snapshot().sensor.reason.as_deref()))?;
    }
    // This fails only if the signal thread is gone, which also means the end.
    _ = ended.recv();
    let totals = prevention.stop();
    if args.json { print_json(&totals) } else { print(&text(&totals)) }
}

/// Removes the hints that Longrun set on directories, and reports them.
fn undo_hints(args: &PreventArgs, volumes: &[Watched]) -> Result<(), Failure> {
    let mut all = Vec::new();
    for volume in volumes {
        let undone = Prevention::undo_hints_of(&args.state, volume)?;
        if !args.json {
            let restored = counted(undone.restored, "directory", "directories");
            print(&format!(
                "{}: extent-size hints removed from {restored}; {} deleted or changed since\n",
                printable_path(&volume.point),
                count(undone.left)
            ))?;
        }
        all.push(undone);
    }
    if args.json { print_json(&all) } else { Ok(()) }
}

/// Records nothing, because this command prints totals only.
struct Nobody;

impl Sink for Nobody {
    fn happened(&self, _: &Path, _: &Happening) {}
}

fn settings(args: &PreventArgs) -> Settings {
    let mut settings = Settings::default();
    if let Some(first) = args.first_runway {
        settings.first_runway = first;
        settings.fragmented_runway = settings.fragmented_runway.min(first);
        settings.longest_runway = settings.longest_runway.max(first);
    }
    settings.longest_runway = args.longest_runway.unwrap_or(settings.longest_runway);
    settings.xfs_hint = args.xfs_hint;
    settings.floor_bytes = args.floor.unwrap_or(settings.floor_bytes);
    settings
}

/// The volume that is mounted there, if prevention supports it.
fn volume(given: &Path) -> Result<Watched, Failure> {
    let usage = |problem: &str| Failure::new(Status::Usage, format!("{}: {problem}", given.display()));
    let refused = |problem: String| Failure::new(Status::Refused, format!("{}: {problem}", given.display()));
    let point = std::fs::canonicalize(given).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => usage("there is no such file or directory; name a mount point"),
        _ => Failure::io(given, "resolving the path", &error),
    })?;
    let mount = Watched::mount_of(&point).map_err(|e| Failure::io(given, "reading the mount table", &e))?;
    let Some(mount) = mount.filter(|mount| mount.point == point) else {
        return Err(usage("nothing is mounted there; name the mount point of a volume"));
    };
    if FileSystem::from_name(&mount.filesystem).is_none() {
        let name = &mount.filesystem;
        // ntfs-3g and its like.
        let why = if name.starts_with("fuse") {
            "is a file system in user space, which cannot preallocate behind the end of a file"
        } else {
            "is not a supported file system"
        };
        return Err(refused(format!("{name} {why}; ext4, XFS and btrfs are supported")));
    }
    Watched::at(&mount).ok_or_else(|| refused("the volume is mounted read-only; files cannot grow there".into()))
}

/// What is printed when prevention has started.
#[derive(Serialize)]
struct Ready {
    ready: bool,
    sensor: String,
    volumes: Vec<Begun>,
}

#[derive(Serialize)]
struct Begun {
    point: PathBuf,
    filesystem: FileSystem,
    swept: Swept,
}

impl Ready {
    fn text(&self, reason: Option<&str>) -> String {
        let mut text = String::new();
        for Begun { point, filesystem, swept } in &self.volumes {
            _ = write!(text, "{} ({filesystem}): watched", printable_path(point));
            if swept.bytes.0 > 0 {
                let files = counted(swept.files, "file", "files");
                _ = write!(text, "; {} of {files} given back from an earlier run", size(swept.bytes));
            }
            text.push('\n');
        }
        _ = writeln!(text, "Sensor: {}. Ctrl-C gives back all runways and ends.", self.sensor);
        if let Some(reason) = reason {
            _ = writeln!(text, "({})", crate::text::printable(reason));
        }
        text
    }
}

fn text(totals: &Totals) -> String {
    let mut text = String::new();
    for volume in &totals.last.volumes {
        text.push_str(&volume_text(volume));
    }
    let back = &totals.given_back;
    _ = writeln!(text, "Given back at the end: {} of {}", size(back.bytes), counted(back.files, "file", "files"));
    if back.left_files > 0 {
        let files = counted(back.left_files, "file", "files");
        _ = writeln!(text, "Still open, to be given back at the next start: {} of {files}", size(back.left_bytes));
    }
    let reaction = totals.last.reaction;
    if reaction.count > 0 {
        let ms = |us: u64| us as f64 / 1000.0;
        let (median, longest) = (ms(reaction.p50_us), ms(reaction.max_us));
        _ = writeln!(text, "Reaction: {median:.1} ms (median), {longest:.1} ms (longest)");
    }
    if totals.last.sensor.lost > 0 {
        _ = writeln!(text, "Signals lost: {}", count(totals.last.sensor.lost));
    }
    text
}

fn volume_text(volume: &VolumeSnapshot) -> String {
    let mut text = format!("{} ({})\n", printable_path(&volume.point), volume.filesystem);
    _ = writeln!(text, "  runways      {}, {}", count(volume.grants), size(volume.granted));
    _ = writeln!(text, "  given back   {}", size(volume.trimmed));
    let fragments = |number| counted(number, "excess fragment", "excess fragments");
    // Without the runway nobody knows: it is the rate of each file before its first one, continued.
    _ = writeln!(
        text,
        "  prevented    about {}, by the rate of each file before its first runway",
        fragments(volume.prevented)
    );
    _ = writeln!(text, "  fragmented   {} in files examined since, once closed or quiet", fragments(volume.excess));
    let left: u64 = volume.left.values().sum();
    if left > 0 {
        let reasons: Vec<String> =
            volume.left.iter().map(|(reason, files)| format!("{} {}", count(*files), name(*reason))).collect();
        _ = writeln!(text, "  left alone   {} ({})", counted(left, "signal", "signals"), reasons.join(", "));
    }
    text
}

/// The name of a reason in JSON.
fn name(reason: NoRunway) -> String {
    serde_json::to_string(&reason).unwrap_or_default().trim_matches('"').to_owned()
}

impl From<PreventionError> for Failure {
    fn from(error: PreventionError) -> Self {
        let status = match &error {
            PreventionError::InUse { .. } | PreventionError::Sensor { .. } | PreventionError::Known { .. } => {
                Status::Refused
            }
            PreventionError::Settings { .. } | PreventionError::Unknown { .. } => Status::Usage,
            PreventionError::Journal { .. } | PreventionError::Volume { .. } | PreventionError::Threads { .. } => {
                Status::Failed
            }
        };
        Self::new(status, error.to_string())
    }
}
