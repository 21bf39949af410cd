//! The configuration: `/etc/longrun/longrun.toml`.
//!
//! Owns what can be set, the defaults, and which settings hold for which volume. [`parse`] is pure; [`load`] reads the
//! file. Never guesses: what is unknown or out of bounds is refused with its line.

mod load;
mod parse;
pub mod schedule;
mod show;
mod table;
pub mod units;

pub use load::{ConfigError, load};
pub use parse::parse;
pub use schedule::{Moment, Window};
pub use show::show;
pub use table::Problem;
pub use units::Percent;

use longrun_layout::Bytes;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the configuration is looked for.
pub const DEFAULT_PATH: &str = "/etc/longrun/longrun.toml";
/// Where the service listens, unless configured otherwise.
pub const DEFAULT_SOCKET: &str = "/run/longrun/longrun.sock";
/// Where the service keeps its state, unless configured otherwise.
pub const DEFAULT_STATE_DIRECTORY: &str = "/var/lib/longrun";

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[service]`.
    pub service: ServiceSettings,
    /// `[defaults]`: what holds for every volume.
    pub defaults: VolumeSettings,
    /// `[[volume]]`: what holds for some, in the order of the file.
    pub rules: Vec<VolumeRule>,
}

impl Config {
    /// What holds for `volume`: the defaults, and over them each rule that matches, in the order of the file.
    #[must_use]
    pub fn settings_for(&self, volume: &VolumeNames<'_>) -> VolumeSettings {
        let matching = self.rules.iter().filter(|rule| rule.matcher.matches(volume));
        matching.fold(self.defaults.clone(), |settings, rule| rule.change.applied_to(settings))
    }
}

/// `[service]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The Unix socket of the API.
    pub socket: PathBuf,
    /// Journal, history and ledger.
    pub state_directory: PathBuf,
    /// Where metrics are served over TCP too; nowhere by default.
    pub metrics_listen: Option<SocketAddr>,
    /// Members of this group may use the whole API, as root may.
    pub group: Option<String>,
    /// Whether everybody may read status and metrics.
    pub readable_by_all: bool,
    /// How much is logged.
    pub log_level: LogLevel,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(DEFAULT_SOCKET),
            state_directory: PathBuf::from(DEFAULT_STATE_DIRECTORY),
            metrics_listen: None,
            group: None,
            readable_by_all: false,
            log_level: LogLevel::Info,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what failed.
    Error,
    /// And what may need somebody's attention.
    Warn,
    /// And what the service does on the whole.
    Info,
    /// And each file.
    Debug,
    /// And each signal.
    Trace,
}

impl LogLevel {
    /// Every level, least first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// What holds for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Whether the volume is looked after at all.
    pub enabled: bool,
    /// Whether growing files get runways.
    pub prevention: bool,
    /// The first runway of a file on healthy free space.
    pub first_runway: Bytes,
    /// The first runway of a file on fragmented free space.
    pub first_runway_fragmented: Bytes,
    /// The longest runway.
    pub largest_runway: Bytes,
    /// Below this share of free space nothing is preallocated, and everything is given back.
    pub free_floor: Percent,
    /// Whether files that fragmented all the same are mended.
    pub mending: bool,
    /// How much mending may write in a day; 0 is without bound.
    pub mending_budget: Bytes,
    /// How long a file must have been quiet before it is mended.
    pub mending_quiet: Duration,
    /// When mending rests.
    pub mending_rests: Vec<Window>,
    /// How often the whole volume is read for its figures; 0 is never.
    pub scan_interval: Duration,
    /// Volumes with more bytes than this are never read as a whole by themselves.
    pub scan_largest: Bytes,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            enabled: true,
            prevention: true,
            first_runway: Bytes(16 * MIB),
            first_runway_fragmented: Bytes(4 * MIB),
            largest_runway: Bytes(128 * MIB),
            free_floor: Percent::new(5).unwrap_or(units::ZERO_PERCENT),
            mending: true,
            mending_budget: Bytes(10 << 30),
            mending_quiet: Duration::from_secs(5),
            mending_rests: Vec::new(),
            scan_interval: Duration::from_secs(86_400),
            scan_largest: Bytes(16 << 40),
        }
    }
}

/// `[[volume]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRule {
    /// Which volumes.
    pub matcher: Matcher,
    /// What holds for them.
    pub change: VolumeChange,
}

/// By what a rule names its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// By one of the places where it is mounted.
    Mount(PathBuf),
    /// By the identity that was given to the file system when it was made.
    Uuid(String),
    /// By the label of the file system.
    Label(String),
    /// By its device node.
    Device(PathBuf),
}

/// The names that a volume goes by.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeNames<'a> {
    /// Where it is mounted.
    pub mounts: &'a [PathBuf],
    /// Its UUID, in lower case.
    pub uuid: Option<&'a str>,
    /// Its label.
    pub label: Option<&'a str>,
    /// Names of its device.
    pub devices: &'a [PathBuf],
}

impl Matcher {
    /// Whether `volume` is meant.
    #[must_use]
    pub fn matches(&self, volume: &VolumeNames<'_>) -> bool {
        let named = |names: &[PathBuf], wanted: &Path| names.iter().any(|name| name == wanted);
        match self {
            Self::Mount(point) => named(volume.mounts, point),
            Self::Uuid(uuid) => volume.uuid.is_some_and(|own| own.eq_ignore_ascii_case(uuid)),
            Self::Label(label) => volume.label == Some(label),
            Self::Device(node) => named(volume.devices, node),
        }
    }
}

/// Settings that a rule changes; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is that of VolumeSettings with the same name")]
pub struct VolumeChange {
    pub enabled: Option<bool>,
    pub prevention: Option<bool>,
    pub first_runway: Option<Bytes>,
    pub first_runway_fragmented: Option<Bytes>,
    pub largest_runway: Option<Bytes>,
    pub free_floor: Option<Percent>,
    pub mending: Option<bool>,
    pub mending_budget: Option<Bytes>,
    pub mending_quiet: Option<Duration>,
    pub mending_rests: Option<Vec<Window>>,
    pub scan_interval: Option<Duration>,
    pub scan_largest: Option<Bytes>,
}

impl VolumeChange {
    /// `base` with these changes.
    #[must_use]
    pub fn applied_to(&self, base: VolumeSettings) -> VolumeSettings {
        VolumeSettings {
            enabled: self.enabled.unwrap_or(base.enabled),
            prevention: self.prevention.unwrap_or(base.prevention),
            first_runway: self.first_runway.unwrap_or(base.first_runway),
            first_runway_fragmented: self.first_runway_fragmented.unwrap_or(base.first_runway_fragmented),
            largest_runway: self.largest_runway.unwrap_or(base.largest_runway),
            free_floor: self.free_floor.unwrap_or(base.free_floor),
            mending: self.mending.unwrap_or(base.mending),
            mending_budget: self.mending_budget.unwrap_or(base.mending_budget),
            mending_quiet: self.mending_quiet.unwrap_or(base.mending_quiet),
            mending_rests: self.mending_rests.clone().unwrap_or(base.mending_rests),
            scan_interval: self.scan_interval.unwrap_or(base.scan_interval),
            scan_largest: self.scan_largest.unwrap_or(base.scan_largest),
        }
    }
}

impl From<&VolumeSettings> for VolumeChange {
    fn from(all: &VolumeSettings) -> Self {
        Self {
            enabled: Some(all.enabled),
            prevention: Some(all.prevention),
            first_runway: Some(all.first_runway),
            first_runway_fragmented: Some(all.first_runway_fragmented),
            largest_runway: Some(all.largest_runway),
            free_floor: Some(all.free_floor),
            mending: Some(all.mending),
            mending_budget: Some(all.mending_budget),
            mending_quiet: Some(all.mending_quiet),
            mending_rests: Some(all.mending_rests.clone()),
            scan_interval: Some(all.scan_interval),
            scan_largest: Some(all.scan_largest),
        }
    }
}

#[cfg(test)]
mod tests;
