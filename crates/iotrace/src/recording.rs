//! The recording of a trace: the type that is shown, stored and compared. Pure.
//!
//! Owns the names in the JSON, which are a contract (`docs/trace.md`), and their version.

use crate::histogram::{Histogram, Scale};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The version of the JSON. It increases when a field is renamed, removed, or changes its meaning.
pub const VERSION: u32 = 1;

/// What was traced, for how long, and the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`VERSION`].
    pub version: u32,
    /// The target as the user named it.
    pub target: String,
    /// The start.
    pub started: Timestamp,
    /// The duration.
    pub seconds: f64,
    /// The layers of the device, from the one that was named to the lowest that are known.
    pub stack: Vec<Layer>,
    /// The processes whose requests are counted as ours.
    pub own_processes: Vec<u32>,
    /// The devices that were traced: the lowest of the stack.
    pub devices: Vec<Device>,
    /// Requests of file systems.
    pub asked: Asked,
    /// The processes that made requests, those with the most bytes first.
    pub processes: Vec<Process>,
    /// Requests that could not be counted completely.
    pub missed: Missed,
    /// Processor time of the tracing; `None` unless the kernel records it (`kernel.bpf_stats_enabled`).
    pub cost: Option<Cost>,
}

/// The cost of the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The number of runs.
    pub runs: u64,
    /// The processor time of all runs.
    pub seconds: f64,
}

/// A device of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The kernel's name.
    pub name: String,
    /// `major:minor`.
    pub number: String,
    /// `disk`, `partition`, `mapped` (device-mapper), `joined` (RAID and the like), `loop`.
    pub kind: String,
    /// The file of a loop device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backing: Option<String>,
    /// The names of the devices below it.
    pub on: Vec<String>,
    /// Whether its requests were traced.
    pub traced: bool,
}

/// The requests to one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name.
    pub name: String,
    /// `major:minor`.
    pub number: String,
    /// Requests of all processes.
    pub all: Requests,
    /// Requests of our processes; `None` if none were given.
    pub ours: Option<Requests>,
    /// What happened to bios, of which requests are made.
    pub bios: Bios,
}

/// Requests by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Data from the device.
    pub reads: Class,
    /// Data to the device.
    pub writes: Class,
    /// Discards, secure erases, and zeroes that are not sent as data.
    pub discards: Class,
    /// Flushes of the device's write cache.
    pub flushes: Class,
    /// Anything else, such as commands of a driver.
    pub other: Class,
}

/// Requests of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Requests issued to the device.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that were completed; their latency is known.
    pub completed: u64,
    /// Completed with an error.
    pub errors: u64,
    /// Refused by the device and issued again; counted once.
    pub requeued: u64,
    /// Requests with a predecessor of the same class: those that can be sequential.
    pub distances: u64,
    /// Requests that began where the previous one of the same class ended.
    pub sequential: u64,
    /// Requests that began where the previous read or write ended.
    pub sequential_any: u64,
    /// Sum of the latencies of all completed requests.
    pub latency_seconds: f64,
    /// Sum of the times from creation to issue.
    pub wait_seconds: f64,
    /// Sizes of the requests.
    pub sizes: Histogram,
    /// Times from issue to completion, which the device takes.
    pub latency: Histogram,
    /// Times from creation to issue, which the I/O scheduler takes. Only of requests created during the trace.
    pub wait: Histogram,
    /// Distances from the previous request of the same class.
    pub seeks: Histogram,
    /// Distances from the previous read or write.
    pub seeks_any: Histogram,
    /// Requests in flight at the issue, including this one.
    pub depths: Histogram,
}

/// What happened to bios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bios {
    /// Queued at this device, before they are split or merged.
    pub queued: u64,
    /// Split because they were longer than the device's limit.
    pub splits: u64,
    /// Merged at the end of a request.
    pub back_merges: u64,
    /// Merged at the front of a request.
    pub front_merges: u64,
    /// Merges of two requests.
    pub request_merges: u64,
}

/// Requests of file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Reads of files.
    pub reads: AskedClass,
    /// Writes of files.
    pub writes: AskedClass,
}

/// Requests of file systems of one class. `docs/trace.md` defines the term "request of a file system".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedClass {
    /// Ranges of files that were requested at once; `None` if this kernel does not show where a request ends.
    pub requests: Option<u64>,
    /// Those of them that needed more than one range of the device; `None` as above.
    pub split: Option<u64>,
    /// Wasted seeks: the ranges of the device beyond one per request; `None` as above.
    pub wasted_seeks: Option<u64>,
    /// Places where the file continues but the device position does not, within requests and between them.
    pub breaks: u64,
    /// Bytes of files that these figures cover.
    pub file_bytes: u64,
    /// Those of them that bypass the page cache.
    pub direct_bytes: u64,
    /// All other bytes: metadata, swap, raw access to the device, and data that could not be assigned to a file.
    pub other_bytes: u64,
    /// All other bios.
    pub other_bios: u64,
}

/// A process that made requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub id: u32,
    /// Its name. It is untrusted: escape it before it is shown.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Read requests.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Other requests.
    pub others: u64,
}

/// Requests that could not be counted completely. All figures are 0 in a complete recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Requests without a known latency, because too many were in flight.
    pub untracked: u64,
    /// Requests of processes for which the table had no room.
    pub nameless: u64,
    /// Events that the kernel skipped because the same program was running on that processor.
    pub events: u64,
}

impl Class {
    /// All counts 0.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            completed: 0,
            errors: 0,
            requeued: 0,
            distances: 0,
            sequential: 0,
            sequential_any: 0,
            latency_seconds: 0.0,
            wait_seconds: 0.0,
            sizes: Histogram::new(Scale::Bytes),
            latency: Histogram::new(Scale::Microseconds),
            wait: Histogram::new(Scale::Microseconds),
            seeks: Histogram::new(Scale::Sectors),
            seeks_any: Histogram::new(Scale::Sectors),
            depths: Histogram::new(Scale::Requests),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            completed: self.completed + other.completed,
            errors: self.errors + other.errors,
            requeued: self.requeued + other.requeued,
            distances: self.distances + other.distances,
            sequential: self.sequential + other.sequential,
            sequential_any: self.sequential_any + other.sequential_any,
            latency_seconds: self.latency_seconds + other.latency_seconds,
            wait_seconds: self.wait_seconds + other.wait_seconds,
            sizes: &self.sizes + &other.sizes,
            latency: &self.latency + &other.latency,
            wait: &self.wait + &other.wait,
            seeks: &self.seeks + &other.seeks,
            seeks_any: &self.seeks_any + &other.seeks_any,
            depths: &self.depths + &other.depths,
        }
    }
}

/// The difference between an earlier and a later state of the same trace.
macro_rules! since {
    ($later:ident, $earlier:ident, { $($count:ident)* } { $($histogram:ident)* } { $($seconds:ident)* }) => {
        Self {
            $($count: $later.$count.saturating_sub($earlier.$count),)*
            $($histogram: &$later.$histogram - &$earlier.$histogram,)*
            $($seconds: ($later.$seconds - $earlier.$seconds).max(0.0),)*
        }
    };
}

impl Class {
    /// The difference since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        since!(self, earlier,
            { requests bytes completed errors requeued distances sequential sequential_any }
            { sizes latency wait seeks seeks_any depths }
            { latency_seconds wait_seconds })
    }
}

impl Default for Class {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

impl Requests {
    /// All counts 0.
    #[must_use]
    pub fn new() -> Self {
        let none = Class::new;
        Self { reads: none(), writes: none(), discards: none(), flushes: none(), other: none() }
    }

    /// The sum of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            reads: self.reads.and(&other.reads),
            writes: self.writes.and(&other.writes),
            discards: self.discards.and(&other.discards),
            flushes: self.flushes.and(&other.flushes),
            other: self.other.and(&other.other),
        }
    }

    /// The difference since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            discards: self.discards.since(&earlier.discards),
            flushes: self.flushes.since(&earlier.flushes),
            other: self.other.since(&earlier.other),
        }
    }

    /// Reads and writes together.
    #[must_use]
    pub fn transfers(&self) -> Class {
        self.reads.and(&self.writes)
    }
}

impl Recording {
    /// The requests to all traced devices.
    #[must_use]
    pub fn total(&self) -> Requests {
        self.devices.iter().fold(Requests::new(), |sum, device| sum.and(&device.all))
    }
}
