//! The fallback for kernels that refuse BPF: receives every change of content on a volume, and examines the maps of
//! growing files.
//!
//! Owns one queue, with a mark for each volume. It costs each write on a watched volume 0.7 to 2.1 microseconds, and
//! each growing file an examination of its end for every 256 KiB, at most fifty per second. It reacts later than BPF,
//! does not see scattered writes into holes, and does not know the writer. btrfs subvolumes can be watched only through
//! the top-level subvolume.

use super::tail::{LOOK_PAUSE, Tail};
use super::{Sensor, SensorError, Settings};
use crate::{FileKey, Nanos, ProcessName, SensorKind, Signal, SignalKind, Watched};
use longrun_layout::Bytes;
use longrun_sys::{
    Bell, ByteRange, DeviceNumber, Errno, FileEvent, FileEvents, FileExtent, FileSystemId, Interest, Mapping, OFlags,
    file_system_id, for_each_extent, monotonic_nanoseconds, wait_readable,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many files are remembered.
const FILES: usize = 4096;
/// How many extents are looked at in one look.
const EXTENTS: usize = 256;

/// The fanotify sensor.
pub(super) struct Fanotify {
    queue: FileEvents,
    bell: Bell,
    state: Mutex<State>,
    lost: AtomicU64,
    /// What it does is not told.
    silent: Option<u32>,
}

#[derive(Default)]
struct State {
    volumes: BTreeMap<DeviceNumber, (FileSystemId, Watched)>,
    tails: BTreeMap<FileKey, Tail>,
    armed: BTreeMap<FileKey, Mark>,
    /// Changed since their last look, which is not long enough ago.
    waiting: BTreeSet<FileKey>,
}

#[derive(Clone, Copy)]
struct Mark {
    half: Bytes,
    fired: bool,
}

impl Fanotify {
    pub(super) fn open(settings: Settings) -> Result<Self, SensorError> {
        let queue = FileEvents::new()
            .map_err(|source| SensorError::Refused { act: "to report changes of files (fanotify)", source })?;
        let (bell, silent) = (super::bell()?, settings.silent_process());
        Ok(Self { queue, bell, state: Mutex::default(), lost: AtomicU64::new(0), silent })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, events: Vec<FileEvent>, sink: &mut dyn FnMut(Signal)) {
        let at = Nanos(monotonic_nanoseconds());
        let mut closes = Vec::new();
        for event in events {
            let mut state = self.state();
            match event {
                FileEvent::Overflow => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    closes.extend(state.armed.keys().copied());
                }
                FileEvent::File { process, .. } if Some(process) == self.silent => {}
                FileEvent::File { filesystem, handle, changed, closed, .. } => {
                    let device = state.volumes.iter().find(|(_, (id, _))| *id == filesystem).map(|(device, _)| *device);
                    let Some(volume) = device else { continue };
                    let key = FileKey { volume, handle };
                    if changed {
                        state.waiting.insert(key);
                    }
                    if closed && state.armed.contains_key(&key) {
                        closes.push(key);
                    }
                }
            }
        }
        self.look(sink);
        closes.into_iter().map(|file| Signal::closed(file, at)).for_each(sink);
    }

    /// Looks at the files that are due, volume by volume.
    fn look(&self, sink: &mut dyn FnMut(Signal)) {
        let now = Nanos(monotonic_nanoseconds());
        let mut state = self.state();
        let due: Vec<FileKey> = state.waiting.iter().copied().filter(|key| state.is_due(key, now)).collect();
        let mut root: Option<(DeviceNumber, File)> = None;
        for key in due {
            state.waiting.remove(&key);
            let Some((_, watched)) = state.volumes.get(&key.volume).cloned() else { continue };
            if root.as_ref().is_none_or(|(device, _)| *device != key.volume) {
                root = watched.open_root().ok().map(|root| (key.volume, root));
            }
            let Some((_, root)) = &root else { continue };
            for signal in state.look(key, &watched, root, now) {
                sink(signal);
            }
        }
        if state.tails.len() > FILES {
            let mut times: Vec<Nanos> = state.tails.values().map(|tail| tail.looked).collect();
            times.sort_unstable();
            let middle = times.get(times.len() / 2).copied().unwrap_or_default();
            state.tails.retain(|_, tail| tail.looked > middle);
        }
    }

    /// Until a waiting file is due.
    fn shortened(&self, timeout: Duration) -> Duration {
        if self.state().waiting.is_empty() { timeout } else { timeout.min(Duration::from_nanos(LOOK_PAUSE.0)) }
    }
}

impl State {
    fn is_due(&self, key: &FileKey, now: Nanos) -> bool {
        self.tails.get(key).is_none_or(|tail| now.0.saturating_sub(tail.looked.0) >= LOOK_PAUSE.0)
    }

    fn look(&mut self, key: FileKey, watched: &Watched, root: &File, now: Nanos) -> Vec<Signal> {
        let mut signals = Vec::new();
        // Never waits for a lease, and leaves the time of access alone.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME;
        let Ok(file) = key.handle.open(root, flags).map(File::from) else {
            self.tails.remove(&key);
            return signals;
        };
        let Ok(facts) = file.metadata() else { return signals };
        if !facts.is_file() || facts.permissions().mode() & 0o111 != 0 {
            return signals;
        }
        let size = Bytes(facts.len());
        let signal = |kind| Signal { at: now, file: key, size, by: ProcessName::default(), kind };
        if let Some(mark) = self.armed.get_mut(&key).filter(|mark| !mark.fired && size > mark.half) {
            mark.fired = true;
            signals.push(signal(SignalKind::HalfUsed { end: size }));
        }
        let tail = self.tails.entry(key).or_default();
        tail.looked = now;
        if let Some(from) = tail.wants_look(size) {
            let mut extents: Vec<FileExtent> = Vec::new();
            let range = ByteRange { start: from, length: Bytes(size.0.saturating_sub(from.0)) };
            let mapped = for_each_extent(&file, range, Mapping::AsIs, |extent| {
                extents.push(extent);
                extents.len() < EXTENTS
            });
            if mapped.is_ok() {
                signals.extend(tail.look(watched.filesystem, size, &extents, now).map(signal));
            }
        }
        signals
    }
}

impl Sensor for Fanotify {
    fn kind(&self) -> SensorKind {
        SensorKind::Fanotify
    }

    fn watch(&self, watched: &Watched) -> Result<(), SensorError> {
        let refused = |source| SensorError::Refused {
            act: match source {
                Errno::XDEV => {
                    "to report changes through a mounted btrfs subvolume (mount the top-level subvolume, subvolid=5, \
                     and watch that)"
                }
                _ => "to report changes on a volume (fanotify)",
            },
            source,
        };
        let root = watched.open_root().map_err(|error| refused(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let id = file_system_id(&root).map_err(refused)?;
        self.queue.add_volume(&root, Interest::ChangesAndCloses).map_err(refused)?;
        self.state().volumes.insert(watched.device, (id, watched.clone()));
        Ok(())
    }

    fn unwatch(&self, volume: DeviceNumber) {
        let mut state = self.state();
        state.armed.retain(|key, _| key.volume != volume);
        state.tails.retain(|key, _| key.volume != volume);
        state.waiting.retain(|key| key.volume != volume);
        let Some((_, watched)) = state.volumes.remove(&volume) else { return };
        // When it is unmounted, its mark is gone with it.
        if let Ok(root) = watched.open_root() {
            let _ = self.queue.remove_volume(&root, Interest::ChangesAndCloses);
        }
    }

    fn arm(&self, key: &FileKey, _file: &File, half: Bytes) -> Result<(), SensorError> {
        self.state().armed.insert(*key, Mark { half, fired: false });
        Ok(())
    }

    fn disarm(&self, key: &FileKey) {
        self.state().armed.remove(key);
    }

    fn poll(&self, timeout: Duration, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError> {
        let refused = |source| SensorError::Refused { act: "to deliver events for changed files (fanotify)", source };
        wait_readable(&[self.queue.as_fd(), self.bell.as_fd()], self.shortened(timeout)).map_err(refused)?;
        self.bell.silence();
        self.tell(self.queue.read().map_err(refused)?, sink);
        Ok(())
    }

    fn wake(&self) {
        self.bell.ring();
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use longrun_sys::FileHandle;

    /// As in [`super::super::closes`] for BPF: a process that gets events of its own closes examines files for ever.
    #[test]
    fn nobody_is_told_of_his_own_closes_unless_he_wants_that() {
        let file = tempfile::tempfile().unwrap();
        let key = FileKey { volume: DeviceNumber { major: 0, minor: 1 }, handle: FileHandle::of_file(&file).unwrap() };
        let filesystem = file_system_id(&file).unwrap();
        let xfs = longrun_sys::FileSystem::Xfs;
        let watched = Watched { device: key.volume, mount: 0, filesystem: xfs, point: "/".into() };
        for own_writes in [false, true] {
            let sensor = Fanotify::open(Settings { own_writes, ..Settings::default() }).unwrap();
            sensor.state().volumes.insert(key.volume, (filesystem, watched.clone()));
            sensor.arm(&key, &file, Bytes(0)).unwrap();
            let closed =
                |process| FileEvent::File { filesystem, handle: key.handle, changed: false, closed: true, process };
            let mut told = 0;
            sensor.tell(vec![closed(std::process::id()), closed(1)], &mut |_| told += 1);
            assert_eq!(told, 1 + usize::from(own_writes));
        }
    }
}
