//! The recorder: BPF programs that note each read of the device for a volume, by file and offset.
//!
//! Owns the programs and the queue of their events. Notes what the device is read for, not what is opened: what is in memory already
//! needs no reading ahead. Direct reads of databases go past the page cache, and are not noted.

mod record;
mod skeleton;

pub use record::Uses;

use crate::model::{Part, Touch};
use libbpf_rs::{Btf, Link, MapCore as _, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use longrun_bpf::{explained, has_hook, quieten};
use longrun_sys::{DeviceNumber, page_size};
use std::sync::{Arc, Mutex, PoisonError};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reads.bpf.o"));
/// More reads than this are not noted: what comes first is what counts.
const MOST: usize = 500_000;
/// The programs by name and hook, and whether it works without.
const PROGRAMS: [(&str, &str, bool); 4] = [
    ("queued", "block_bio_queue", false),
    ("copied", "mm_filemap_get_pages", true),
    ("mapped", "mm_filemap_map_pages", true),
    ("faulted", "mm_filemap_fault", true),
];

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// Not root.
    #[error("recording needs root (CAP_BPF and CAP_PERFMON)")]
    NotPermitted,
    /// The kernel.
    #[error("the kernel does not take the BPF program that records reads: {detail}")]
    Kernel {
        /// What it says.
        detail: String,
    },
}

/// Records until it is dropped.
pub struct Recorder {
    // First: it reads what the object owns.
    ring: RingBuffer<'static>,
    _links: Vec<Link>,
    object: Object,
    touches: Arc<Mutex<Vec<Touch>>>,
    /// `None` where the kernel does not tell.
    uses: Option<Uses>,
}

impl Recorder {
    /// Starts to record the reads of a volume, and which of `ahead`, which is read ahead, are used.
    ///
    /// # Errors
    /// [`RecorderError`]. Nothing stays loaded in the kernel then.
    pub fn start(volume: DeviceNumber, ahead: &[Part]) -> Result<Self, RecorderError> {
        quieten();
        Self::try_start(volume, ahead).map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied if !longrun_sys::is_root() => RecorderError::NotPermitted,
            _ => RecorderError::Kernel { detail: explained(&error) },
        })
    }

    fn try_start(volume: DeviceNumber, ahead: &[Part]) -> libbpf_rs::Result<Self> {
        let kernel = Btf::from_vmlinux()?;
        let uses = Uses::of(ahead, page_size());
        // They cost on every read from memory: only where there is something to know.
        let tells = PROGRAMS.iter().all(|(_, hook, _)| has_hook(&kernel, hook));
        let wanted = |name: &str| {
            PROGRAMS.iter().any(|(program, _, optional)| *program == name && (!optional || (tells && uses.len() > 0)))
        };
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        longrun_bpf::set_constants(&mut open, |constants| record::set_constants(constants, volume, page_size()))?;
        for mut map in open.maps_mut().filter(|map| map.name() == "uses") {
            map.set_max_entries(u32::try_from(uses.len().max(1)).unwrap_or(u32::MAX))?;
        }
        for mut program in open.progs_mut() {
            let wanted = wanted(&program.name().to_string_lossy());
            program.set_autoload(wanted);
        }
        let object = open.load()?;
        for map in object.maps().filter(|map| map.name() == "uses") {
            for (key, value) in uses.entries(page_size()) {
                map.update(&key, &value, MapFlags::ANY)?;
            }
        }
        let touches = Arc::new(Mutex::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let events = object.maps().find(|map| map.name() == "events");
        let events = events.ok_or_else(|| std::io::Error::other("there is no map events"))?;
        let noted = Arc::clone(&touches);
        builder.add(&events, move |bytes| {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            if noted.len() < MOST {
                noted.extend(record::touch(bytes));
            }
            0
        })?;
        let ring = builder.build()?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| wanted(&program.name().to_string_lossy())) {
            links.push(program.attach()?);
        }
        Ok(Self { ring, _links: links, object, touches, uses: tells.then_some(uses) })
    }

    /// Takes what the kernel has noted. To be called now and then: the kernel keeps 1 MiB, which are 30 000 reads.
    ///
    /// # Errors
    /// [`RecorderError::Kernel`].
    pub fn collect(&self) -> Result<(), RecorderError> {
        self.ring.consume().map_err(|error| RecorderError::Kernel { detail: explained(&error) })
    }

    /// What was read so far, in the order of time.
    #[must_use]
    pub fn touches(&self) -> Vec<Touch> {
        self.touches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What of the files that are read ahead was used so far; `None` where the kernel does not tell (before Linux 6.11 or so).
    #[must_use]
    pub fn uses(&self) -> Option<Uses> {
        let mut uses = self.uses.clone()?;
        let table = self.object.maps().find(|map| map.name() == "uses")?;
        uses.update(|key| table.lookup(&key, MapFlags::ANY).ok().flatten());
        Some(uses)
    }

    /// Reads that the kernel had no room to note.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let table = self.object.maps().find(|map| map.name() == "lost");
        let value = table.and_then(|table| table.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        value.and_then(|value| longrun_bpf::u64_at(&value, 0)).unwrap_or(0)
    }
}
