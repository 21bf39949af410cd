//! The life of the service, from start to stop.
//!
//! Owns the order of starting and stopping, and the main thread, which only supervises the others.

mod exclusive;
mod notify;

use crate::activity::Activity;
use crate::api;
use crate::config::{self, Config, ConfigError};
use crate::fleet::Permissions;
use crate::hub::{Hub, Parts, Request};
use crate::jobs::Jobs;
use crate::loads;
use crate::logging;
use crate::menders::Menders;
use crate::threads::{self, Threads};
use crate::volumes::MountTable;
use longrun_prevention::sensor::Choice;
use longrun_prevention::{Options, Prevention, PreventionError, Totals};
use longrun_serve::SocketError;
use longrun_sys::{Errno, MOUNT_TABLE};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// This program, also after another version was installed in its place.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The options of the command line.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// The configuration file, when it is not at its default place.
    pub config: Option<PathBuf>,
    /// The socket, whatever is configured.
    pub socket: Option<PathBuf>,
    /// The state directory, whatever is configured.
    pub state_directory: Option<PathBuf>,
    /// Who notices growth.
    pub sensor: Choice,
}

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Not root.
    #[error("the service needs root; start it by systemd or with sudo")]
    NotPermitted,
    /// No volume could be opened.
    #[error(
        "openat2 is refused, and no volume is opened without it; it needs Linux 5.8 or later, and a unit that does not forbid it \
         (systemd: RestrictSUIDSGID= does)"
    )]
    NoOpenat2,
    /// There is one already.
    #[error("another longrun service is running ({by}); stop it first, or give this one another socket and state directory", by = by.display())]
    Running {
        /// What it holds.
        by: PathBuf,
    },
    /// The state directory or the socket cannot be used.
    #[error("{path}: {act} failed: {source}; check the path and its permissions, or configure another one", path = path.display())]
    Place {
        /// Which.
        path: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something that every process may have was refused.
    #[error("{act} failed: {source}; the machine is short of a resource (memory, threads or files): free some")]
    System {
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl From<SocketError> for DaemonError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Running { by } => Self::Running { by },
            SocketError::Place { path, act, source } => Self::Place { path, act, source },
        }
    }
}

/// Runs the service until a signal ends it.
///
/// # Errors
/// [`DaemonError`] when it cannot begin.
pub fn run(options: DaemonOptions) -> Result<(), DaemonError> {
    let overrides = {
        let options = options.clone();
        move |config: &mut Config| {
            if let Some(socket) = &options.socket {
                config.service.socket.clone_from(socket);
            }
            if let Some(directory) = &options.state_directory {
                config.service.state_directory.clone_from(directory);
            }
        }
    };
    let mut in_force = config::load_in_force(options.config.as_deref(), options.state_directory.as_deref())?;
    overrides(&mut in_force.config);
    let config = in_force.config.clone();
    if !longrun_sys::is_root() {
        return Err(DaemonError::NotPermitted);
    }
    // Every volume would count as hidden, without a word.
    if let Err(Errno::NOSYS | Errno::PERM) = longrun_sys::open_trusted_directory(Path::new("/")) {
        return Err(DaemonError::NoOpenat2);
    }
    longrun_sys::share_memory_pools();
    let log = logging::start(config.service.log_level);
    let state = config.service.state_directory.clone();
    let _lock = exclusive::lock(&state)?;
    let socket = longrun_serve::listen(&config.service.socket)?;
    threads::notice_panics();
    // Signals are caught before anything is held that a signal must not leave behind.
    let (requests, inbox) = mpsc::channel();
    catch_signals(requests.clone())?;
    let threads = Threads::new().map_err(|source| DaemonError::System { act: "making an event descriptor", source })?;
    let activity = Arc::new(Activity::open(&state.join("ledger.db")));
    let mut how = Options::new(state);
    how.sensor = options.sensor;
    how.debounce = config.service.settle_after;
    let fleet = Arc::new(Permissions::default());
    let menders = Menders::new(Arc::clone(&activity), Arc::clone(&fleet));
    let prevention = match Prevention::start(how, Arc::clone(&menders) as Arc<dyn longrun_prevention::Sink>) {
        Err(PreventionError::InUse { path }) => return Err(DaemonError::Running { by: path }),
        other => other.map_err(|error| error.to_string()),
    };
    if let Err(trouble) = &prevention {
        tracing::error!("prevention does not run: {trouble}; the rest of the service runs");
    }
    let jobs = Jobs::open(config.service.state_directory.join("jobs"), PathBuf::from(OWN_PROGRAM));
    let parts = Parts {
        config_path: options.config.clone(),
        overrides: Box::new(overrides),
        config: in_force,
        fleet,
        log,
        activity,
        menders,
        jobs,
        prevention,
        threads,
        requests,
    };
    let hub = Hub::new(parts);
    start_threads(&hub, &socket)?;
    let sensor = hub.status().sensor.map_or_else(|| "none".to_owned(), |sensor| sensor.kind);
    tracing::info!("longrun {} is ready; sensor: {sensor}", env!("CARGO_PKG_VERSION"));
    notify::ready();
    watch_over(&hub, &inbox);
    notify::stopping();
    stop(&hub);
    drop(socket);
    Ok(())
}

fn catch_signals(requests: mpsc::Sender<Request>) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::System { act: "installing the signal handlers", source };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let body = move || {
        for signal in signals.forever() {
            let request = if signal == SIGHUP { Request::Reload(None) } else { Request::Stop };
            if requests.send(request).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(body).map_err(failed)?;
    Ok(())
}

fn start_threads(hub: &Arc<Hub>, socket: &longrun_serve::Socket) -> Result<(), DaemonError> {
    let no_thread = |source| DaemonError::System { act: "starting a thread", source };
    let table = MountTable::open().map_err(|source| DaemonError::System { act: "opening the mount table", source })?;
    hub.refresh();
    let server = api::Server::new(Arc::clone(hub), &socket.listener)
        .map_err(|source| DaemonError::System { act: "starting the API", source })?;
    hub.threads.start("the API", move || server.run()).map_err(no_thread)?;
    let mounts = Arc::clone(hub);
    hub.threads.start("mounts", move || follow_mounts(&mounts, &table)).map_err(no_thread)?;
    let jobs = Arc::clone(hub);
    hub.threads.start("jobs", move || jobs.work_on_jobs()).map_err(no_thread)?;
    let gauges = Arc::clone(hub);
    hub.threads.start("gauges", move || look_around(&gauges)).map_err(no_thread)
}

/// Follows the mount table to the end of the service.
fn follow_mounts(hub: &Arc<Hub>, table: &MountTable) {
    /// Now and then all is compared, whatever the kernel told: what failed may work now.
    const ALL: Duration = Duration::from_secs(30);
    let mut last = Instant::now();
    while !hub.threads.stopping() {
        hub.threads.beat("mounts");
        match table.wait(hub.threads.bell(), ALL) {
            Ok(false) if last.elapsed() < ALL => {}
            Ok(_) => {
                hub.refresh();
                last = Instant::now();
            }
            Err(error) => {
                tracing::error!(
                    "{MOUNT_TABLE}: waiting for changes failed: {error}; the table is read periodically instead"
                );
                hub.threads.rest(ALL);
                hub.refresh();
            }
        }
    }
}

/// Looks at the volumes to the end of the service.
fn look_around(hub: &Arc<Hub>) {
    const ROUND: Duration = Duration::from_secs(60);
    let mut last = Instant::now();
    while !hub.threads.rest(loads::INTERVAL) {
        hub.sample_loads();
        if last.elapsed() >= ROUND {
            hub.round();
            last = Instant::now();
        }
    }
}

/// The main thread: answers requests, and feeds the watchdog while all is well.
fn watch_over(hub: &Arc<Hub>, inbox: &Receiver<Request>) {
    let interval = notify::interval();
    loop {
        match inbox.recv_timeout(interval) {
            Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Request::Reload(waiting)) => {
                notify::reloading();
                // What is wrong has been said.
                _ = hub.reload();
                notify::ready();
                if let Some(waiting) = waiting {
                    // Who waited too long is gone.
                    _ = waiting.try_send(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let status = hub.status();
        let prevented: u64 = status.volumes.iter().map(|volume| volume.prevented.fragments).sum();
        let line = format!("{} volumes, {prevented} excess fragments prevented", status.volumes.len());
        if hub.is_alive() {
            notify::alive(&line);
        } else {
            notify::ailing(&format!("{line}; {}", status.troubles.first().map_or("", String::as_str)));
        }
    }
}

/// Gives everything back and closes the ledger.
fn stop(hub: &Hub) {
    tracing::info!("stopping; all runways are being given back");
    hub.threads.stop();
    let left = hub.threads.join(Duration::from_secs(35));
    if !left.is_empty() {
        tracing::warn!("these threads did not stop in time: {}", left.join(", "));
    }
    hub.menders.end_all();
    hub.heats.end();
    if let Some(Totals { last, given_back }) = hub.stop_prevention() {
        let sum = |of: fn(&longrun_prevention::VolumeSnapshot) -> u64| last.volumes.iter().map(of).sum::<u64>();
        tracing::info!(
            "totals: {} excess fragments prevented, {} not prevented; {} runways granted, {} bytes of {} given back; {} files \
             were open and stay in the journal",
            sum(|volume| volume.prevented),
            sum(|volume| volume.excess),
            sum(|volume| volume.grants),
            sum(|volume| volume.trimmed.0) + given_back.bytes.0,
            sum(|volume| volume.granted.0),
            given_back.left_files,
        );
    }
    hub.activity.flush(Duration::from_secs(5));
}
