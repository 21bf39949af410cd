//! What the service tells about itself: the forms of its API, which `status`, `top` and everybody else read.
//!
//! Owns names and shapes, a contract: fields are added, never renamed or dropped. No I/O.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How the service stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the service.
    pub version: String,
    /// Whether everything works.
    pub healthy: bool,
    /// What does not, each with what to do about it.
    pub troubles: Vec<String>,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Who notices growth; absent when prevention does not run.
    pub sensor: Option<Sensor>,
    /// From the signal to the runway.
    pub reaction: Reaction,
    /// Files that wait for a worker.
    pub queue: u64,
    /// Files whose runways are in the journal.
    pub journal_files: u64,
    /// What mending does.
    pub mending: Mending,
    /// How the history stands.
    pub history: History,
    /// What the service uses itself.
    pub own: OwnUse,
    /// The volumes.
    pub volumes: Vec<Volume>,
}

/// Who notices growth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sensor {
    /// `bpf` or `fanotify`.
    pub kind: String,
    /// Why this one, when another was tried first.
    pub reason: Option<String>,
    /// Signals that came.
    pub signals: u64,
    /// Events that the kernel could not deliver.
    pub lost: u64,
    /// What ended it, when it is broken.
    pub broken: Option<String>,
}

/// From the signal to the runway, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reaction {
    /// How many were measured.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// 99 % took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// What mending does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mending {
    /// Files that wait.
    pub queued: u64,
    /// Their excess fragments.
    pub queued_excess: u64,
    /// Whether a file is being mended now.
    pub at_work: bool,
    /// Whether it rests on some volume: in a window of the configuration, or because the day's budget is spent.
    pub rests: bool,
}

/// How the history stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Whether it is being written.
    pub recording: bool,
    /// Why not, or what happened at the start.
    pub note: Option<String>,
    /// Rows that were dropped because they could not be written for too long.
    pub dropped: u64,
    /// Size of the database.
    pub bytes: u64,
}

/// What the service uses itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OwnUse {
    /// Processor time since the start.
    pub cpu_seconds: f64,
    /// Memory.
    pub resident_bytes: u64,
    /// Read from and written to devices.
    pub io_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files.
    pub open_files: u64,
}

/// A volume that is looked after, or could be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Names it for good in this API: its UUID, or the number of its device where it has none.
    pub id: String,
    /// Where it is mounted; the place that the service works through.
    pub mount: String,
    /// Everywhere that it is mounted.
    pub mounts: Vec<String>,
    /// Its device.
    pub device: String,
    /// Type of the file system.
    pub filesystem: String,
    /// Label.
    pub label: Option<String>,
    /// Whether the configuration lets the service look after it; if not, nothing else is known of it.
    pub enabled: bool,
    /// Whether growing files get runways.
    pub prevention: bool,
    /// Whether files are mended.
    pub mending: bool,
    /// Why none are for the time being, if it is so.
    pub mending_rests: Option<String>,
    /// Why something that is configured is not done.
    pub trouble: Option<String>,
    /// What prevention did since the volume came.
    pub prevented: Prevented,
    /// What mending did since the service started.
    pub mended: Mended,
    /// How mending gives way to others.
    pub governor: Governor,
    /// How full it is.
    pub space: Space,
    /// Figures of the last scan of the whole volume.
    pub scan: Option<Scan>,
    /// Whether writing may fail although there is free space.
    pub health: Health,
}

/// What prevention did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Prevented {
    /// Excess fragments that did not come to be.
    pub fragments: u64,
    /// Excess fragments that did all the same.
    pub slipped: u64,
    /// Files that have a runway now.
    pub runways: u64,
    /// Bytes that these hold beyond what is written.
    pub held_bytes: u64,
    /// Files without one that are or may be in pieces, to be looked at once they are quiet.
    pub to_look_at: u64,
    /// Runways granted.
    pub grants: u64,
    /// Their bytes.
    pub granted_bytes: u64,
    /// What was given back of them.
    pub given_back_bytes: u64,
    /// What was given back early, because space was needed.
    pub yielded_bytes: u64,
    /// Files settled.
    pub settled: u64,
    /// Files left alone, by reason.
    pub left: BTreeMap<String, u64>,
    /// Too little free space: nothing is granted.
    pub short_of_space: bool,
}

/// What mending did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mended {
    /// Files mended.
    pub files: u64,
    /// Excess fragments that they have no more.
    pub fragments: u64,
    /// Bytes written for that.
    pub moved_bytes: u64,
}

/// How mending gives way to others who use the devices of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Governor {
    /// `invisible`, `balanced` or `fast`.
    pub pace: String,
    /// The devices where others are looked for; none before there was work.
    pub devices: Vec<String>,
    /// What kind of disk the volume lies on: looked at each minute; none where that is not known.
    pub disk: Option<String>,
    /// What these devices did for the service while there was work.
    pub own_bytes: u64,
    /// And what they did for others on this machine meanwhile.
    pub foreign_bytes: u64,
    /// How often work was paused.
    pub pauses: u64,
    /// And for how long in all.
    pub paused_seconds: f64,
    /// Why it is paused now, if it is.
    pub pausing: Option<String>,
    /// The same in one word: `foreign`, `external`, `memory`, `steal` or `battery`; `window` or `budget` where mending rests.
    pub waits_for: Option<String>,
    /// How long small reads take that look for users outside this machine; none where that is not done, and before it is
    /// known.
    pub probes: Option<Probes>,
}

/// How long small reads take while nobody on this machine uses the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Probes {
    /// As a rule.
    pub usual_us: u64,
    /// Of late.
    pub recent_us: u64,
}

/// How full a volume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// Not used.
    pub free_bytes: u64,
    /// Not used, and open to everybody.
    pub available_bytes: u64,
    /// In how many pieces the free space lies, where that is known.
    pub free_pieces: Option<u64>,
    /// The largest of them, where that is known.
    pub largest_free_bytes: Option<u64>,
}

/// Figures of a scan of the whole volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scan {
    /// When, as RFC 3339.
    pub at: String,
    /// Files.
    pub files: u64,
    /// Files with more than one fragment.
    pub fragmented_files: u64,
    /// Sum over files of (fragments − 1).
    pub excess_fragments: u64,
}

/// Whether writing may fail although there is free space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// How bad it is.
    pub level: HealthLevel,
    /// One sentence: what, and what to do.
    pub sentence: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    /// Not looked at, or cannot be found out.
    #[default]
    Unknown,
    /// All free space can be used.
    Good,
    /// Writing may fail with "no space left" although there is free space, or does already.
    Alert,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Counts up from 1 at the start of the service.
    pub number: u64,
    /// When, as RFC 3339.
    pub at: String,
    /// The volume, by its id; empty when it is about none.
    pub volume: String,
    /// `info`, `warning` or `alert`.
    pub severity: String,
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub text: String,
    /// The file, when it is about one.
    pub path: Option<String>,
}

/// Events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// They.
    pub events: Vec<Event>,
    /// Ask with `since` = this for what comes after.
    pub last: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What.
    pub error: String,
    /// What to do.
    pub hint: String,
}

/// What a request began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// What goes on now.
    pub accepted: String,
}
