//! Detects when writers close files that have a runway.
//!
//! Owns one fanotify queue with a mark on each such file and no others, so other closes cost nothing. If the kernel
//! refuses a mark (btrfs subvolumes before Linux 6.8), arming reports it, and only the caller's own checks remain.

use super::{SensorError, Settings};
use crate::{FileKey, Nanos, Signal, Watched};
use longrun_sys::{
    Errno, FileEvent, FileEvents, FileHandle, FileSystemId, Interest, OFlags, file_system_id, monotonic_nanoseconds,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The queue of closes.
pub(super) struct CloseNotice {
    queue: FileEvents,
    files: Mutex<BTreeMap<(FileSystemId, FileHandle), FileKey>>,
    lost: AtomicU64,
    /// What it closes is not told.
    silent: Option<u32>,
}

impl CloseNotice {
    /// A queue that no file is marked for yet.
    pub(super) fn new(settings: Settings) -> Result<Self, SensorError> {
        let queue = FileEvents::new()
            .map_err(|source| SensorError::Refused { act: "to report when files are closed (fanotify)", source })?;
        let silent = settings.silent_process();
        Ok(Self { queue, files: Mutex::default(), lost: AtomicU64::new(0), silent })
    }

    /// Marks `file`, which is `key`. Marking it again is no error.
    pub(super) fn add(&self, key: &FileKey, file: &File) -> Result<(), SensorError> {
        let refused = |source| SensorError::Refused { act: "to report when a file is closed (fanotify)", source };
        let id = file_system_id(file).map_err(refused)?;
        // Known before it is marked: a close right after marking must find it.
        self.files().insert((id, key.handle), *key);
        self.queue.add_file(file, Interest::Closes).map_err(|error| {
            self.files().remove(&(id, key.handle));
            refused(error)
        })
    }

    /// Takes the mark off a file. What remains on a file that cannot be opened any more goes with its inode.
    pub(super) fn remove(&self, key: &FileKey, volume: Option<&Watched>) {
        let mut known = false;
        self.files().retain(|_, file| {
            known |= file == key;
            file != key
        });
        let Some(root) = volume.filter(|_| known).and_then(|volume| volume.open_root().ok()) else { return };
        // Opened by name only, so that no lease of another process is broken by it.
        if let Ok(file) = key.handle.open(&root, OFlags::PATH) {
            let _ = self.queue.remove_file(&file, Interest::Closes);
        }
    }

    /// Gives `sink` the closes that were noticed. After an overflow, every file may have been closed.
    pub(super) fn take(&self, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError> {
        let refused =
            |source: Errno| SensorError::Refused { act: "to deliver events for closed files (fanotify)", source };
        self.tell(self.queue.read().map_err(refused)?, sink);
        Ok(())
    }

    fn tell(&self, events: Vec<FileEvent>, sink: &mut dyn FnMut(Signal)) {
        let at = Nanos(monotonic_nanoseconds());
        for event in events {
            let files: Vec<FileKey> = match event {
                FileEvent::Overflow => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    self.files().values().copied().collect()
                }
                FileEvent::File { process, .. } if Some(process) == self.silent => Vec::new(),
                FileEvent::File { filesystem, handle, .. } => {
                    self.files().get(&(filesystem, handle)).copied().into_iter().collect()
                }
            };
            files.into_iter().map(|file| Signal::closed(file, at)).for_each(&mut *sink);
        }
    }

    /// How often the queue overflowed.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<(FileSystemId, FileHandle), FileKey>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for CloseNotice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SignalKind;
    use longrun_sys::DeviceNumber;

    #[test]
    fn after_an_overflow_every_armed_file_may_have_been_closed() {
        let notice = CloseNotice::new(Settings::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut keys: Vec<FileKey> = (0..3)
            .map(|number| {
                let file = File::create(directory.path().join(format!("{number}"))).unwrap();
                let volume = DeviceNumber { major: 0, minor: 1 };
                let key = FileKey { volume, handle: FileHandle::of_file(&file).unwrap() };
                notice.add(&key, &file).unwrap();
                key
            })
            .collect();
        let mut told = Vec::new();
        notice.tell(vec![FileEvent::Overflow], &mut |signal| told.push((signal.file, signal.kind)));
        keys.sort_unstable();
        told.sort_unstable_by_key(|(key, _)| *key);
        let expected: Vec<_> = keys.into_iter().map(|key| (key, SignalKind::Closed)).collect();
        assert_eq!(told, expected);
        assert_eq!(notice.lost(), 1);
    }

    /// Looking whether the space of a file could be given back, in a hurry since the volume was near its floor, closed it,
    /// which was told, and so on: one core and a half for 200 files that another process had open.
    #[test]
    fn nobody_is_told_of_his_own_closes_unless_he_wants_that() {
        let file = tempfile::tempfile().unwrap();
        let key = FileKey { volume: DeviceNumber { major: 0, minor: 1 }, handle: FileHandle::of_file(&file).unwrap() };
        for own_writes in [false, true] {
            let notice = CloseNotice::new(Settings { own_writes, ..Settings::default() }).unwrap();
            notice.add(&key, &file).unwrap();
            let closed = |process| {
                let filesystem = file_system_id(&file).unwrap();
                FileEvent::File { filesystem, handle: key.handle, changed: false, closed: true, process }
            };
            let mut told = 0;
            notice.tell(vec![closed(std::process::id()), closed(1)], &mut |_| told += 1);
            assert_eq!(told, 1 + usize::from(own_writes));
        }
    }
}
