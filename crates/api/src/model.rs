//! The types of the service's API, which `status`, `top` and other clients read.
//!
//! Owns the names and types of the fields. They are a contract: fields are added, never renamed or removed. No I/O.

use crate::jobs::Job;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The state of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the service.
    pub version: String,
    /// Whether everything works.
    pub healthy: bool,
    /// The problems, each with what to do about it.
    pub troubles: Vec<String>,
    /// Seconds since the service started.
    pub uptime_seconds: u64,
    /// The sensor that notices growing files; absent if prevention does not run.
    pub sensor: Option<Sensor>,
    /// Time from the signal to the runway.
    pub reaction: Reaction,
    /// Files that wait for a worker.
    pub queue: u64,
    /// Files whose runways are listed in the journal.
    pub journal_files: u64,
    /// The state of mending.
    pub mending: Mending,
    /// The state of the history.
    pub history: History,
    /// Resources that the service uses.
    pub own: OwnUse,
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// The jobs that have not ended.
    #[serde(default)]
    pub jobs: Vec<Job>,
}

/// The sensor that notices growing files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sensor {
    /// `bpf` or `fanotify`.
    pub kind: String,
    /// Why this sensor is used, if another one was tried first.
    pub reason: Option<String>,
    /// Signals received.
    pub signals: u64,
    /// Events that the kernel could not deliver, and signals that were dropped because too many files waited.
    pub lost: u64,
    /// The error that ended the sensor, if it has failed.
    pub broken: Option<String>,
}

/// Time from the signal to the runway, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reaction {
    /// Number of measurements.
    pub count: u64,
    /// Sum of all measurements.
    #[serde(default)]
    pub total_us: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Maximum.
    pub max_us: u64,
}

/// The state of mending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mending {
    /// Files that wait to be mended.
    pub queued: u64,
    /// Excess fragments of these files.
    pub queued_excess: u64,
    /// What these files wait for.
    #[serde(default)]
    pub waiting: Waiting,
    /// Whether a file is being mended now.
    pub at_work: bool,
    /// Whether mending is paused on any volume: on request, in a configured time without mending, or by a used-up daily budget.
    pub rests: bool,
    /// Whether mending and scheduled scans were paused on request.
    #[serde(default)]
    pub paused: bool,
    /// When that pause ends by itself (RFC 3339); null if it lasts until it is ended.
    #[serde(default)]
    pub paused_until: Option<String>,
}

/// How many files wait for what before they are mended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// For their turn: they could be mended now.
    pub turn: u64,
    /// To be quiet.
    pub quiet: u64,
    /// For the next attempt, because the last one came to nothing.
    pub tried: u64,
    /// For files that cost less to mend.
    pub dear: u64,
    /// Because most files of their kind are soon deleted or written again.
    pub short_lived: u64,
    /// Because they fragmented again soon after they were mended.
    pub again: u64,
}

/// The state of the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Whether it is being written.
    pub recording: bool,
    /// Why it is not being written, or what happened at the start.
    pub note: Option<String>,
    /// Rows that were dropped because they could not be written in time.
    pub dropped: u64,
    /// Size of the database.
    pub bytes: u64,
}

/// Resources that the service uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OwnUse {
    /// Processor time since the start.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Bytes read from and written to devices.
    pub io_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files.
    pub open_files: u64,
}

/// A volume that the service watches, or could watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// The permanent identifier in this API: the UUID, for a clone beside its origin with a number behind it, or the device number of a volume without UUID.
    pub id: String,
    /// The mount point that the service uses.
    pub mount: String,
    /// All mount points.
    pub mounts: Vec<String>,
    /// Its device.
    pub device: String,
    /// Type of the file system.
    pub filesystem: String,
    /// Label.
    pub label: Option<String>,
    /// Whether the configuration enables the volume. If not, the fields below are not set.
    pub enabled: bool,
    /// Whether growing files get runways.
    pub prevention: bool,
    /// Whether files are mended.
    pub mending: bool,
    /// Why mending is paused now, if it is.
    pub mending_rests: Option<String>,
    /// Why something that is configured does not work.
    pub trouble: Option<String>,
    /// What prevention did since the volume appeared.
    pub prevented: Prevented,
    /// What mending did since the service started.
    pub mended: Mended,
    /// How mending gives way to other I/O.
    pub governor: Governor,
    /// Used and free space.
    pub space: Space,
    /// Figures of the last scan of the whole volume.
    pub scan: Option<Scan>,
    /// Why the last scan of the whole volume did not come to its end, and what to do about it.
    #[serde(default)]
    pub scan_trouble: Option<String>,
    /// Whether writing may fail although there is free space.
    pub health: Health,
    /// Scheduled passes.
    #[serde(default)]
    pub pass: Pass,
    /// What jobs that change the volume did since the service started.
    #[serde(default)]
    pub optimized: Optimized,
    /// What was saved since the service started.
    #[serde(default)]
    pub saved: Saved,
}

/// What is saved whenever the files are read once that were kept from fragmenting, mended, or made whole by jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Saved {
    /// Requests of the device, at most.
    pub requests: u64,
    /// The time that the device needs for these, as far as its speed was known.
    pub seconds: f64,
}

/// What jobs that change a volume did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Optimized {
    /// Jobs that finished.
    pub finished: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Excess fragments removed.
    pub fragments: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
}

/// The scheduled passes of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pass {
    /// `off`, `efficient` or `full`.
    pub mode: String,
    /// The windows in which passes work.
    pub windows: Vec<String>,
    /// When the next window begins (RFC 3339), now if one is in effect; null without passes.
    pub next_window: Option<String>,
    /// Whether a window is in effect.
    pub window_open: bool,
    /// Why no pass works now.
    pub waits: Option<String>,
    /// The number of the pass that has begun and not ended.
    pub job: Option<u64>,
    /// When the last pass ended (RFC 3339).
    pub last_ended: Option<String>,
    /// What passes moved today (UTC).
    pub moved_today_bytes: u64,
}

/// What prevention did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Prevented {
    /// Excess fragments that were prevented.
    pub fragments: u64,
    /// Excess fragments that were not prevented.
    pub slipped: u64,
    /// Files that have a runway now.
    pub runways: u64,
    /// Bytes of these runways beyond the written data.
    pub held_bytes: u64,
    /// Files without a runway that may be fragmented; they are examined when they are quiet.
    pub to_look_at: u64,
    /// Runways granted.
    pub grants: u64,
    /// Bytes of the granted runways.
    pub granted_bytes: u64,
    /// Bytes given back after a file was closed.
    pub given_back_bytes: u64,
    /// Bytes given back early, because space was needed.
    pub yielded_bytes: u64,
    /// Files whose runways were settled after they were closed.
    pub settled: u64,
    /// Files left alone, by reason.
    pub left: BTreeMap<String, u64>,
    /// Whether no runway is granted because too little space is free.
    pub short_of_space: bool,
}

/// What mending did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mended {
    /// Files mended.
    pub files: u64,
    /// Excess fragments removed.
    pub fragments: u64,
    /// Bytes written for this.
    pub moved_bytes: u64,
    /// Failed attempts; they are repeated.
    #[serde(default)]
    pub failed: u64,
}

/// How mending gives way to other I/O on the devices of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Governor {
    /// `invisible`, `balanced` or `fast`.
    pub pace: String,
    /// The devices on which other I/O is observed; empty before there was work.
    pub devices: Vec<String>,
    /// The disk type of the volume, updated every minute; null if it is not known.
    pub disk: Option<String>,
    /// Bytes of the service's I/O on these devices while there was work.
    pub own_bytes: u64,
    /// Bytes of other processes on this machine in the same time.
    pub foreign_bytes: u64,
    /// Number of pauses.
    pub pauses: u64,
    /// Total duration of the pauses.
    pub paused_seconds: f64,
    /// Why work is paused now, if it is.
    pub pausing: Option<String>,
    /// The reason in one word: `foreign`, `external`, `memory` or `battery`; `request`, `window`, `budget`, `pass` or `fleet` if mending is paused.
    pub waits_for: Option<String>,
    /// What the requests of other processes waited for this work; null where the kernel does not tell.
    #[serde(default)]
    pub account: Option<Account>,
    /// The program that made such a request last.
    #[serde(default)]
    pub other_program: Option<String>,
    /// Duration of the small reads that detect users outside this machine; null if no such reads are made, or too few so
    /// far.
    pub probes: Option<Probes>,
}

/// How the requests of other processes fared while there was work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// Their completed requests.
    pub requests: u64,
    /// Those of them that met the work.
    pub met: u64,
    /// Their usual time in all.
    pub usual_seconds: f64,
    /// How much longer than usual those that met the work took.
    pub charged_seconds: f64,
    /// How long others may still wait at present; negative when they have waited too long.
    pub credit_seconds: f64,
}

/// Duration of small reads while no process on this machine uses the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Probes {
    /// The usual duration.
    pub usual_us: u64,
    /// The recent duration.
    pub recent_us: u64,
}

/// The load of a volume's device over the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadSeries {
    /// The usual time between two points.
    pub interval_seconds: u64,
    /// The points, oldest first.
    pub points: Vec<LoadPoint>,
}

/// The load of a volume's device in the seconds before a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadPoint {
    /// The end of these seconds (RFC 3339).
    pub at: String,
    /// How many seconds they are.
    pub seconds: f64,
    /// The part of the time in which at least one request was under way, from 0 to 1.
    pub busy_share: f64,
    /// Bytes read from the device by all processes of this machine, the service included.
    pub read_bytes: u64,
    /// Bytes written to it by all processes.
    pub written_bytes: u64,
    /// The part of these bytes that the service read and wrote to mend or scan. Not counted at the pace `fast`, nor of scans where
    /// mending is switched off.
    pub own_bytes: u64,
    /// The usual time of the requests of others that were completed while the service had work.
    pub usual_seconds: f64,
    /// How much longer than usual those requests took that met its work.
    pub charged_seconds: f64,
    /// Duration of the last small reads that detect users outside this machine; null if no such reads were made.
    pub probes: Option<Probes>,
}

/// Used and free space of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    /// Size of the volume.
    pub total_bytes: u64,
    /// Free space.
    pub free_bytes: u64,
    /// Free space that unprivileged users can use.
    pub available_bytes: u64,
    /// Number of pieces of free space, if known.
    pub free_pieces: Option<u64>,
    /// Size of the largest piece, if known.
    pub largest_free_bytes: Option<u64>,
}

/// Figures of a scan of the whole volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scan {
    /// Time of the scan (RFC 3339).
    pub at: String,
    /// Number of files.
    pub files: u64,
    /// Files with more than one fragment.
    pub fragmented_files: u64,
    /// Sum over files of (fragments − 1).
    pub excess_fragments: u64,
}

/// Whether writing may fail although there is free space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The severity.
    pub level: HealthLevel,
    /// One sentence: what is wrong, and what to do.
    pub sentence: String,
}

/// The severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    /// Not examined yet, or not known for this file system.
    #[default]
    Unknown,
    /// All free space can be used.
    Good,
    /// Writing may fail, or fails already, with "no space left" although there is free space.
    Alert,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Sequence number, from 1 at the start of the service.
    pub number: u64,
    /// Time of the event (RFC 3339).
    pub at: String,
    /// The id of the volume; empty if the event concerns no volume.
    pub volume: String,
    /// `info`, `warning` or `alert`.
    pub severity: String,
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The file, if the event concerns one.
    pub path: Option<String>,
}

/// Events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// Use this value for `since` to get the events after these.
    pub last: u64,
}

/// An error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What failed, and why.
    pub error: String,
    /// What to do.
    pub hint: String,
}

/// What the sender of a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Nothing.
    Stranger,
    /// Read status and metrics, without names of files (`readable_by_all`).
    Guest,
    /// Read everything.
    Viewer,
    /// Read and change everything.
    Operator,
}

/// The sender of a request, as the service sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// What the sender may do.
    pub role: Role,
}

/// A pause of mending and of scheduled scans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// How long it lasts, at most 10080 (a week); until `/v1/resume` or the end of the service if it is absent.
    #[serde(default)]
    pub minutes: Option<u32>,
}

/// The answer to a request that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// What the service does now.
    pub accepted: String,
}
