//! The sensor that uses BPF programs at the kernel's own allocations.
//!
//! Owns the programs, their maps (which volumes, which armed files), and the queue of their events.
//! `src/bpf/growth.bpf.c` decides what counts as fragmenting; `record` decodes the events.

mod programs;
mod record;
mod skeleton;

use super::closes::CloseNotice;
use super::{Sensor, SensorError, Settings};
use crate::{FileKey, SensorKind, Signal, Watched};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use longrun_bpf::KernelDevice;
use longrun_layout::Bytes;
use longrun_sys::{Bell, DeviceNumber, Errno, FileHandle, FileSystem, wait_readable};
use programs::Group;
use record::{HandleForm, Identity, Rules};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// The BPF sensor.
pub(super) struct Bpf {
    // First: it reads what the others own.
    ring: Mutex<RingBuffer<'static>>,
    events: Arc<Mutex<Vec<record::Event>>>,
    groups: Mutex<BTreeMap<FileSystem, Group>>,
    core: Group,
    volumes: RwLock<BTreeMap<KernelDevice, Volume>>,
    armed: Mutex<BTreeSet<FileKey>>,
    closes: CloseNotice,
    bell: Bell,
    strange: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Volume {
    watched: Watched,
    form: HandleForm,
}

impl Bpf {
    /// Loads and attaches what all volumes need: the proof that the kernel lets us.
    pub(super) fn open(settings: Settings) -> Result<Self, SensorError> {
        let closes = CloseNotice::new(settings)?;
        let bell = super::bell()?;
        let core = Group::core(settings)?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let strange = Arc::new(AtomicU64::new(0));
        let ring = {
            let (events, strange) = (Arc::clone(&events), Arc::clone(&strange));
            let queue = table(&core, "events")?;
            let mut builder = RingBufferBuilder::new();
            builder
                .add(&queue, move |bytes| {
                    match record::event(bytes) {
                        Some(event) => lock(&events).push(event),
                        None => _ = strange.fetch_add(1, Ordering::Relaxed),
                    }
                    0
                })
                .map_err(refused)?;
            builder.build().map_err(refused)?
        };
        Ok(Self {
            ring: Mutex::new(ring),
            events,
            groups: Mutex::default(),
            core,
            volumes: RwLock::default(),
            armed: Mutex::default(),
            closes,
            bell,
            strange,
        })
    }

    fn volume(&self, device: KernelDevice) -> Option<Volume> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
    }

    /// Tells the programs how many files are armed: with none, they do not even look.
    fn count_armed(&self, armed: &BTreeSet<FileKey>) -> Result<(), SensorError> {
        let count = (armed.len() as u64).to_ne_bytes();
        table(&self.core, "armed_count")?.update(&0u32.to_ne_bytes(), &count, MapFlags::ANY).map_err(refused)
    }

    fn forget(&self, key: &FileKey) {
        let mut armed = lock(&self.armed);
        if let (true, Some(identity), Ok(marks)) =
            (armed.remove(key), Identity::of(&key.handle), table(&self.core, "armed"))
        {
            // Gone already is as good.
            let _ = marks.delete(&identity.key(KernelDevice::of(key.volume)));
            let _ = self.count_armed(&armed);
        }
    }

    fn signal(&self, event: record::Event) -> Option<Signal> {
        let volume = self.volume(event.device)?;
        let handle = event.file.handle(volume.form)?;
        let file = FileKey { volume: volume.watched.device, handle };
        Some(Signal { at: event.at, file, size: event.size, by: event.by, kind: event.kind })
    }
}

impl Sensor for Bpf {
    fn kind(&self) -> SensorKind {
        SensorKind::Bpf
    }

    fn watch(&self, watched: &Watched) -> Result<(), SensorError> {
        let act = "to open the root of the volume";
        let root = watched
            .open_root()
            .map_err(|error| SensorError::Refused { act, source: Errno::from_io_error(&error).unwrap_or(Errno::IO) })?;
        let handle = FileHandle::of_file(&root).map_err(|source| SensorError::Refused { act, source })?;
        drop(root);
        let form = HandleForm::of(&handle).ok_or_else(|| SensorError::Bpf {
            detail: format!("the file handles of {} have an unknown format", watched.filesystem),
        })?;
        let mut groups = lock(&self.groups);
        if let std::collections::btree_map::Entry::Vacant(place) = groups.entry(watched.filesystem) {
            place.insert(Group::of(watched.filesystem, &self.core)?);
        }
        let device = KernelDevice::of(watched.device);
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        volumes.insert(device, Volume { watched: watched.clone(), form });
        let rules = Rules::of(watched.filesystem).value();
        table(&self.core, "volumes")?.update(&device.bytes(), &rules, MapFlags::ANY).map_err(refused)
    }

    fn unwatch(&self, volume: DeviceNumber) {
        let device = KernelDevice::of(volume);
        let armed: Vec<FileKey> = lock(&self.armed).iter().filter(|key| key.volume == volume).copied().collect();
        armed.iter().for_each(|key| self.disarm(key));
        let mut groups = lock(&self.groups);
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(table) = table(&self.core, "volumes") {
            let _ = table.delete(&device.bytes());
        }
        let Some(gone) = volumes.remove(&device) else { return };
        // The last of its type: its programs would only cost, and keep the module loaded.
        if volumes.values().all(|volume| volume.watched.filesystem != gone.watched.filesystem) {
            groups.remove(&gone.watched.filesystem);
        }
    }

    fn arm(&self, key: &FileKey, file: &File, half: Bytes) -> Result<(), SensorError> {
        let identity = Identity::of(&key.handle)
            .ok_or_else(|| SensorError::Bpf { detail: "a file handle has an unknown format".to_owned() })?;
        let marks = table(&self.core, "armed")?;
        let mut armed = lock(&self.armed);
        marks
            .update(&identity.key(KernelDevice::of(key.volume)), &record::armed(half), MapFlags::ANY)
            .map_err(refused)?;
        armed.insert(*key);
        self.count_armed(&armed)?;
        drop(armed);
        self.closes.add(key, file)
    }

    fn disarm(&self, key: &FileKey) {
        self.forget(key);
        let volume = self.volume(KernelDevice::of(key.volume));
        self.closes.remove(key, volume.as_ref().map(|volume| &volume.watched));
    }

    fn poll(&self, timeout: Duration, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError> {
        let ring = lock(&self.ring);
        let queue = table(&self.core, "events")?;
        wait_readable(&[queue.as_fd(), self.closes.as_fd(), self.bell.as_fd()], timeout)
            .map_err(|source| SensorError::Refused { act: "to wait for events", source })?;
        self.bell.silence();
        ring.consume().map_err(refused)?;
        let events = std::mem::take(&mut *lock(&self.events));
        events.into_iter().filter_map(|event| self.signal(event)).for_each(&mut *sink);
        self.closes.take(sink)
    }

    fn wake(&self) {
        self.bell.ring();
    }

    fn lost(&self) -> u64 {
        let in_kernel: u64 = table(&self.core, "lost")
            .ok()
            .and_then(|counts| counts.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten())
            .into_iter()
            .flatten()
            .filter_map(|count| Some(u64::from_ne_bytes(count.try_into().ok()?)))
            .sum();
        in_kernel + self.strange.load(Ordering::Relaxed) + self.closes.lost()
    }
}

fn table<'a>(group: &'a Group, name: &'static str) -> Result<libbpf_rs::Map<'a>, SensorError> {
    group.table(name).ok_or_else(|| SensorError::Bpf { detail: format!("the BPF program has no map named {name}") })
}

fn refused(error: libbpf_rs::Error) -> SensorError {
    SensorError::Bpf { detail: format!("{error:#}") }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held leaves nothing half done that matters here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
