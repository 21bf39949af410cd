//! What a trace found: the form that is shown, stored and compared. Pure.
//!
//! Owns the names in the JSON, which are a contract (`docs/trace.md`), and their version.

use crate::histogram::{Histogram, Scale};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The version of the form. It grows when something is renamed, goes, or changes its meaning.
pub const VERSION: u32 = 1;

/// What was traced, for how long, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`VERSION`].
    pub version: u32,
    /// What the user named.
    pub target: String,
    /// When it began.
    pub started: Timestamp,
    /// How long it took.
    pub seconds: f64,
    /// What lies on what: from the device that was named to the lowest that are known.
    pub stack: Vec<Layer>,
    /// The processes whose requests are counted as ours.
    pub own_processes: Vec<u32>,
    /// The devices that were traced: the lowest of the stack.
    pub devices: Vec<Device>,
    /// What file systems asked for.
    pub asked: Asked,
    /// Who asked the devices, greatest first.
    pub processes: Vec<Process>,
    /// What could not be counted.
    pub missed: Missed,
    /// What the counting took of the processors; none unless the kernel keeps account (`kernel.bpf_stats_enabled`).
    pub cost: Option<Cost>,
}

/// What the programs in the kernel took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How often one ran.
    pub runs: u64,
    /// Processor time of all.
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
    /// The names of what it lies on.
    pub on: Vec<String>,
    /// Whether its requests were traced.
    pub traced: bool,
}

/// What one device was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name.
    pub name: String,
    /// `major:minor`.
    pub number: String,
    /// By everybody.
    pub all: Requests,
    /// By the processes that are ours; none when none were given.
    pub ours: Option<Requests>,
    /// What became of bios, the parts of which requests are made.
    pub bios: Bios,
}

/// Requests by what they are for.
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
    /// Not taken by the device at once, and issued again; counted once.
    pub requeued: u64,
    /// How many had one of their class before them: those that can be sequential.
    pub distances: u64,
    /// Began where the one before of the same class ended.
    pub sequential: u64,
    /// Began where the one before, read or write, ended.
    pub sequential_any: u64,
    /// The times of all that were completed, added up.
    pub latency_seconds: f64,
    /// The times from making to issue, added up.
    pub wait_seconds: f64,
    /// Their lengths.
    pub sizes: Histogram,
    /// From issue to completion: what the device took.
    pub latency: Histogram,
    /// From making to issue: what the I/O scheduler took. Of requests that were made while it was traced.
    pub wait: Histogram,
    /// To the one before of the same class.
    pub seeks: Histogram,
    /// To the one before, read or write.
    pub seeks_any: Histogram,
    /// How many were under way at the issue, itself among them.
    pub depths: Histogram,
}

/// What became of bios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bios {
    /// Queued at this device, before they are split or merged.
    pub queued: u64,
    /// Cut because they were longer than the device takes.
    pub splits: u64,
    /// Put behind another in a request.
    pub back_merges: u64,
    /// Put before another in a request.
    pub front_merges: u64,
    /// Requests that became one.
    pub request_merges: u64,
}

/// What file systems asked for, where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Reads of files.
    pub reads: AskedClass,
    /// Writes of files.
    pub writes: AskedClass,
}

/// Requests of file systems of one class. What "a request of a file system" is says `docs/trace.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedClass {
    /// Stretches of files that were asked for in one go; none where this kernel does not tell what one go is.
    pub requests: Option<u64>,
    /// Of these, those that needed more than one piece of the device; none as above.
    pub split: Option<u64>,
    /// Wasted seeks: pieces of the device beyond one for each request; none as above.
    pub wasted_seeks: Option<u64>,
    /// Steps on the device where the file goes on, within requests and between them.
    pub breaks: u64,
    /// Bytes of files that this is about.
    pub file_bytes: u64,
    /// Of these, past the page cache.
    pub direct_bytes: u64,
    /// Everything else: metadata, swap, raw access to the device, and what could not be assigned to a file.
    pub other_bytes: u64,
    /// Bios of everything else.
    pub other_bios: u64,
}

/// A process that asked for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// What it calls itself. Others have chosen it: escape it before it is shown.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Requests for data from devices.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests with data to devices.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Other requests.
    pub others: u64,
}

/// What could not be counted. All are 0 in a recording that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Requests without a known latency, because too many were under way.
    pub untracked: u64,
    /// Requests of processes beyond those that find room in the table.
    pub nameless: u64,
    /// Events during which the same program was at work already on that processor.
    pub events: u64,
}

impl Class {
    /// Nothing yet.
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

    /// Both together.
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

/// What came between an earlier state and a later one of the same trace.
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
    /// What came since `earlier`.
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
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let none = Class::new;
        Self { reads: none(), writes: none(), discards: none(), flushes: none(), other: none() }
    }

    /// Both together.
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

    /// What came since `earlier`.
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

    /// Reads and writes together: what moves data.
    #[must_use]
    pub fn transfers(&self) -> Class {
        self.reads.and(&self.writes)
    }
}

impl Recording {
    /// What all traced devices were asked for.
    #[must_use]
    pub fn total(&self) -> Requests {
        self.devices.iter().fold(Requests::new(), |sum, device| sum.and(&device.all))
    }
}
