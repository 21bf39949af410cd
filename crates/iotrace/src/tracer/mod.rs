//! The tracer: loads the BPF programs that count, and reads their counters.
//!
//! Owns which devices are traced. Never sees single requests, only counters.

mod programs;
mod record;
mod skeleton;

use crate::recording::{Asked, Device, Layer, Missed, Process, Recording, Requests, VERSION};
use jiff::Timestamp;
use libbpf_rs::{MapCore as _, MapFlags};
use longrun_sys::{BlockDevice, BlockDeviceKind, page_size};
use programs::Programs;
use record::{MOST_DEVICES, MOST_OWN, Settings, Sums};
use std::time::Instant;

/// The options of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Processes whose requests are counted separately, as ours.
    pub own: Vec<u32>,
    /// Trace the device below the backing file of a loop device instead of the loop device.
    pub below_files: bool,
}

/// Why the trace failed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Loading BPF programs needs privilege.
    #[error("tracing a device needs root; run it with sudo")]
    NotPermitted,
    /// The kernel lacks a feature.
    #[error(
        "this kernel cannot trace block devices: {detail}; tracing needs Linux 5.15 or later with BPF and its type information (BTF)"
    )]
    Unsupported {
        /// The error of libbpf.
        detail: String,
    },
    /// More devices than the table has room for.
    #[error("the volume is on {devices} devices; at most {MOST_DEVICES} can be traced at once: name one of them")]
    TooManyDevices {
        /// The number of devices.
        devices: usize,
    },
    /// More processes than the table has room for.
    #[error("--pid was given for {processes} processes; at most {MOST_OWN} can be counted separately")]
    TooManyProcesses {
        /// The number of processes.
        processes: usize,
    },
    /// Reading the counters failed.
    #[error("reading the counters of the trace failed: {detail}; start the trace again")]
    Broken {
        /// The error of libbpf.
        detail: String,
    },
}

/// A trace that runs until it is dropped.
pub struct Tracer {
    programs: Programs,
    target: String,
    options: Options,
    stack: Vec<Layer>,
    devices: Vec<(String, String)>,
    started: Timestamp,
    clock: Instant,
}

impl Tracer {
    /// Starts to count the requests to the lowest devices of `tops`, which are the devices of a volume, usually one.
    /// `target` is its name as given by the user.
    ///
    /// # Errors
    /// [`TraceError`]. Nothing stays loaded in the kernel then.
    pub fn start(target: &str, tops: &[BlockDevice], options: Options) -> Result<Self, TraceError> {
        let mut lowest: Vec<&BlockDevice> = tops
            .iter()
            .flat_map(|top| if options.below_files { top.lowest_below_files() } else { top.lowest() })
            .collect();
        lowest.sort_by_key(|device| device.number);
        lowest.dedup_by_key(|device| device.number);
        if lowest.len() > MOST_DEVICES || tops.len() > MOST_DEVICES {
            return Err(TraceError::TooManyDevices { devices: lowest.len().max(tops.len()) });
        }
        if options.own.len() > MOST_OWN {
            return Err(TraceError::TooManyProcesses { processes: options.own.len() });
        }
        let settings = Settings {
            devices: lowest.iter().map(|device| device.number).collect(),
            tops: tops.iter().map(|top| whole(top).number).collect(),
            own: options.own.clone(),
            page_size: page_size(),
        };
        let programs = Programs::load(&settings)?;
        Ok(Self {
            programs,
            target: target.to_owned(),
            stack: stack(tops, &settings),
            devices: lowest.iter().map(|device| (device.name.clone(), device.number.to_string())).collect(),
            options,
            started: Timestamp::now(),
            clock: Instant::now(),
        })
    }

    /// The layers of devices, and which are traced.
    #[must_use]
    pub fn stack(&self) -> &[Layer] {
        &self.stack
    }

    /// The recording since the start.
    ///
    /// # Errors
    /// [`TraceError::Broken`].
    pub fn recording(&self) -> Result<Recording, TraceError> {
        let seconds = self.clock.elapsed().as_secs_f64();
        let mut missed = Missed { events: self.programs.misses(), ..Missed::default() };
        let mut devices = Vec::new();
        for (nth, (name, number)) in self.devices.iter().enumerate() {
            let ours = self.requests(nth, true)?;
            let foreign = self.requests(nth, false)?;
            let (bios, untracked, nameless) = record::bios(&self.sums("devices", u32::try_from(nth).unwrap_or(0))?);
            missed.untracked += untracked;
            missed.nameless += nameless;
            devices.push(Device {
                name: name.clone(),
                number: number.clone(),
                all: ours.and(&foreign),
                ours: (!self.options.own.is_empty()).then_some(ours),
                bios,
            });
        }
        // Without these hooks it is not known where one read-ahead ends and the next begins.
        let told = ["page_cache_ra_unbounded", "page_cache_ra_order", "iomap_dio_rw_begin"];
        let reads_told = told.iter().all(|hook| self.programs.has(hook));
        let writes_told =
            ["writeback_single_inode_start", "iomap_dio_rw_begin"].iter().all(|hook| self.programs.has(hook));
        let asked = Asked {
            reads: record::asked(&self.sums("asked", 0)?, reads_told),
            writes: record::asked(&self.sums("asked", 1)?, writes_told),
        };
        Ok(Recording {
            version: VERSION,
            target: self.target.clone(),
            started: self.started,
            seconds,
            stack: self.stack.clone(),
            own_processes: self.options.own.clone(),
            devices,
            asked,
            processes: self.processes()?,
            missed,
            cost: self.programs.cost(),
        })
    }

    fn requests(&self, device: usize, own: bool) -> Result<Requests, TraceError> {
        let class = |class| Ok(record::class(&self.sums("counts", record::place(device, class, own))?));
        Ok(Requests { reads: class(0)?, writes: class(1)?, discards: class(2)?, flushes: class(3)?, other: class(4)? })
    }

    fn sums(&self, table: &str, place: u32) -> Result<Sums, TraceError> {
        let found = self.programs.table(table)?.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY).map_err(broken)?;
        Ok(Sums::of(&found.unwrap_or_default()))
    }

    fn processes(&self) -> Result<Vec<Process>, TraceError> {
        let table = self.programs.table("processes")?;
        let mut processes = Vec::new();
        for key in table.keys() {
            let found = table.lookup(&key, MapFlags::ANY).map_err(broken)?;
            let id = key.as_slice().try_into().ok().map(u32::from_ne_bytes);
            let read = id.zip(found).and_then(|(id, bytes)| record::process(id, &bytes, &self.options.own));
            processes.extend(read.filter(|process| process.reads + process.writes + process.others > 0));
        }
        processes.sort_by_key(|process| {
            let bytes = process.read_bytes + process.written_bytes;
            (std::cmp::Reverse(bytes), std::cmp::Reverse(process.reads + process.writes), process.id)
        });
        Ok(processes)
    }
}

/// The disk of a partition. Requests are counted for the disk.
fn whole(device: &BlockDevice) -> &BlockDevice {
    match (&device.kind, device.below.first()) {
        (BlockDeviceKind::Partition, Some(disk)) => disk,
        _ => device,
    }
}

fn stack(tops: &[BlockDevice], settings: &Settings) -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    for layer in tops.iter().flat_map(BlockDevice::layers) {
        if layers.iter().any(|known| known.number == layer.number.to_string()) {
            continue;
        }
        let (kind, backing) = match &layer.kind {
            BlockDeviceKind::Disk => ("disk", None),
            BlockDeviceKind::Partition => ("partition", None),
            BlockDeviceKind::Mapped | BlockDeviceKind::Paths => ("mapped", None),
            BlockDeviceKind::Joined => ("joined", None),
            BlockDeviceKind::Loop { backing } => ("loop", Some(backing.to_string_lossy().into_owned())),
        };
        layers.push(Layer {
            name: layer.name.clone(),
            number: layer.number.to_string(),
            kind: kind.to_owned(),
            backing,
            on: layer.below.iter().map(|below| below.name.clone()).collect(),
            traced: settings.devices.contains(&layer.number),
        });
    }
    layers
}

fn broken(error: libbpf_rs::Error) -> TraceError {
    TraceError::Broken { detail: format!("{error:#}") }
}
