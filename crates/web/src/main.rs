//! `longrun-web`: the console in a browser, without privilege.
//!
//! Owns the command line. Serves the files of `web/`, passes on requests below `/v1/` to the socket of the service and
//! those below `/fleet/` to that of a fleet's console, and serves metrics over TCP where asked. Never decides who may do what:
//! those who answer do, by the user and the groups of this process.

mod door;
mod files;
mod listen;
mod pass;
mod room;
mod server;
mod trust;

use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve the console of Longrun to a browser on this machine
///
/// Run it as a user in the operators' or the viewers' group of the service ([service] group and viewers in
/// /etc/longrun/longrun.toml): the console may do what this user may do. It prints a link that opens the console once.
#[derive(Debug, Parser)]
#[command(name = "longrun-web", version)]
struct Args {
    /// Listen on this loopback address (port 0: any free port); ignored when systemd passes a socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9818")]
    listen: SocketAddr,
    /// Connect to the service on this socket
    #[arg(long, value_name = "PATH", default_value = "/run/longrun/longrun.sock")]
    socket: PathBuf,
    /// Show the fleet where `longrun fleet console` listens on this socket
    #[arg(long, value_name = "PATH", default_value = "/run/longrun-fleet/console.sock")]
    fleet_socket: PathBuf,
    /// Show everything and change nothing, whatever this user may do
    #[arg(long)]
    read_only: bool,
    /// Also serve GET /metrics on this address to everyone who can reach it
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Also accept this host name: that of a reverse proxy on this machine, which must authenticate users itself
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().with_target(false).init();
    if rustix::process::geteuid().is_root() {
        tracing::error!(
            "longrun-web must not run as root: run it as a user in the group that [service] group or viewers names, or start \
             longrun-web.socket"
        );
        return ExitCode::from(2);
    }
    let listeners = match listen::open(args.listen, args.metrics) {
        Ok(listeners) => listeners,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(1);
        }
    };
    let site = server::Site {
        door: door::Door::default(),
        daemon: pass::Daemon::new(pass::SERVICE, args.socket, args.read_only),
        fleet: pass::Daemon::new(pass::FLEET, args.fleet_socket, args.read_only),
        names: args.host,
        address: listeners.console_address,
    };
    match server::run(site, listeners) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("serving the console failed: {error}");
            ExitCode::from(1)
        }
    }
}
