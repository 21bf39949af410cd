//! `trace`: traces the requests to a device until a signal or the given time ends it, and compares two recordings.

use crate::args::trace::TraceArgs;
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::progress::say;
use crate::report::trace::{Live, comparison_page, comparison_text, page, text};
use crate::report::{print, print_json};
use crate::signals;
use crate::text::printable_path;
use longrun_iotrace::{Comparison, Options, Recording, TraceError, Tracer, VERSION};
use longrun_sys::{BlockDevice, volume_members};
use longrun_volume::Target;
use serde::Serialize;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often the live view is redrawn.
const REDRAW: Duration = Duration::from_secs(1);
/// A recording takes about ten kilobytes; a file larger than this is not one.
const LARGEST_RECORDING: u64 = 16 << 20;

/// Traces, or compares.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    match (args.compare.as_deref(), &args.target) {
        (Some([before, after]), _) => compare(args, before, after),
        (_, Some(target)) => trace(args, target),
        // The command line does not allow this.
        _ => Err(Failure::new(Status::Usage, "name a target to trace")),
    }
}

fn trace(args: &TraceArgs, target: &Path) -> Result<(), Failure> {
    let tops = tops(target)?;
    if !longrun_sys::is_root() {
        return Err(TraceError::NotPermitted.into());
    }
    let (told, ended) = channel();
    signals::on_end(move || _ = told.send(())).map_err(Failure::signals)?;
    let options = Options { own: args.pid.clone(), below_files: args.below_files };
    let tracer = Tracer::start(&target.to_string_lossy(), &tops, options)?;
    let traced: Vec<&str> =
        tracer.stack().iter().filter(|layer| layer.traced).map(|layer| layer.name.as_str()).collect();
    say(&format!("tracing {} for {}; Ctrl-C ends it", traced.join(" and "), printable_path(target)));
    watch(args, &tracer, &ended)?;
    let recording = tracer.recording()?;
    // Unloaded before anything can fail: the BPF programs cost processor time as long as they are loaded.
    drop(tracer);
    if let Some(path) = &args.save {
        let json = serde_json::to_string_pretty(&recording).map_err(|e| Failure::output(e.into()))? + "\n";
        write(path, &json, "writing the recording")?;
    }
    if let Some(path) = &args.html {
        write(path, &page(&recording), "writing the page")?;
    }
    if args.json { print_json(&recording) } else { print(&text(&recording)) }
}

/// Shows the live view until the time is over or a signal arrives.
fn watch(args: &TraceArgs, tracer: &Tracer, ended: &Receiver<()>) -> Result<(), Failure> {
    let end = args.duration.map(|time| Instant::now() + time);
    let on_terminal = io::stdout().is_terminal() && !args.json;
    let shows = on_terminal || (args.interval.is_some() && !args.json);
    let each = if shows { args.interval.unwrap_or(REDRAW) } else { Duration::MAX };
    let mut live = Live::new(tracer.recording()?, on_terminal);
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        // A year stands for "forever", which the clock cannot represent.
        match ended.recv_timeout(left.min(each).min(Duration::from_secs(365 * 86400))) {
            Err(RecvTimeoutError::Timeout) if end.is_some_and(|end| Instant::now() >= end) => break,
            Err(RecvTimeoutError::Timeout) if shows => print(&live.next(tracer.recording()?))?,
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    print(&live.clear())
}

/// The devices of the volume that was named; usually one.
fn tops(target: &Path) -> Result<Vec<BlockDevice>, Failure> {
    let found = Target::resolve(target)?;
    let refused = |problem: &str| Failure::new(Status::Refused, format!("{}: {problem}", target.display()));
    let number = found.device_number.ok_or_else(|| {
        refused(
            "a disk image without a loop device; attach it (losetup) and trace the loop device, or trace the volume that \
             holds the image",
        )
    })?;
    let known = |number| BlockDevice::numbered(number).ok();
    let devices: Vec<BlockDevice> = volume_members(number).into_iter().filter_map(known).collect();
    if devices.is_empty() {
        Err(refused("it is not on a block device, so there is nothing to trace"))
    } else {
        Ok(devices)
    }
}

fn write(path: &Path, content: &str, act: &str) -> Result<(), Failure> {
    fresh::write(path, |file| file.write_all(content.as_bytes())).map_err(|e| Failure::io(path, act, &e))
}

/// The object of `--compare --json`.
#[derive(Serialize)]
struct Compared<'a> {
    version: u32,
    before: &'a Recording,
    after: &'a Recording,
    comparison: &'a Comparison,
}

fn compare(args: &TraceArgs, before: &Path, after: &Path) -> Result<(), Failure> {
    let (first, second) = (read(before)?, read(after)?);
    let comparison = Comparison::of(&first, &second);
    if let Some(path) = &args.html {
        write(path, &comparison_page(&first, &second, &comparison), "writing the page")?;
    }
    if args.json {
        print_json(&Compared { version: VERSION, before: &first, after: &second, comparison: &comparison })
    } else {
        print(&comparison_text(&first, &second, &comparison))
    }
}

fn read(path: &Path) -> Result<Recording, Failure> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(LARGEST_RECORDING).read_to_string(&mut text))
        .map_err(|e| Failure::io(path, "reading the recording", &e))?;
    let wrong =
        |why: String| Failure::new(Status::Refused, format!("{}: not a recording of a trace: {why}", path.display()));
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    match json.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(wrong(format!("its version is {version}, but this program reads version {VERSION}")));
        }
        None => return Err(wrong("it has no version; make a recording with longrun trace --save".into())),
    }
    serde_json::from_value(json).map_err(|e| wrong(e.to_string()))
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let status = match &error {
            TraceError::NotPermitted | TraceError::Unsupported { .. } => Status::Refused,
            TraceError::TooManyDevices { .. } | TraceError::TooManyProcesses { .. } => Status::Usage,
            TraceError::Broken { .. } => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}
