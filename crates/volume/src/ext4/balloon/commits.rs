//! How many commits the journal of a volume has begun, and waiting for the next, or for large allocations.
//!
//! Owns the BPF programs that tell of them. Where the kernel does not take them, the journal's statistics are read instead,
//! which show a commit only to who looks, and after its end.

use super::skeleton::types;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use longrun_bpf::{KernelDevice, put, u64_at};
use longrun_layout::Blocks;
use longrun_sys::{DeviceNumber, wait_readable};
use std::fmt;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/commits.bpf.o"));

/// The source of what is known of commits.
#[derive(Debug)]
pub(in crate::ext4) enum Commits {
    /// The kernel tells at once.
    Told(Told),
    /// The figures in this file tell, when it is read.
    Counted(PathBuf),
    /// Nothing tells.
    Unknown,
}

impl Commits {
    /// Those of the volume on `device`, which the kernel calls `name`.
    pub(in crate::ext4) fn of(device: DeviceNumber, name: &Path) -> Self {
        // Without a journal there is nothing to be told of.
        let Some(statistics) = statistics_of(name) else { return Self::Unknown };
        Told::of(device).map_or(Self::Counted(statistics), Self::Told)
    }

    /// How many there have been, from any beginning. None where this is not known.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Told(told) => Some(told.count()),
            Self::Counted(statistics) => read(statistics),
            Self::Unknown => None,
        }
    }

    /// A waiting ends when a commit begins, and when others have allocated as much as is expected of them.
    pub(super) fn are_told(&self) -> bool {
        matches!(self, Self::Told(_))
    }

    /// From now on others are expected to allocate less than `most` before somebody looks; whether more would be told.
    pub(super) fn expect(&self, most: Blocks) -> bool {
        match self {
            Self::Told(told) => told.expect(most).is_ok(),
            Self::Counted(_) | Self::Unknown => false,
        }
    }

    /// Waits for `timeout`, until `wake` can be read, or until something is told.
    pub(super) fn wait(&self, wake: BorrowedFd<'_>, timeout: Duration) {
        let queue = match self {
            Self::Told(told) => told.queue(),
            Self::Counted(_) | Self::Unknown => None,
        };
        let waited = match &queue {
            Some(queue) => wait_readable(&[wake, queue.as_fd()], timeout),
            None => wait_readable(&[wake], timeout),
        };
        // What cannot be waited for must not become a loop without rest.
        if waited.is_err() {
            std::thread::sleep(timeout);
        }
    }
}

/// What the kernel's side sends for a commit.
const COMMIT: u64 = 1;

/// The BPF programs, attached until this is dropped.
pub(in crate::ext4) struct Told {
    // In this order: it reads what the object owns, and links go down before what they lead to.
    ring: RingBuffer<'static>,
    _links: Vec<Link>,
    object: Object,
    count: Arc<AtomicU64>,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Told {
    fn of(device: DeviceNumber) -> libbpf_rs::Result<Self> {
        longrun_bpf::quieten();
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        longrun_bpf::set_constants(&mut open, |constants| {
            put(constants, offset_of!(types::rodata, volume), &KernelDevice::of(device).bytes());
            put(constants, offset_of!(types::rodata, own_process), &std::process::id().to_ne_bytes());
        })?;
        let object = open.load()?;
        let count = Arc::new(AtomicU64::new(0));
        let ring = {
            let (queue, count) = (queue_of(&object).ok_or_else(missing)?, Arc::clone(&count));
            let mut builder = RingBufferBuilder::new();
            builder.add(&queue, move |event| {
                if u64_at(event, 0) == Some(COMMIT) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                0
            })?;
            builder.build()?
        };
        let links = object.progs_mut().map(|program| program.attach()).collect::<libbpf_rs::Result<_>>()?;
        Ok(Self { ring, _links: links, object, count })
    }

    fn expect(&self, most: Blocks) -> libbpf_rs::Result<()> {
        let mut value = [0; size_of::<types::leap>()];
        put(&mut value, offset_of!(types::leap, most), &most.0.to_ne_bytes());
        let leaps = self.object.maps().find(|map| map.name() == "leaps").ok_or_else(missing)?;
        leaps.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
    }

    fn queue(&self) -> Option<libbpf_rs::Map<'_>> {
        queue_of(&self.object)
    }

    fn count(&self) -> u64 {
        // What cannot be read now is read the next time.
        let _ = self.ring.consume();
        self.count.load(Ordering::Relaxed)
    }
}

fn queue_of(object: &Object) -> Option<libbpf_rs::Map<'_>> {
    object.maps().find(|map| map.name() == "events")
}

fn missing() -> libbpf_rs::Error {
    std::io::Error::from(std::io::ErrorKind::NotFound).into()
}

/// The journal's statistics lie in a directory named after the device and the journal's inode.
fn statistics_of(name: &Path) -> Option<PathBuf> {
    let prefix = format!("{}-", name.display());
    let mut journals = std::fs::read_dir("/proc/fs/jbd2").ok()?.flatten();
    let journal = journals.find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))?;
    Some(journal.path().join("info"))
}

/// The number of commits comes first. Opened again each time, because the kernel computes the figures when the file is
/// opened.
fn read(statistics: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(statistics).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use longrun_lab::{LoopVolume, VolumeSpec};
    use longrun_sys::Bell;
    use std::fs::{self, File};

    /// Also done on other kernels (`make test-kernels`).
    #[test]
    fn loop_commits_and_large_allocations_of_others_are_told_by_the_kernel() {
        let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
        let (mount, device) = (volume.mount_point(), volume.device());
        let number = longrun_sys::device_number_of_file(File::open(&mount).unwrap()).unwrap();
        let commits = Commits::of(number, Path::new(device.file_name().unwrap()));
        assert!(commits.are_told(), "{commits:?}");
        let (bell, before) = (Bell::new().unwrap(), commits.count().unwrap());
        fs::write(mount.join("small"), [1; 4096]).unwrap();
        longrun_sys::sync_volume(File::open(&mount).unwrap()).unwrap();
        assert!(commits.count().unwrap() > before);

        let Commits::Told(told) = &commits else { return };
        // An event without a new commit is that of the allocation. A commit may come at the same time: hence several tries.
        let told_of_allocation = (0..20).any(|number: u32| {
            let before = commits.count();
            assert!(commits.expect(Blocks(500)));
            // Not fallocate, which syncs the file.
            let file = mount.join(number.to_string());
            longrun_lab::tool::run("xfs_io", ["-f", "-c", "falloc 0 2m", file.to_str().unwrap()]).unwrap();
            let is_told = wait_readable(&[told.queue().unwrap().as_fd(), bell.as_fd()], Duration::ZERO).unwrap();
            is_told && commits.count() == before
        });
        assert!(told_of_allocation, "512 blocks, twenty times");
    }
}
