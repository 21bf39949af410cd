//! The implementation of the facade: threads, volumes, start and stop.

use super::file;
use super::give_back::{self, Outcome};
use super::hints::{self, Hints, HintsUndone};
use super::journal::Journal;
use super::keeper::Clock;
use super::queue::Queue;
use super::reaction::Histogram;
use super::record::GiveBack;
use super::table::{Known, Stage, Volume};
use super::tail;
use crate::policy::{History, Policy, Settings};
use crate::sensor::{self, Sensor, SensorError};
use crate::state::{GivenBack, Options, PreventionError, SensorSnapshot, Snapshot, Swept, Totals};
use crate::{FileKey, SignalKind, Sink, Watched};
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{DeviceNumber, FileHandle};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const HISTORY: &str = "history.json";
/// So often the history is saved.
const SAVE: Duration = Duration::from_secs(60);
/// So long the sensor is waited for at a time. Signals wake its thread, and so does the end; each waking costs a tenth of a
/// millisecond of a processor.
const POLL: Duration = Duration::from_secs(5);
/// A worker that hangs on a volume is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// So much longer takes a volume that is let go, at most: whatever it does then, it is left behind.
const LEAVING: Duration = Duration::from_secs(2);

pub(crate) struct Core {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) sensor: Arc<dyn Sensor>,
    pub(super) journal: Journal,
    pub(super) queue: Queue,
    pub(super) clock: Clock,
    pub(super) hints: Hints,
    pub(super) debounce: Duration,
    refused: Option<SensorError>,
    volumes: RwLock<BTreeMap<DeviceNumber, Arc<Volume>>>,
    history: Mutex<History>,
    history_path: PathBuf,
    reaction: Mutex<Histogram>,
    signals: AtomicU64,
    broken: Mutex<Option<String>>,
    ended: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Core {
    pub(crate) fn start(options: Options, sink: Arc<dyn Sink>) -> Result<Arc<Self>, PreventionError> {
        // The lock first: a second service is told so, whatever else would be wrong.
        let journal = Journal::open(&options.state_directory)?;
        let sensor::Opened { sensor, refused } = sensor::open(options.sensor)?;
        Self::begin(&options, journal, sensor, refused, sink)
    }

    pub(crate) fn start_with(
        options: &Options,
        sensor: Arc<dyn Sensor>,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<Self>, PreventionError> {
        Self::begin(options, Journal::open(&options.state_directory)?, sensor, None, sink)
    }

    fn begin(
        options: &Options,
        journal: Journal,
        sensor: Arc<dyn Sensor>,
        refused: Option<SensorError>,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<Self>, PreventionError> {
        if let Some(damage) = &journal.damage {
            tracing::warn!("{damage}");
        }
        let history_path = options.state_directory.join(HISTORY);
        let history = match fs::read(&history_path).map(|saved| History::from_json(&saved)) {
            Ok((history, forgotten)) => {
                if let Some(reason) = forgotten {
                    tracing::warn!("{}: {reason}", history_path.display());
                }
                history
            }
            Err(_) => History::default(),
        };
        let workers = options.workers.clamp(1, 64);
        let core = Arc::new(Self {
            sink,
            sensor,
            journal,
            queue: Queue::new(workers),
            clock: Clock::default(),
            hints: Hints::open(&options.state_directory),
            debounce: options.debounce,
            refused,
            volumes: RwLock::default(),
            history: Mutex::new(history),
            history_path,
            reaction: Mutex::default(),
            signals: AtomicU64::new(0),
            broken: Mutex::default(),
            ended: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let started = core.start_threads(workers);
        if let Err(source) = started {
            core.stop();
            return Err(PreventionError::Threads { source });
        }
        Ok(core)
    }

    fn start_threads(self: &Arc<Self>, workers: usize) -> io::Result<()> {
        let spawn = |name: String, work: fn(&Self)| -> io::Result<()> {
            let core = Arc::clone(self);
            let thread = thread::Builder::new().name(name).spawn(move || {
                before_others();
                work(&core);
            })?;
            lock(&self.threads).push(thread);
            Ok(())
        };
        for number in 0..workers {
            spawn(format!("runway-{number}"), Self::work_off)?;
        }
        spawn("runway-keeper".into(), Self::keep)?;
        spawn("runway-saver".into(), Self::save)?;
        spawn("runway-sensor".into(), Self::listen)
    }

    fn work_off(&self) {
        while let Some((file, task)) = self.queue.take() {
            self.work(&file, &task);
            self.queue.done(&file);
        }
    }

    fn listen(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let result = self.sensor.poll(POLL, &mut |signal| {
                self.signals.fetch_add(1, Ordering::Relaxed);
                match signal.kind {
                    SignalKind::Closed => self.closed(&signal.file),
                    _ if self.knows(signal.file.volume) => self.queue.signal(signal),
                    _ => {}
                }
            });
            if let Err(error) = result {
                tracing::error!("the sensor failed; growth of files is no longer detected: {error}");
                *lock(&self.broken) = Some(error.to_string());
                return;
            }
        }
    }

    pub(crate) fn watch(self: &Arc<Self>, watched: &Watched, settings: Settings) -> Result<Swept, PreventionError> {
        if let Some(known) = self.volume(watched.device) {
            let (point, known) = (watched.point.clone(), known.watched.point.clone());
            return Err(PreventionError::Known { point, known });
        }
        let policy = Policy::new(settings)?;
        let failed = |act| {
            let point = watched.point.clone();
            move |source: io::Error| PreventionError::Volume { point, act, source }
        };
        drop(watched.open_root().map_err(failed("opening it"))?);
        let id = watched.identity().map_err(failed("reading its UUID"))?.into();
        let elsewhere = self.journal.elsewhere(&id);
        if elsewhere > 0 {
            let point = watched.point.display();
            tracing::info!(
                "{point}: runways of {elsewhere} files are on another device with the same UUID; they stay there"
            );
        }
        let compressed = watched.has_compression();
        let volume = Arc::new(Volume::new(watched.clone(), id, compressed, policy));
        self.hints.reconcile(watched);
        // Before anybody else can work on these files.
        let (swept, kept) = self.sweep(&volume);
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).insert(watched.device, Arc::clone(&volume));
        if let Err(source) = self.sensor.watch(watched) {
            self.unwatch(watched.device);
            return Err(PreventionError::Sensor { source });
        }
        for handle in kept {
            if let Ok(opened) = file::open_to_look(watched, &handle) {
                _ = self.sensor.arm(&FileKey { volume: watched.device, handle }, &opened.file, Bytes(u64::MAX));
            }
            self.look_again(&volume, &handle, Instant::now() + PATIENCE, Some(0));
        }
        Ok(swept)
    }

    /// Gives back what an earlier run has left. The files that want to be watched further are answered, too.
    fn sweep(&self, volume: &Volume) -> (Swept, Vec<FileHandle>) {
        let (mut swept, mut kept) = (Swept::default(), Vec::new());
        for (handle, entry) in self.journal.of_volume(&volume.id) {
            swept.files += 1;
            let (mut stage, mut size) = (Stage::Growing, Bytes(0));
            match give_back::settle(&volume.watched, &handle, &entry.give_back) {
                Outcome::Gone => {
                    swept.settled += 1;
                    self.journal.forget(&volume.id, handle);
                    continue;
                }
                Outcome::Settled(settled) => {
                    tail::tidy(&volume.watched, &settled);
                    swept.settled += 1;
                    swept.bytes.0 += settled.given_back.0;
                    volume.table().figures.trimmed.0 += settled.given_back.0;
                    if volume.watched.filesystem != FileSystem::Xfs || settled.foreign {
                        self.journal.retire(&volume.id, handle);
                        continue;
                    }
                    stage = Stage::Kept;
                    size = Bytes(settled.file.stat.len());
                }
                Outcome::Open => swept.open += 1,
                Outcome::Refused | Outcome::Unreachable => {}
            }
            let mut known = Known::new(stage, Instant::now());
            known.give_back = if stage == Stage::Kept { vec![GiveBack::End(size)] } else { entry.give_back };
            if let Some(forgotten) = volume.table().know(handle, known) {
                self.journal.retire(&volume.id, forgotten);
            }
            kept.push(handle);
        }
        (swept, kept)
    }

    pub(crate) fn adjust(&self, device: DeviceNumber, settings: Settings) -> Result<(), PreventionError> {
        let volume = self.volume(device).ok_or(PreventionError::Unknown { device })?;
        volume.table().policy.change(settings)?;
        let compressed = volume.watched.has_compression();
        volume.compressed.store(compressed, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn undo_hints(&self, device: DeviceNumber) -> Result<HintsUndone, PreventionError> {
        let volume = self.volume(device).ok_or(PreventionError::Unknown { device })?;
        hints::undo(&self.hints, &volume.watched)
    }

    pub(crate) fn unwatch(self: &Arc<Self>, device: DeviceNumber) -> GivenBack {
        self.let_go_in_time(self.volume(device).into_iter().collect())
    }

    /// Lets volumes go, each on a thread of its own: what the kernel keeps on one, because it is frozen or its device hangs,
    /// holds up neither the others nor the caller. Its runways stay in the journal.
    fn let_go_in_time(self: &Arc<Self>, volumes: Vec<Arc<Volume>>) -> GivenBack {
        let until = Instant::now() + PATIENCE + LEAVING;
        let leaving = volumes.into_iter().map(|volume| {
            let (told, result) = mpsc::channel();
            let (core, leaves) = (Arc::clone(self), Arc::clone(&volume));
            let body = move || {
                // No one listens any more when it took too long.
                _ = told.send(core.let_volume_go(&leaves));
            };
            let spawned = thread::Builder::new().name("runway-leaving".into()).spawn(body);
            (volume, result, spawned)
        });
        let mut given_back = GivenBack::default();
        for (volume, result, spawned) in leaving.collect::<Vec<_>>() {
            let in_time = match spawned {
                Ok(_) => result.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
                Err(_) => Some(self.let_volume_go(&volume)),
            };
            given_back.add(in_time.unwrap_or_else(|| self.leave_behind(&volume)));
        }
        given_back
    }

    /// The volume does not answer: what it holds stays in the journal, for the next start.
    fn leave_behind(&self, volume: &Volume) -> GivenBack {
        tracing::warn!(
            "{}: the volume does not respond (it is frozen, or its device hangs); its runways stay in the journal",
            volume.watched.point.display()
        );
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).remove(&volume.watched.device);
        let table = volume.table();
        let mut left = GivenBack::default();
        for (_, known) in table.growing() {
            left.left_files += 1;
            left.left_bytes.0 += known.held.0;
        }
        left
    }

    fn let_volume_go(&self, volume: &Volume) -> GivenBack {
        let device = volume.watched.device;
        volume.leaving.store(true, Ordering::Release);
        self.sensor.unwatch(device);
        let idle = self.queue.clear(device, PATIENCE);
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).remove(&device);
        let mut given_back = GivenBack::default();
        let handles = volume.table().handles();
        for handle in handles {
            let Some((growing, held, what)) = volume
                .table()
                .get(&handle)
                .map(|known| (known.stage == Stage::Growing, known.held, known.give_back.clone()))
            else {
                continue;
            };
            // Where a worker hangs we would, too. What was only left alone has nothing to give back.
            let outcome = if what.is_empty() || !idle {
                Outcome::Open
            } else {
                give_back::settle(&volume.watched, &handle, &what)
            };
            match outcome {
                Outcome::Settled(settled) => {
                    given_back.files += u64::from(growing || settled.given_back.0 > 0);
                    given_back.bytes.0 += settled.given_back.0;
                    tail::tidy(&volume.watched, &settled);
                    self.settled(volume, &handle, &settled, false);
                }
                Outcome::Gone => self.journal.forget(&volume.id, handle),
                Outcome::Open | Outcome::Refused | Outcome::Unreachable if growing => {
                    given_back.left_files += 1;
                    given_back.left_bytes.0 += held.0;
                }
                Outcome::Open | Outcome::Refused | Outcome::Unreachable => {}
            }
        }
        given_back
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut volumes: Vec<_> = self.volumes().iter().map(|volume| volume.snapshot()).collect();
        volumes.sort_by(|a, b| a.point.cmp(&b.point));
        Snapshot {
            volumes,
            sensor: SensorSnapshot {
                kind: self.sensor.kind(),
                reason: self.refused.as_ref().map(ToString::to_string),
                signals: self.signals.load(Ordering::Relaxed),
                lost: self.sensor.lost() + self.queue.dropped(),
                broken: lock(&self.broken).clone(),
            },
            queue: self.queue.len(),
            reaction: self.reaction().reaction(),
            journal_files: self.journal.files(),
            journal_trouble: self.journal.trouble().or_else(|| self.journal.damage.clone()),
        }
    }

    pub(crate) fn quiet(&self, file: &FileKey) -> bool {
        self.volume(file.volume).is_none_or(|volume| volume.table().quiet(&file.handle, Instant::now()))
    }

    pub(crate) fn stop(self: &Arc<Self>) -> Totals {
        let until = Instant::now() + PATIENCE + LEAVING;
        let mut last = self.snapshot();
        let volumes = self.volumes();
        let given_back = self.let_go_in_time(volumes.clone());
        last.volumes = volumes.iter().map(|volume| volume.snapshot()).collect();
        self.ended.store(true, Ordering::Release);
        self.queue.end();
        self.clock.end();
        self.sensor.wake();
        let threads = std::mem::take(&mut *lock(&self.threads));
        threads.iter().for_each(|thread| thread.thread().unpark());
        let until = until.max(Instant::now() + LEAVING);
        for thread in threads {
            // One that hangs in the kernel is left behind: it ends with the process.
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a prevention thread ended unexpectedly (panic)");
            }
        }
        // Also for the thread that hangs: another service may have it now.
        self.journal.close();
        last.volumes.sort_by(|a, b| a.point.cmp(&b.point));
        Totals { last, given_back }
    }

    pub(super) fn volume(&self, device: DeviceNumber) -> Option<Arc<Volume>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
    }

    fn knows(&self, device: DeviceNumber) -> bool {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).contains_key(&device)
    }

    pub(super) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    pub(super) fn reaction(&self) -> MutexGuard<'_, Histogram> {
        lock(&self.reaction)
    }

    /// Saves the history now and then, and at the end. A thread of its own: the disk that it lies on may not answer.
    fn save(&self) {
        loop {
            thread::park_timeout(SAVE);
            let last = self.ended.load(Ordering::Acquire);
            self.save_history();
            if last {
                return;
            }
        }
    }

    /// Lost with the machine it is learned again: so no sync.
    fn save_history(&self) {
        let saved = self.history().to_json();
        let new = self.history_path.with_extension("json.new");
        if let Err(error) = fs::write(&new, saved).and_then(|()| fs::rename(&new, &self.history_path)) {
            tracing::warn!("{}: saving the learned history failed: {error}", self.history_path.display());
        }
    }
}

/// A writer makes its next piece within a millisecond, and there are as many writers as processors or more: who answers them
/// must not wait behind them. What is not permitted is slower, not wrong.
pub(super) fn before_others() {
    if longrun_sys::run_before_others().is_err() {
        _ = longrun_sys::set_nice(-20);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
