//! `boot record` and `boot learn`: from the first read to the next plan.

use super::{open_root, order, volume};
use crate::args::boot::{LearnArgs, Place, RecordArgs};
use crate::exit::{Failure, Status};
use crate::progress::say;
use crate::report::boot::Report;
use crate::report::{print, print_json};
use crate::signals;
use crate::text::printable_path;
use longrun_boot::{Learned, Leave, Names, Recorded, Recorder, Root, Store, Volume, learn as keep, take_outcome};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A boot is over so long after multi-user.target.
const AFTER: Duration = Duration::from_secs(30);
/// No boot is recorded for longer.
const LONGEST: Duration = Duration::from_secs(120);
/// How often the kernel's queue is emptied.
const EACH: Duration = Duration::from_millis(250);
/// How often systemd is asked how far it is, in turns of [`EACH`].
const ASKED: u32 = 8;

/// Records a boot.
pub fn record(args: &RecordArgs) -> Result<(), Failure> {
    let root = open_root(&args.place, args.root_on_stdin)?;
    let names = Names::of(&args.list)?;
    let session = if args.root_on_stdin {
        from_initramfs(&args.place, &root, &names)?
    } else {
        Session::start(&args.place, &root, &names)?
    };
    let took = match args.duration {
        Some(duration) => {
            session.until(duration, || false)?;
            None
        }
        None => boot(&session)?,
    };
    // What was written since the machine was started changes too often to be read ahead.
    let since = SystemTime::now().checked_sub(longrun_sys::since_boot().min(session.begun.elapsed() + LONGEST));
    let leave = Leave::Changing(since.unwrap_or(SystemTime::UNIX_EPOCH));
    report(&session.finish(&args.place, &root, &names, took, leave)?, &names, args.json)
}

/// Starts to record while the root, /proc and /sys are being moved, and goes on when that is over: as the root directory of this process,
/// too. Both may take a few tries.
fn from_initramfs(place: &Place, root: &Root, names: &Names) -> Result<Session, Failure> {
    const TRIES: u32 = 20;
    const MOVED_WITHIN: Duration = Duration::from_secs(60);
    let mut tries = 0;
    let mut entered = false;
    let mut session = None;
    let begun = Instant::now();
    while !entered || session.is_none() {
        // As soon as the kernel's files are below it, it is the root.
        if !entered && ["/sys/kernel", "/proc/self"].iter().all(|path| root.open_file(Path::new(path)).is_ok()) {
            longrun_sys::enter_root(root)
                .map_err(|error| Failure::io(Path::new("/"), "entering the root directory", &error.into()))?;
            entered = true;
        }
        match &session {
            None => {
                tries += 1;
                match Session::start(place, root, names) {
                    Ok(started) => session = Some(started),
                    Err(error) if tries == TRIES => return Err(error),
                    Err(_) => {}
                }
            }
            Some(session) => session.recorder.collect()?,
        }
        if begun.elapsed() > MOVED_WITHIN {
            break;
        }
        thread::sleep(EACH);
    }
    session
        .filter(|_| entered)
        .ok_or_else(|| Failure::new(Status::Failed, "the system did not start; nothing was recorded"))
}

/// Records the start of an application.
pub fn learn(args: &LearnArgs) -> Result<(), Failure> {
    let names = Names::of(&args.list.clone().unwrap_or_else(|| name_of(args)))?;
    let root = open_root(&args.place, false)?;
    if args.drop_caches {
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .map_err(|error| Failure::io(Path::new("/proc/sys/vm/drop_caches"), "emptying the page cache", &error))?;
    }
    let session = Session::start(&args.place, &root, &names)?;
    let begun = Instant::now();
    let took = match &args.unit {
        Some(unit) => {
            start(Command::new("systemctl").args(["restart", unit]), &session)?;
            let took = begun.elapsed();
            session.until(args.duration, || false)?;
            took
        }
        None => {
            let mut words = args.command.iter();
            let program = words.next().ok_or_else(|| Failure::new(Status::Usage, "name a command to run"))?;
            start(Command::new(program).args(words), &session)?;
            begun.elapsed()
        }
    };
    report(&session.finish(&args.place, &root, &names, Some(took), Leave::Logs)?, &names, args.json)
}

/// The name of a list that has none: that of the unit, or of the program.
fn name_of(args: &LearnArgs) -> String {
    let program = || {
        let program = Path::new(args.command.first()?).file_name()?;
        Some(program.to_string_lossy().into_owned())
    };
    args.unit.clone().or_else(program).unwrap_or_default()
}

/// Runs a command to its end while the queue is emptied.
fn start(command: &mut Command, session: &Session) -> Result<(), Failure> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::io(Path::new(&shown), "running it", &error);
    let mut child = command.spawn().map_err(failed)?;
    let mut done = None;
    session.until(Duration::MAX, || {
        done = child.try_wait().transpose();
        done.is_some()
    })?;
    match done {
        Some(Ok(status)) if status.success() => Ok(()),
        Some(Ok(status)) => Err(Failure::new(Status::Failed, format!("{shown}: {status}; nothing of it is kept"))),
        Some(Err(error)) => Err(failed(error)),
        None => Err(Failure::new(Status::Interrupted, "interrupted; nothing of it is kept")),
    }
}

/// Waits until a boot is over; how long it took.
fn boot(session: &Session) -> Result<Option<Duration>, Failure> {
    let (mut took, mut turns) = (None, 0);
    session.until(LONGEST, || {
        turns += 1;
        if took.is_none() && turns % ASKED == 0 {
            took = multi_user();
        }
        took.is_some_and(|took| since_start() >= took + AFTER)
    })?;
    Ok(took)
}

/// systemd's own clock.
fn since_start() -> Duration {
    Duration::from_nanos(longrun_sys::monotonic_nanoseconds())
}

/// When multi-user.target was reached, since the kernel began; `None` if it was not yet, or nobody knows.
fn multi_user() -> Option<Duration> {
    let output = Command::new("systemctl")
        .args(["show", "--property=ActiveEnterTimestampMonotonic", "--value", "multi-user.target"])
        .output()
        .ok()?;
    let micros: u64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// What comes when a signal asks to end.
fn ended() -> Result<Receiver<()>, Failure> {
    let (told, ended) = channel();
    signals::on_end(move || _ = told.send(())).map_err(Failure::signals)?;
    Ok(ended)
}

/// A recording that runs.
struct Session {
    volume: Volume,
    recorder: Recorder,
    ahead: Vec<longrun_boot::Part>,
    /// Signals that ask to end.
    ended: Receiver<()>,
    begun: Instant,
}

impl Session {
    fn start(place: &Place, root: &Root, names: &Names) -> Result<Self, Failure> {
        let volume = volume(place, root)?;
        // A plan that cannot be read is made anew afterwards.
        let plan = Store::find(root, &place.state).ok().flatten().and_then(|store| store.plan(names).ok().flatten());
        let ahead = plan.filter(|plan| plan.uuid == volume.uuid).map(|plan| plan.parts).unwrap_or_default();
        let recorder = Recorder::start(volume.device, &ahead)?;
        // Before anybody is told that it records: who then ends it keeps what was read.
        let ended = ended()?;
        let shown = printable_path(place.volume.as_deref().unwrap_or(&place.root));
        say(&format!("recording what is read from the volume of {shown}; Ctrl-C ends it"));
        Ok(Self { volume, recorder, ahead, ended, begun: Instant::now() })
    }

    /// Empties the queue until `is_over` says so, for `longest` at most, or a signal comes.
    fn until(&self, longest: Duration, mut is_over: impl FnMut() -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.recorder.collect()?;
            let left = longest.saturating_sub(begun.elapsed());
            if is_over() || left.is_zero() || self.ended.recv_timeout(EACH.min(left)) != Err(RecvTimeoutError::Timeout)
            {
                return Ok(self.recorder.collect()?);
            }
        }
    }

    fn finish(
        &self,
        place: &Place,
        root: &Root,
        names: &Names,
        took: Option<Duration>,
        leave: Leave,
    ) -> Result<Finished, Failure> {
        let recorded = Recorded {
            touches: self.recorder.touches(),
            used: self.recorder.uses().map(|uses| uses.used(&self.ahead)),
            outcome: take_outcome(root, names, &self.volume),
            took,
            leave,
        };
        let state = root.open_file(&place.state);
        if state.is_err() && place.root == Path::new("/") {
            _ = std::fs::create_dir_all(&place.state);
        }
        let store = Store::make(root, &place.state)?;
        let learned = keep(root, &store, names, &self.volume, order(&self.volume), &recorded)?;
        Ok(Finished { learned, lost: self.recorder.lost(), recorded })
    }
}

/// What came of it.
struct Finished {
    learned: Learned,
    lost: u64,
    recorded: Recorded,
}

fn report(finished: &Finished, names: &Names, json: bool) -> Result<(), Failure> {
    let report = Report::of(names, &finished.learned, &finished.recorded, finished.lost);
    if json { print_json(&report) } else { print(&report.text()) }
}
