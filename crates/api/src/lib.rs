//! The API of the service: the types of its answers, and a client.
//!
//! Owns the types and the client. Never decides anything.

mod client;
pub mod config;
mod exchange;
pub mod fleet;
pub mod heat;
pub mod jobs;
pub mod map;
pub mod model;
pub mod trace;

pub use client::{Client, ClientError};
pub use exchange::{ExchangeError, exchange};

/// The default socket of the service.
pub const DEFAULT_SOCKET: &str = "/run/longrun/longrun.sock";

/// Who passes on the requests of others gives up permissions by this header: `longrun-role: viewer`.
pub const ROLE_HEADER: &str = "longrun-role";
