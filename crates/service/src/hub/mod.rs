//! The state that the threads of the service share: configuration, volumes, prevention, activity.
//!
//! Owns the assignment of settings to volumes. Locks are held only briefly, and never during a call to the kernel or a
//! device.

mod acts;
mod configured;
mod fleet;
mod heat;
mod jobs;
mod look;
mod maps;
mod passes;
mod status;
mod traces;
mod volumes;

pub use configured::ChangeError;
pub use fleet::PolicyError;
pub use jobs::NoJob;
pub use look::Refusal;
pub use traces::NoTrace;

use crate::activity::Activity;
use crate::config::{Config, ConfigError, InForce, Moment, VolumeSettings};
use crate::fleet::Permissions;
use crate::heats::Heats;
use crate::jobs::Jobs;
use crate::loads::Series;
use crate::logging::LogControl;
use crate::menders::Menders;
use crate::threads::Threads;
use crate::threads::lock;
use crate::traces::Traces;
use crate::volumes::Found;
use jiff::Timestamp;
use longrun_api::fleet::PolicyInForce;
use longrun_api::model;
use longrun_layout::Bytes;
use longrun_ledger::{Account, Gauge};
use longrun_prevention::{Prevention, Totals};
use longrun_sys::{DeviceNumber, Superblock};
use longrun_volume::identity::names::Names;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// A volume of the machine that the service could watch.
struct Entry {
    found: Found,
    /// Its id in the API and in the history.
    id: String,
    superblock: Superblock,
    settings: VolumeSettings,
    /// Prevention watches it.
    watched: bool,
    trouble: Option<String>,
    /// Why it could not be examined the last time.
    unopened: Option<String>,
    space: model::Space,
    health: model::Health,
    scan: Option<(Timestamp, Gauge)>,
    /// Why the last scan did not come to its end.
    scan_trouble: Option<String>,
    /// When its pieces of free space may be asked for again.
    next_look: Instant,
    /// When it may be scanned again; never by itself, when absent.
    next_scan: Option<Instant>,
    /// What its device had written when it was scanned last, and when its pieces of free space were asked for.
    scanned_at: Option<Bytes>,
    looked_at: Option<Bytes>,
    /// The disks below it.
    disks: BTreeSet<DeviceNumber>,
    /// Whether a pass pays, by the last scan since there was one.
    pays: Option<bool>,
}

impl Entry {
    /// Whether a scan is due.
    fn is_due(&self, now: Instant, moment: Moment) -> bool {
        let small = self.space.total_bytes <= self.settings.scan_largest.0;
        small && !self.settings.rests(moment) && self.next_scan.is_some_and(|next| next <= now)
    }

    /// The same from now on after a scan.
    fn put_off_scan(&mut self) {
        let interval = self.settings.scan_interval;
        self.next_scan = (!interval.is_zero()).then(|| Instant::now() + interval);
    }

    fn account(&self) -> Account {
        Account::volume(&self.id)
    }
}

/// A request to the service from outside.
#[derive(Clone, Debug)]
pub enum Request {
    /// Read the configuration again; who waits for it is told when that is done.
    Reload(Option<std::sync::mpsc::SyncSender<()>>),
    /// End in good order.
    Stop,
}

/// The state that the threads of the service share.
pub struct Hub {
    started: Instant,
    config_path: Option<PathBuf>,
    overrides: Box<dyn Fn(&mut Config) + Send + Sync>,
    config: RwLock<Arc<Config>>,
    /// The text of the configuration file that holds: that on the disk may be wrong by now.
    file: Mutex<String>,
    config_trouble: Mutex<Option<String>>,
    /// One at a time: the configuration file is changed.
    changing: Mutex<()>,
    log: LogControl,
    /// The activity.
    pub activity: Arc<Activity>,
    /// The menders.
    pub menders: Arc<Menders>,
    /// What the fleet permits.
    pub(crate) fleet: Arc<Permissions>,
    /// The policy of the fleet that holds.
    policy: Mutex<Option<PolicyInForce>>,
    /// The jobs.
    pub jobs: Jobs,
    /// One at a time: a job of an operator is accepted.
    asking: Mutex<()>,
    /// The threads.
    pub threads: Threads,
    prevention: RwLock<Option<Arc<Prevention>>>,
    prevention_trouble: Mutex<Option<String>>,
    volumes: Mutex<BTreeMap<DeviceNumber, Entry>>,
    names: Names,
    acts: acts::Acts,
    /// One at a time: the mount table is compared with what is watched.
    refreshing: Mutex<()>,
    /// The volume that is being scanned.
    scanning: Mutex<Option<String>>,
    counted: Mutex<Counted>,
    loads: Mutex<BTreeMap<DeviceNumber, Series>>,
    /// How often the devices are read for which file.
    pub(crate) heats: Heats,
    traces: Arc<Traces>,
    requests: std::sync::mpsc::Sender<Request>,
}

/// How much of the counters that only grow has been recorded.
#[derive(Default)]
struct Counted {
    signals: u64,
    io_bytes: u64,
    cpu_millis: u64,
}

/// The parts from which a hub is made.
pub struct Parts {
    /// Where the configuration was read from; the default place otherwise.
    pub config_path: Option<PathBuf>,
    /// What the command line changes of any configuration.
    pub overrides: Box<dyn Fn(&mut Config) + Send + Sync>,
    /// The configuration, overrides applied, and the policy of the fleet in it.
    pub config: InForce,
    /// What the fleet permits.
    pub fleet: Arc<Permissions>,
    /// The log.
    pub log: LogControl,
    /// The activity.
    pub activity: Arc<Activity>,
    /// The menders.
    pub menders: Arc<Menders>,
    /// The jobs.
    pub jobs: Jobs,
    /// Prevention, or why there is none.
    pub prevention: Result<Prevention, String>,
    /// The threads of the service.
    pub threads: Threads,
    /// Where requests go.
    pub requests: std::sync::mpsc::Sender<Request>,
}

impl Hub {
    /// With no volume yet.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let (prevention, trouble) = match parts.prevention {
            Ok(prevention) => (Some(prevention), None),
            Err(trouble) => (None, Some(trouble)),
        };
        let InForce { file, config, policy, trouble: policy_trouble } = parts.config;
        let heats = Heats::within(&config.service.state_directory);
        let names = Names::within(&config.service.state_directory);
        Arc::new(Self {
            started: Instant::now(),
            config_path: parts.config_path,
            overrides: parts.overrides,
            config: RwLock::new(Arc::new(config)),
            file: Mutex::new(file),
            config_trouble: Mutex::new(policy_trouble),
            changing: Mutex::default(),
            log: parts.log,
            activity: parts.activity,
            menders: parts.menders,
            fleet: parts.fleet,
            policy: Mutex::new(policy),
            jobs: parts.jobs,
            asking: Mutex::default(),
            threads: parts.threads,
            prevention: RwLock::new(prevention.map(Arc::new)),
            prevention_trouble: Mutex::new(trouble),
            volumes: Mutex::default(),
            names,
            acts: acts::Acts::default(),
            refreshing: Mutex::default(),
            scanning: Mutex::default(),
            counted: Mutex::default(),
            loads: Mutex::default(),
            heats,
            traces: Arc::default(),
            requests: parts.requests,
        })
    }

    /// The configuration that holds.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the service for something.
    pub fn request(&self, request: Request) {
        if self.requests.send(request).is_err() {
            tracing::debug!("the service is already stopping");
        }
    }

    /// Not locked while it is used: a volume may hang, and the service must be able to end.
    fn prevention(&self) -> Option<Arc<Prevention>> {
        self.prevention.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the configuration again. When it is wrong, the one that holds is kept, and that is said in the log and in
    /// `status`. The policy of the fleet is read in any case: one that does harm can be taken back from a machine whose file is wrong.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn reload(self: &Arc<Self>) -> Result<(), ConfigError> {
        let (read, wrong) = match self.read_config() {
            Ok(read) => (read, None),
            Err(error) => {
                let text = format!("{error}; the earlier configuration is kept");
                tracing::error!("{text}");
                *lock(&self.config_trouble) = Some(text);
                (self.read_policy()?, Some(error))
            }
        };
        let InForce { file, mut config, policy, trouble } = read;
        (self.overrides)(&mut config);
        if wrong.is_none() {
            *lock(&self.config_trouble) = trouble.or_else(|| restart_needed(&self.config().service, &config.service));
        }
        *lock(&self.file) = file;
        *lock(&self.policy) = policy;
        self.log.set(config.service.log_level);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        self.apply_settings();
        self.refresh();
        // The caller expects the current state.
        let devices: Vec<DeviceNumber> = lock(&self.volumes).keys().copied().collect();
        devices.into_iter().for_each(|device| self.look_in_time(device, false));
        if let Some(error) = wrong {
            return Err(error);
        }
        tracing::info!("the configuration was reloaded");
        Ok(())
    }

    /// Gives everything back and ends prevention; the totals, unless there was none.
    pub fn stop_prevention(&self) -> Option<Totals> {
        let prevention = self.prevention.write().unwrap_or_else(PoisonError::into_inner).take();
        prevention.map(|prevention| prevention.stop())
    }
}

/// Settings that hold from the start to the end of a service.
fn restart_needed(old: &crate::config::ServiceSettings, new: &crate::config::ServiceSettings) -> Option<String> {
    let changed = [
        ("socket", old.socket != new.socket),
        ("state_directory", old.state_directory != new.state_directory),
        ("settle_after", old.settle_after != new.settle_after),
    ];
    let names: Vec<&str> = changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| format!("restart the service to change {}", names.join(", ")))
}
