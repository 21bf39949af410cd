//! The sockets on which browsers and scrapers are answered: those that systemd passes, or own ones.
//!
//! Owns the rule that the console is reachable from this machine only.

use std::io;
use std::net::{SocketAddr, TcpListener};

/// The name (`FileDescriptorName=`) of the passed socket that serves metrics.
const METRICS: &str = "metrics";

/// Listening sockets.
#[derive(Debug)]
pub struct Listeners {
    /// For the console.
    pub console: TcpListener,
    /// Its address.
    pub console_address: SocketAddr,
    /// For metrics.
    pub metrics: Option<TcpListener>,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The console would be reachable from other machines.
    #[error(
        "{0} is not a loopback address: use 127.0.0.1 or [::1], and an SSH tunnel or a reverse proxy from other machines"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("{address}: listening failed: {source}; choose another port, or end the program that uses it")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// What systemd passed cannot be used.
    #[error("using the socket that systemd passed failed: {0}; check longrun-web.socket")]
    Passed(io::Error),
}

/// Those that systemd passed; without any, `console` and `metrics` are opened.
///
/// # Errors
/// [`ListenError`].
pub fn open(console: SocketAddr, metrics: Option<SocketAddr>) -> Result<Listeners, ListenError> {
    let names = sd_notify::listen_fds_with_names().map_err(ListenError::Passed)?;
    let (mut passed_console, mut passed_metrics) = (None, None);
    for (index, (_, name)) in (0u8..).zip(names) {
        let listener = longrun_sys::passed_listener(index).map_err(|errno| ListenError::Passed(errno.into()))?;
        *(if name == METRICS { &mut passed_metrics } else { &mut passed_console }) = Some(listener);
    }
    let console = match passed_console {
        Some(listener) => listener,
        None => bind(check(console)?)?,
    };
    let console_address = check(console.local_addr().map_err(ListenError::Passed)?)?;
    let metrics = match (passed_metrics, metrics) {
        (None, Some(address)) => Some(bind(address)?),
        (passed, _) => passed,
    };
    Ok(Listeners { console, console_address, metrics })
}

fn check(address: SocketAddr) -> Result<SocketAddr, ListenError> {
    if address.ip().is_loopback() { Ok(address) } else { Err(ListenError::NotLoopback(address)) }
}

fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).map_err(|source| ListenError::Bind { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_listens_on_loopback_addresses_only() {
        for outside in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            assert!(matches!(check(outside.parse().unwrap()), Err(ListenError::NotLoopback(_))), "{outside}");
        }
        for inside in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:9818"] {
            assert!(check(inside.parse().unwrap()).is_ok(), "{inside}");
        }
    }
}
