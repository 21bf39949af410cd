//! The configuration: `/etc/longrun/longrun.toml`.
//!
//! Owns the settings, their defaults, and the choice of the settings for each volume. [`parse`] is pure; [`load`] reads
//! the file. Never guesses: an unknown key or a value out of range is an error with its line.

mod edit;
mod fleet;
mod keys;
mod load;
mod parse;
mod pass;
pub mod schedule;
mod show;
mod store;
mod table;
pub mod units;
mod volume;

pub use edit::{Change, EditError, Section, changed, sections};
pub use fleet::{FleetMode, InForce, combined, in_force, is_group_name, keys_of_defaults, load_in_force, policy_path};
pub use keys::{is_for_root, keys, values_of_service, values_of_volume};
pub use load::{ConfigError, load};
pub use parse::{change, check_fit, parse};
pub use pass::PassMode;
pub use schedule::{Moment, Window};
pub use show::{show, show_volume};
pub use store::{StoreError, Stored};
pub use table::{Problem, Problems, Table};
pub use units::Percent;
pub use volume::{VolumeChange, VolumeSettings};

use longrun_api::DEFAULT_SOCKET;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the configuration is looked for.
pub const DEFAULT_PATH: &str = "/etc/longrun/longrun.toml";
/// Where the service keeps its state, unless configured otherwise.
pub const DEFAULT_STATE_DIRECTORY: &str = "/var/lib/longrun";

/// The complete configuration.
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

/// A struct whose fields also have their documentation as text.
macro_rules! described {
    ($(#[$about:meta])* pub struct $struct:ident { $($(#[doc = $doc:literal])+ pub $name:ident: $type:ty,)+ }) => {
        $(#[$about])*
        pub struct $struct {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl $struct {
            /// What each setting means, in sentences.
            pub const MEANINGS: &[(&'static str, &'static str)] = &[$((stringify!($name), concat!($($doc),+)),)+];
        }
    };
}

described! {
    /// `[service]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ServiceSettings {
        /// The Unix socket of the API.
        pub socket: PathBuf,
        /// Journal, history and ledger.
        pub state_directory: PathBuf,
        /// The operators: members of this group may use the whole API, as root may.
        pub group: Option<String>,
        /// The viewers: members of this group may read everything and change nothing.
        pub viewers: String,
        /// Whether everybody may read status and metrics.
        pub readable_by_all: bool,
        /// For how long a file must have been closed before its unused runway is taken back.
        pub settle_after: Duration,
        /// How much is logged.
        pub log_level: LogLevel,
        /// Whether work on storage that hosts share needs permission of the fleet, and whether the policy of the fleet holds.
        pub fleet: FleetMode,
    }
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(DEFAULT_SOCKET),
            state_directory: PathBuf::from(DEFAULT_STATE_DIRECTORY),
            group: None,
            viewers: "longrun-viewers".to_owned(),
            readable_by_all: false,
            settle_after: Duration::from_millis(500),
            log_level: LogLevel::Info,
            fleet: FleetMode::Off,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what failed.
    Error,
    /// Also messages that may need attention.
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

/// `[[volume]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRule {
    /// Which volumes.
    pub matcher: Matcher,
    /// What holds for them.
    pub change: VolumeChange,
}

/// How a rule names its volume.
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

/// The names of a volume.
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

#[cfg(test)]
mod tests;
