//! `console`: serves the fleet to `longrun-web` on this machine, as HTTP with JSON on a Unix socket.
//!
//! Owns the connection to the broker that all requests share, who may ask for what, and the roll-out that is watched for a request.
//! What is shown has the form that the commands print with `--json`.

mod policy;
mod routes;

use crate::broker::{Broker, BrokerError};
use crate::enroll::Office;
use crate::host_config::HostConfig;
use crate::lease::Moment;
use jiff::{SignedDuration, Timestamp};
use longrun_serve::{Groups, SocketError};
use policy::Watching;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The default socket.
pub const DEFAULT_SOCKET: &str = "/run/longrun-fleet/console.sock";

/// How long a request waits for each answer of the broker.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who may use the console, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Listen on this socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Let members of this group change the policy; without it, only root and the user who runs this may
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Let members of this group see everything
    #[arg(long, value_name = "GROUP", default_value = "longrun-viewers")]
    pub viewers: String,
    /// Use the key in this file instead of the one that the configuration names
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The configuration does not lead to a connection.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The system refused something.
    #[error("serving the console failed: {0}")]
    System(#[from] io::Error),
}

/// What all requests share.
#[derive(Debug)]
struct Desk {
    broker: Broker,
    office: Office,
    server: String,
    options: Options,
    watching: Mutex<Watching>,
}

impl Desk {
    /// Who may do what: groups can change while this runs.
    fn groups(&self) -> Groups {
        let Options { group, viewers, .. } = &self.options;
        Groups::named(group.as_deref(), viewers, None).and_user(rustix::process::geteuid().as_raw())
    }

    /// When the broker answered last.
    fn answered(&self) -> Option<Timestamp> {
        let ago = Moment::now().since(self.broker.answered()?);
        Timestamp::now().checked_sub(SignedDuration::try_from(ago).ok()?).ok()
    }
}

/// Serves until SIGTERM or SIGINT. While the broker is away it goes on, and answers requests with that.
///
/// # Errors
/// [`ConsoleError`].
pub async fn run(config: &HostConfig, config_path: &Path, options: Options) -> Result<(), ConsoleError> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let seed = options.key.clone().or_else(|| config.seed.clone());
    let broker = Broker::connect(&HostConfig { seed, ..config.clone() }, PATIENCE).await?;
    let socket = longrun_serve::listen(&options.socket)?;
    let listener = tokio::net::UnixListener::from_std(socket.listener.try_clone()?)?;
    let desk = Arc::new(Desk {
        broker,
        office: Office::of(config_path),
        server: config.server.clone(),
        options,
        watching: Mutex::default(),
    });
    let router = routes::router(Arc::clone(&desk));
    _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!("the fleet at {} is shown at {}", config.server, desk.options.socket.display());
    tokio::select! {
        () = longrun_serve::serve(&listener, &router, |peer| peer.guest(desk.groups())) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}
