//! Observes the requests of other processes by BPF programs: when they arrive, and how long they take. The counters of a
//! device show a request only after it is complete.
//!
//! Owns the programs and their maps. Arrivals that kernel threads cause for other processes are not visible here; the
//! counters show them. Completed requests of all processes and kernel threads are counted, except those in the idle class,
//! where ours are.

mod skeleton;

use crate::account::{Bounds, Completed, KINDS, Times, Work};
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder};
use longrun_bpf::{KernelDevice, put, u64_at};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use skeleton::types;
use std::ffi::OsStr;
use std::mem::offset_of;
use std::time::Duration;

/// The first request after our work, whatever its state then.
const AFTER: usize = 3;
/// States of our work, and that.
const STATES: usize = 4;

/// The programs that time how long processes wait for durability.
const DURABILITY: [&str; 2] = ["sync_begins", "sync_ends"];

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/arrivals.bpf.o"));

/// The kernel refused the BPF programs.
#[derive(Debug, thiserror::Error)]
#[error("the BPF programs were refused: {0:#}")]
pub struct Refused(#[from] libbpf_rs::Error);

/// What other processes have requested from a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// How often.
    pub requests: u64,
    /// For how much.
    pub bytes: Bytes,
    /// When the last time was, on the monotonic clock.
    pub last: Duration,
    /// The name of the process that asked last, up to the first zero; it can be anything.
    pub program: [u8; 16],
    /// Our own completed requests.
    pub own: u64,
    /// The squares of how long each of ours took, added up, in square microseconds.
    pub own_squares: u64,
    /// Their completed requests.
    pub completed: [Completed; KINDS],
}

impl Asked {
    /// The name of the process that asked last.
    #[must_use]
    pub fn program(&self) -> String {
        let name: Vec<u8> = self.program.iter().copied().take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&name).into_owned()
    }
}

/// The BPF programs, attached until this value is dropped.
pub struct Arrivals {
    // Before the object: the links first go down, then what they lead to.
    _links: Vec<Link>,
    object: Object,
    /// What the programs were told of our work.
    told: Work,
    /// When what was begun before is done, on the monotonic clock, and how often it has stopped.
    done: Duration,
    stops: u64,
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
        // Without ext4 in the kernel its part cannot be loaded.
        let arrivals = Self::load(|_| true).or_else(|_| Self::load(|program| !DURABILITY.contains(&program)))?;
        for device in devices {
            let key = KernelDevice::of(*device).bytes();
            // Before what is counted: a request is compared with its bounds.
            arrivals.map("bounds")?.update(&key, &[0; size_of::<types::bounds>()], MapFlags::ANY)?;
            arrivals.map("watched")?.update(&key, &[0; size_of::<types::arrivals>()], MapFlags::ANY)?;
        }
        Ok(arrivals)
    }

    fn load(wanted: impl Fn(&str) -> bool) -> Result<Self, Refused> {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        longrun_bpf::set_constants(&mut open, |constants| {
            put(constants, offset_of!(types::rodata, own_process), &std::process::id().to_ne_bytes());
        })?;
        let is_wanted = |name: &OsStr| name.to_str().is_some_and(&wanted);
        for mut program in open.progs_mut() {
            let load = is_wanted(program.name());
            program.set_autoload(load);
        }
        let object = open.load()?;
        let programs = object.progs_mut().filter(|program| is_wanted(program.name()));
        let links = programs.map(|program| program.attach()).collect::<Result<_, _>>()?;
        Ok(Self { _links: links, object, told: Work::Rests, done: Duration::ZERO, stops: 0 })
    }

    fn map(&self, name: &str) -> Result<Map<'_>, Refused> {
        self.object.maps().find(|map| map.name() == name).ok_or_else(missing)
    }

    /// What others have asked of `device` since it is watched. None when it is not.
    #[must_use]
    pub fn asked(&self, device: DeviceNumber) -> Option<Asked> {
        let value = self.map("watched").ok()?.lookup(&KernelDevice::of(device).bytes(), MapFlags::ANY).ok()??;
        let times = |number: usize| {
            let at = offset_of!(types::arrivals, times) + number * size_of::<types::times>();
            Some(Times {
                requests: u64_at(&value, at + offset_of!(types::times, requests))?,
                total: u64_at(&value, at + offset_of!(types::times, total))?,
                slow: u64_at(&value, at + offset_of!(types::times, slow))?,
                late: u64_at(&value, at + offset_of!(types::times, late))?,
            })
        };
        let mut completed = [Completed::default(); KINDS];
        for (kind, completed) in completed.iter_mut().enumerate() {
            let of = |state| times(kind * STATES + state);
            *completed = Completed {
                alone: of(Work::Rests as usize)?,
                met: of(Work::UnderWay as usize)?,
                between: of(Work::GivesWay as usize)?,
                after: of(AFTER)?,
            };
        }
        Some(Asked {
            requests: u64_at(&value, offset_of!(types::arrivals, requests))?,
            bytes: Bytes(u64_at(&value, offset_of!(types::arrivals, bytes))?),
            last: Duration::from_nanos(u64_at(&value, offset_of!(types::arrivals, last))?),
            program: *value.get(offset_of!(types::arrivals, program)..)?.first_chunk()?,
            own: u64_at(&value, offset_of!(types::arrivals, own))?,
            own_squares: u64_at(&value, offset_of!(types::arrivals, own_squares))?,
            completed,
        })
    }

    /// Which requests to `device` count as slow and as late from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_bounds(&self, device: DeviceNumber, bounds: &[Bounds; KINDS]) -> Result<(), Refused> {
        let mut value = [0; size_of::<types::bounds>()];
        for (kind, bounds) in bounds.iter().enumerate() {
            put(&mut value, offset_of!(types::bounds, slow) + kind * 8, &bounds.slow.to_ne_bytes());
            put(&mut value, offset_of!(types::bounds, late) + kind * 8, &bounds.late.to_ne_bytes());
        }
        self.map("bounds")?.update(&KernelDevice::of(device).bytes(), &value, MapFlags::ANY)?;
        Ok(())
    }

    /// Tells the state of our work, if it is another than before. What was begun is done after at most `rest`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tell(&mut self, state: Work, rest: Duration) -> Result<(), Refused> {
        if state == self.told {
            return Ok(());
        }
        if self.told == Work::UnderWay {
            self.done = Duration::from_nanos(longrun_sys::monotonic_nanoseconds()) + rest;
            self.stops += 1;
        }
        let mut value = [0; size_of::<types::work>()];
        put(&mut value, offset_of!(types::work, state), &(state as u64).to_ne_bytes());
        put(&mut value, offset_of!(types::work, done), &(self.done.as_nanos() as u64).to_ne_bytes());
        put(&mut value, offset_of!(types::work, stops), &self.stops.to_ne_bytes());
        self.map("work")?.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)?;
        self.told = state;
        Ok(())
    }
}

fn missing() -> Refused {
    Refused(libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound)))
}
