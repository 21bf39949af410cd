//! The HTTP API on a Unix socket, and metrics over TCP when that is configured.
//!
//! Owns who may ask for what, and the bounds of connections. One thread serves all: requests are answered from memory, but for
//! reports and scans, which get threads of their own.

mod metrics;
mod openapi;
mod peer;
mod routes;
mod server;

pub use openapi::document;
pub use server::Server;
