//! The thread that mends.
//!
//! Owns the synchronization with the threads that offer files, and the consequences of each result for the queue. Runs
//! at idle I/O priority, holds no lock while it mends, and opens the root of a volume only while it mends one file.

use super::lasting::{is_for_good, is_passing};
use super::model::{Candidate, Governor, MendEvent, MendSettings, MendSink, MendingSnapshot};
use super::queue::{Job, Next, Queue};
use crate::patience::join_until;
use longrun_engine::{Observer, Permission, Turn};
use longrun_engine::{SkipReason, VolumeError};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, Nanos, Watched};
use longrun_sys::{DeviceNumber, Errno, FileHandle, OFlags};
use longrun_volume::mend::{Limits, MendError, Mended, NotMended, Place};
use longrun_volume::mend_file;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the worker sleeps at most when it waits for a time to come: a clock that was set, or a suspended machine, is
/// noticed within.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// So long a worker is waited for that is to leave its file: longer than a chunk takes to be moved. One that does
/// not come back by then is in the hands of the kernel: the volume is frozen, or its device hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Mends files of the volumes that it was given, until it is dropped.
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
    mender: Box<Mender>,
}

/// What makes one file whole.
pub type Mender = dyn Fn(Place<'_>, &FileHandle, Limits, &mut dyn Observer) -> Result<Mended, MendError> + Send + Sync;

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    volumes: BTreeMap<DeviceNumber, Watched>,
    settings: MendSettings,
    figures: MendingSnapshot,
    current: Option<FileKey>,
    /// When the worker was last heard of while it mends.
    heard: Option<Instant>,
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
        Self::start_with(settings, governor, sink, Box::new(mend_file))
    }

    /// The same with another mender, for one that fails.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start_with(
        settings: MendSettings,
        governor: Arc<dyn Governor>,
        sink: Arc<dyn MendSink>,
        mender: Box<Mender>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { settings, ..State::default() }),
            changed: Condvar::new(),
            interrupt: AtomicBool::new(false),
            begun: Instant::now(),
            governor,
            sink,
            mender,
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

    /// No file of this volume is mended any more. True when none is, so that it can be unmounted; false when the
    /// kernel has not come back from one for some seconds, because the volume is frozen or its device hangs.
    #[must_use]
    pub fn unwatch(&self, device: DeviceNumber) -> bool {
        let until = Instant::now() + PATIENCE;
        let mut state = self.shared.state();
        state.volumes.remove(&device);
        state.queue.forget_volume(device);
        while state.current.is_some_and(|file| file.volume == device) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.shared.interrupt.store(true, Ordering::Release);
            self.shared.changed.notify_all();
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Has the worker end, without waiting for it.
    pub fn end(&self) {
        self.shared.state().stopping = true;
        self.shared.interrupt.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }

    /// Whether the worker has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
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

    /// Another process writes to a file. If the file waits, its quiet time starts again; if it is being mended, that
    /// ends.
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

    /// What is wrong with a volume where mending fails again and again.
    #[must_use]
    pub fn trouble(&self, device: DeviceNumber) -> Option<String> {
        let now = self.shared.now();
        self.shared.state().queue.trouble(device, now)
    }

    /// What has been done, and what waits.
    #[must_use]
    pub fn snapshot(&self) -> MendingSnapshot {
        let state = self.shared.state();
        MendingSnapshot {
            queued: state.queue.len(),
            queued_excess: state.queue.excess(),
            at_work: state.current.is_some(),
            waits: state.queue.waits(self.shared.now()),
            behind: state.queue.behind(self.shared.now()),
            silent: state.current.and(state.heard).map(|heard| heard.elapsed()).unwrap_or_default(),
            ..state.figures
        }
    }
}

impl Drop for Mending {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // One that the kernel keeps is left behind: it ends when the volume answers. A panic in it has been reported on
            // stderr already.
            let _ = join_until(thread, Instant::now() + PATIENCE);
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
    // Where the scheduler knows no such thing, no one is worse off than beside any other program.
    let _ = longrun_sys::yield_io_to_others();
    while let Some((work, volume)) = next(shared) {
        match work {
            Work::Mend(job) => {
                let outcome = attempt(shared, &job, &volume);
                if let Some(event) = settle(shared, *job, outcome) {
                    shared.sink.mending(&volume.point, &event);
                }
            }
            Work::Look(file) => look_after(shared, &file, &volume),
        }
    }
}

/// What the worker does next.
enum Work {
    Mend(Box<Job>),
    /// Look whether a file is still there.
    Look(FileKey),
}

/// Waits for the next work; `None` at the end.
fn next(shared: &Shared) -> Option<(Work, Watched)> {
    let mut state = shared.state();
    loop {
        if state.stopping {
            return None;
        }
        let (settings, now) = (state.settings, shared.now());
        let (work, sleep) = match state.queue.next(now, &settings) {
            Next::Mend(job) => (Some(Work::Mend(job)), Duration::ZERO),
            // A disk may be asleep meanwhile.
            _ if settings.resting => (None, LONGEST_SLEEP),
            Next::Wait(time) => (state.queue.lives.to_look_at(now).map(Work::Look), time),
            Next::Idle => (state.queue.lives.to_look_at(now).map(Work::Look), LONGEST_SLEEP),
        };
        if let Some(work) = work {
            let file = match &work {
                Work::Mend(job) => job.candidate.file,
                Work::Look(file) => *file,
            };
            let Some(volume) = state.volumes.get(&file.volume).cloned() else {
                // Of a volume that is not watched nothing is followed.
                state.queue.lives.forget_volume(file.volume);
                continue;
            };
            state.current = Some(file);
            state.heard = Some(Instant::now());
            shared.interrupt.store(false, Ordering::Release);
            return Some((work, volume));
        }
        let look = state.queue.lives.next_look().filter(|_| !settings.resting);
        let look = look.map_or(LONGEST_SLEEP, |at| Duration::from_nanos(at.0.saturating_sub(now.0)));
        let sleep = sleep.min(look).min(LONGEST_SLEEP);
        state = shared.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Looks whether a followed file is still there.
fn look_after(shared: &Shared, file: &FileKey, volume: &Watched) {
    // Where the volume cannot be opened, nothing is known of its files.
    let is_gone = volume.open_root().is_ok_and(|root| look(&root, &file.handle).is_err_and(is_gone));
    let now = shared.now();
    let mut state = shared.state();
    state.current = None;
    if is_gone {
        state.queue.lives.gone(file, now)
    } else {
        state.queue.lives.alive(file, now)
    }
    drop(state);
    shared.changed.notify_all();
}

/// How an attempt ended.
enum Outcome {
    /// Its length was not known: now it is, and it takes its place in the order by that.
    Measured(Bytes),
    /// It was written to just now.
    NotQuiet,
    Done(Mended),
    /// It costs more than is paid now.
    Dear,
    /// It has been deleted.
    Gone,
    Left(NotMended, Bytes),
    /// It failed this time.
    Failed(VolumeError),
    /// Nothing can ever be done on the volume.
    Refused(VolumeError),
}

fn attempt(shared: &Shared, job: &Job, volume: &Watched) -> Outcome {
    let vanished = || Outcome::Left(NotMended::Skipped(SkipReason::Vanished), Bytes(0));
    // Another volume is mounted there by now; the thread that watches the mounts reports it, too.
    let Ok(root) = volume.open_root() else { return vanished() };
    let (size, idle) = match look(&root, &job.candidate.file.handle) {
        Ok(seen) => seen,
        Err(errno) if is_gone(errno) => return Outcome::Gone,
        Err(_) => return vanished(),
    };
    if job.candidate.size.is_none() {
        return Outcome::Measured(size);
    }
    let settings = shared.state().settings;
    if idle < settings.quiet {
        return Outcome::NotQuiet;
    }
    let mut watch = Watch { shared, device: volume.device };
    let place = Place { root: &root, point: &volume.point };
    let limits = Limits { budget: job.budget, worth: settings.worth, price: job.price(settings.worth), floor: None };
    match (shared.mender)(place, &job.candidate.file.handle, limits, &mut watch) {
        Ok(mended) => Outcome::Done(mended),
        Err(MendError::Left { reason: NotMended::Dear, .. }) => Outcome::Dear,
        Err(MendError::Left { reason, written }) => Outcome::Left(reason, written),
        Err(MendError::Volume(VolumeError::TooFull { .. })) => Outcome::Left(NotMended::LowSpace, Bytes(0)),
        Err(MendError::Volume(error)) if is_for_good(&error) => Outcome::Refused(error),
        Err(MendError::Volume(error)) => Outcome::Failed(error),
    }
}

/// How long a file is, and since when no one has written to it.
fn look(root: &File, handle: &FileHandle) -> Result<(Bytes, Duration), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(handle.open(root, flags)?);
    let meta = file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if !meta.is_file() || meta.nlink() == 0 {
        return Err(Errno::NOENT);
    }
    // A time in the future was set by hand, and says nothing.
    let idle = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    Ok((Bytes(meta.len()), idle.unwrap_or(Duration::MAX)))
}

/// Whether the kernel says that there is no such file, rather than that it could not look.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::STALE | Errno::NOENT)
}

/// Records an outcome; returns what there is to report about it.
fn settle(shared: &Shared, job: Job, outcome: Outcome) -> Option<MendEvent> {
    let now = shared.now();
    let mut state = shared.state();
    let settings = state.settings;
    state.current = None;
    if matches!(outcome, Outcome::Done(_)) {
        state.queue.worked(job.candidate.file.volume);
    }
    let Candidate { file, path, excess, .. } = job.candidate.clone();
    match &outcome {
        Outcome::Done(_) => state.queue.lives.mended(&file, now),
        Outcome::Gone => state.queue.lives.gone(&file, now),
        _ => {}
    }
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
            state.queue.not_quiet(job, now, &settings);
            None
        }
        Outcome::Dear => {
            state.queue.dearer(job, now, &settings);
            None
        }
        Outcome::Done(Mended { before, after, moved }) => {
            state.figures.mended += 1;
            state.figures.removed += before.saturating_sub(after);
            Some(MendEvent::Mended { file, path, before, after, moved })
        }
        Outcome::Gone => {
            state.figures.left += 1;
            let reason = NotMended::Skipped(SkipReason::Vanished);
            Some(MendEvent::Left { file, path, excess, reason, moved: Bytes(0) })
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
        Outcome::Failed(error) => {
            let problem = error.to_string();
            let (failures, again) = state.queue.failed(job, &problem, now, &settings);
            state.figures.failed += 1;
            Some(MendEvent::Failed { file, path, problem, failures, again })
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

/// Asks the governor, and stops when another process writes to the file.
struct Watch<'a> {
    shared: &'a Shared,
    device: DeviceNumber,
}

impl Observer for Watch<'_> {
    fn permission(&mut self, next: Bytes) -> Permission {
        self.shared.state().heard = Some(Instant::now());
        self.shared.governor.permission(self.device, next)
    }

    fn turn(&self) -> Turn {
        self.shared.governor.turn(self.device)
    }

    fn cancelled(&self) -> bool {
        self.shared.interrupt.load(Ordering::Acquire)
    }

    fn wait(&mut self, time: Duration) {
        let mut state = self.shared.state();
        state.heard = Some(Instant::now());
        if !state.stopping && !self.cancelled() {
            drop(self.shared.changed.wait_timeout(state, time));
        }
    }
}
