//! Detects the requests of other processes when they arrive, by a BPF program. The counters of a device show a request
//! only after it is complete.
//!
//! Owns the program and its map. I/O that kernel threads do for other processes is not visible here; the counters show
//! it.

mod skeleton;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use longrun_bpf::{KernelDevice, put, u64_at};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use skeleton::types;
use std::mem::offset_of;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/arrivals.bpf.o"));

/// The kernel refused the BPF program.
#[derive(Debug, thiserror::Error)]
#[error("the BPF program was refused: {0:#}")]
pub struct Refused(#[from] libbpf_rs::Error);

/// What other processes have requested from a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How often.
    pub requests: u64,
    /// For how much.
    pub bytes: Bytes,
}

/// The BPF program, attached until this value is dropped.
pub struct Arrivals {
    // Before the object: the link first goes down, then what it leads to.
    _link: Link,
    object: Object,
}

impl std::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrivals").finish_non_exhaustive()
    }
}

impl Arrivals {
    /// Counts what processes other than this one ask of `devices`, which are whole disks.
    ///
    /// # Errors
    /// When the kernel is too old, or does not let this process.
    pub fn watch(devices: &[DeviceNumber]) -> Result<Self, Refused> {
        longrun_bpf::quieten();
        let arrivals = Self::load()?;
        for device in devices {
            let none = [0; size_of::<types::arrivals>()];
            arrivals.table()?.update(&KernelDevice::of(*device).bytes(), &none, MapFlags::ANY)?;
        }
        Ok(arrivals)
    }

    fn load() -> Result<Self, Refused> {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with("rodata") {
                let mut constants = map.initial_value().unwrap_or_default().to_vec();
                put(&mut constants, offset_of!(types::rodata, own_process), &std::process::id().to_ne_bytes());
                map.set_initial_value(&constants)?;
            }
        }
        let object = open.load()?;
        let link = object.progs_mut().next().ok_or_else(missing)?.attach()?;
        Ok(Self { _link: link, object })
    }

    fn table(&self) -> Result<libbpf_rs::Map<'_>, Refused> {
        self.object.maps().find(|map| map.name() == "watched").ok_or_else(missing)
    }

    /// What others have asked of `device` since it is watched. None when it is not.
    #[must_use]
    pub fn asked(&self, device: DeviceNumber) -> Option<Asked> {
        let value = self.table().ok()?.lookup(&KernelDevice::of(device).bytes(), MapFlags::ANY).ok()??;
        let requests = u64_at(&value, offset_of!(types::arrivals, requests))?;
        Some(Asked { requests, bytes: Bytes(u64_at(&value, offset_of!(types::arrivals, bytes))?) })
    }
}

fn missing() -> Refused {
    Refused(libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound)))
}
