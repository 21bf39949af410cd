//! The one thread that mends.
//!
//! Owns the mutual exclusion with those who offer files, and what an outcome means for the queue. Runs at idle I/O priority,
//! holds no lock while it mends, and opens a volume's root only for as long as one file takes.

use super::model::{Candidate, Governor, MendEvent, MendSettings, MendSink, MendingSnapshot};
use super::queue::{Job, Next, Queue};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Nanos, Watched};
use longrun_sys::{DeviceNumber, FileHandle, OFlags};
use longrun_volume::engine::{Observer, Permission, Turn};
use longrun_volume::mend::{LeftReason, Limits, MendError, Mended, Place, mend};
use longrun_volume::{SkipReason, VolumeError};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the worker sleeps at most when it waits for a time to come: a clock that was set, or a suspended machine, is
/// noticed within.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Mends files of the volumes that it was told of, until it is dropped.
#[derive(Debug)]
pub struct Mending {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something changed that the worker may wait for.
    changed: Condvar,
    /// The file being mended is not to be mended any more.
    interrupt: AtomicBool,
    begun: Instant,
    governor: Arc<dyn Governor>,
    sink: Arc<dyn MendSink>,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    volumes: BTreeMap<DeviceNumber, Watched>,
    settings: MendSettings,
    figures: MendingSnapshot,
    current: Option<FileKey>,
    stopping: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Mending {
    /// Starts the worker.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        settings: MendSettings,
        governor: Arc<dyn Governor>,
        sink: Arc<dyn MendSink>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { settings, ..State::default() }),
            changed: Condvar::new(),
            interrupt: AtomicBool::new(false),
            begun: Instant::now(),
            governor,
            sink,
        });
        let of_worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("longrun-mend".into()).spawn(move || work(&of_worker))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Files of this volume may be mended from now on.
    pub fn watch(&self, volume: Watched) {
        self.shared.state().volumes.insert(volume.device, volume);
        self.shared.changed.notify_all();
    }

    /// No file of this volume is mended any more; returns when none is, so that it can be unmounted.
    pub fn unwatch(&self, device: DeviceNumber) {
        let mut state = self.shared.state();
        state.volumes.remove(&device);
        state.queue.forget_volume(device);
        while state.current.is_some_and(|file| file.volume == device) {
            self.shared.interrupt.store(true, Ordering::Release);
            self.shared.changed.notify_all();
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A file is known to be fragmented. Files of volumes that are not watched are not taken.
    pub fn offer(&self, candidate: Candidate) {
        let now = self.shared.now();
        let mut state = self.shared.state();
        let settings = state.settings;
        let Some(volume) = state.volumes.get(&candidate.file.volume) else { return };
        let point = volume.point.clone();
        self.shared.interrupt_if(&state, &candidate.file);
        let forgotten = state.queue.offer(candidate, now, &settings);
        drop(state);
        self.shared.changed.notify_all();
        if forgotten.is_some() {
            self.shared.sink.mending(&point, &MendEvent::Forgotten { files: 1 });
        }
    }

    /// Somebody writes to a file: if it waits it waits anew, if it is being mended that ends.
    pub fn touched(&self, file: &FileKey) {
        let now = self.shared.now();
        let mut state = self.shared.state();
        let settings = state.settings;
        self.shared.interrupt_if(&state, file);
        state.queue.touched(file, now, &settings);
    }

    /// Other settings from now on.
    pub fn reconfigure(&self, settings: MendSettings) {
        let mut state = self.shared.state();
        state.settings = settings;
        if settings.resting && state.current.is_some() {
            self.shared.interrupt.store(true, Ordering::Release);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// What has been done, and what waits.
    #[must_use]
    pub fn snapshot(&self) -> MendingSnapshot {
        let state = self.shared.state();
        MendingSnapshot {
            queued: state.queue.len(),
            queued_excess: state.queue.excess(),
            at_work: state.current.is_some(),
            ..state.figures
        }
    }
}

impl Drop for Mending {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.interrupt.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported on stderr already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked left is a queue of hints: any state of it will do.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn interrupt_if(&self, state: &State, file: &FileKey) {
        if state.current.as_ref() == Some(file) {
            self.interrupt.store(true, Ordering::Release);
        }
    }
}

fn work(shared: &Shared) {
    // Where the scheduler knows no such thing, nobody is worse off than beside any other program.
    let _ = longrun_sys::yield_io_to_others();
    while let Some((job, volume)) = next(shared) {
        let point = volume.point.clone();
        let outcome = attempt(shared, &job, &volume);
        let event = settle(shared, job, outcome);
        if let Some(event) = event {
            shared.sink.mending(&point, &event);
        }
    }
}

/// Waits for the next job; `None` at the end.
fn next(shared: &Shared) -> Option<(Job, Watched)> {
    let mut state = shared.state();
    loop {
        if state.stopping {
            return None;
        }
        let settings = state.settings;
        let sleep = match state.queue.next(shared.now(), &settings) {
            Next::Mend(job) => {
                let Some(volume) = state.volumes.get(&job.candidate.file.volume).cloned() else { continue };
                state.current = Some(job.candidate.file);
                shared.interrupt.store(false, Ordering::Release);
                return Some((*job, volume));
            }
            Next::Wait(time) => time.min(LONGEST_SLEEP),
            Next::Idle => LONGEST_SLEEP,
        };
        state = shared.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// How an attempt ended.
enum Outcome {
    /// Its length was not known: now it is, and it takes its place in the order by that.
    Measured(Bytes),
    /// It was written to just now.
    NotQuiet,
    Done(Mended),
    Left(LeftReason, Bytes),
    /// Nothing can be done on the volume.
    Refused(VolumeError),
}

fn attempt(shared: &Shared, job: &Job, volume: &Watched) -> Outcome {
    let vanished = || Outcome::Left(LeftReason::Skipped(SkipReason::Vanished), Bytes(0));
    // Another volume lies there by now: whoever watches the mounts will say so too.
    let Ok(root) = volume.open_root() else { return vanished() };
    let Some((size, idle)) = look(&root, &job.candidate.file.handle) else { return vanished() };
    if job.candidate.size.is_none() {
        return Outcome::Measured(size);
    }
    let settings = shared.state().settings;
    if idle < settings.quiet {
        return Outcome::NotQuiet;
    }
    let mut watch = Watch { shared, device: volume.device };
    let place = Place { root: &root, point: &volume.point };
    let limits = Limits { budget: job.budget, worth: settings.worth, floor: None };
    match mend(place, &job.candidate.file.handle, limits, &mut watch) {
        Ok(mended) => Outcome::Done(mended),
        Err(MendError::Left { reason, written }) => Outcome::Left(reason, written),
        Err(MendError::Volume(VolumeError::TooFull { .. })) => Outcome::Left(LeftReason::LowSpace, Bytes(0)),
        Err(MendError::Volume(error)) => Outcome::Refused(error),
    }
}

/// How long a file is, and since when nobody has written to it.
fn look(root: &File, handle: &FileHandle) -> Option<(Bytes, Duration)> {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(handle.open(root, flags).ok()?);
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // A time in the future was set by hand, and says nothing.
    let idle = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    Some((Bytes(meta.len()), idle.unwrap_or(Duration::MAX)))
}

/// Whether a later attempt may go better.
fn is_passing(reason: LeftReason) -> bool {
    use SkipReason::{Blocked, Busy, Changed, Executing, SpaceNeeded, TargetTaken};
    match reason {
        LeftReason::NoGain | LeftReason::LowSpace | LeftReason::Cancelled | LeftReason::OtherOptimizer => true,
        LeftReason::Skipped(reason) => {
            matches!(reason, Busy | Changed | Executing | SpaceNeeded | TargetTaken | Blocked)
        }
        LeftReason::Shared | LeftReason::Compressed | LeftReason::WholeEnough | LeftReason::Budget => false,
    }
}

/// Enters an outcome in the books; what there is to tell about it.
fn settle(shared: &Shared, job: Job, outcome: Outcome) -> Option<MendEvent> {
    let now = shared.now();
    let mut state = shared.state();
    let settings = state.settings;
    state.current = None;
    let Candidate { file, path, excess, .. } = job.candidate.clone();
    let spent = match &outcome {
        Outcome::Done(mended) => mended.moved,
        Outcome::Left(_, written) => *written,
        _ => Bytes(0),
    };
    state.figures.moved += spent;
    state.queue.spend(file.volume, spent, now);
    let event = match outcome {
        Outcome::Measured(size) => {
            state.queue.put_back(job, size, now);
            None
        }
        Outcome::NotQuiet => {
            let candidate = job.candidate;
            state.queue.offer(candidate, now, &settings);
            None
        }
        Outcome::Done(Mended { before, after, moved }) => {
            state.figures.mended += 1;
            state.figures.removed += before.saturating_sub(after);
            Some(MendEvent::Mended { file, path, before, after, moved })
        }
        Outcome::Left(reason, moved) if is_passing(reason) && state.volumes.contains_key(&file.volume) => {
            if state.queue.postpone(job, now, &settings) {
                state.figures.postponed += 1;
                Some(MendEvent::Postponed { file, reason, moved })
            } else {
                state.figures.left += 1;
                Some(MendEvent::Left { file, path, excess, reason, moved })
            }
        }
        Outcome::Left(reason, moved) => {
            state.figures.left += 1;
            Some(MendEvent::Left { file, path, excess, reason, moved })
        }
        Outcome::Refused(error) => {
            state.queue.forget_volume(file.volume);
            state.volumes.remove(&file.volume);
            Some(MendEvent::VolumeRefused { problem: error.to_string() })
        }
    };
    drop(state);
    shared.changed.notify_all();
    event
}

/// Asks the governor, and stops when somebody writes to the file.
struct Watch<'a> {
    shared: &'a Shared,
    device: DeviceNumber,
}

impl Observer for Watch<'_> {
    fn permission(&mut self, next: Bytes) -> Permission {
        self.shared.governor.permission(self.device, next)
    }

    fn turn(&self) -> Turn {
        self.shared.governor.turn(self.device)
    }

    fn cancelled(&self) -> bool {
        self.shared.interrupt.load(Ordering::Acquire)
    }

    fn wait(&mut self, time: Duration) {
        let state = self.shared.state();
        if !state.stopping && !self.cancelled() {
            drop(self.shared.changed.wait_timeout(state, time));
        }
    }
}
